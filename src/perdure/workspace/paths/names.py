"""Which names a tool may use: what a person could not see or tell apart is refused.

A name with an invisible or direction-changing character shows as another name in a terminal, a diff and a
review. All refusals here are about the text alone; where a path leads is found by walking it.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Final, NamedTuple

from perdure.protocol.envelope import ReasonHint, ToolError, refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.storage.files.temp_names import PREFIX
from perdure.text.printable import is_ignorable, make_printable

NAME_MAX: Final = 255
PATH_MAX: Final = 4095
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Spelling(NamedTuple):
    """A path as it was given: its names, without empty ones and single dots."""

    is_absolute: bool
    parts: tuple[str, ...]


def spelled(path: str) -> Spelling:
    """Take a path apart, or refuse it by its text."""
    if not path:
        raise bad_path("empty_path", "path is empty: give a path relative to the workspace.")
    if len(path) > PATH_MAX or len(_bytes(path)) > PATH_MAX:
        raise bad_path("path_too_long", f"path is longer than {PATH_MAX} bytes.", hint="size_limit")
    names = path.split("/")
    if names[0] == "~":
        raise bad_path("home_path", "a path cannot start with ~: give it relative to the workspace.", path)
    if names[-1] == "" and path.strip("/"):
        raise bad_path(
            "trailing_slash", f"{make_printable(path)} ends with a slash: give the path of a file.", path
        )
    if names[-1] in ("", ".", ".."):
        raise bad_path(
            "is_directory", f"{make_printable(path)} is a directory: give the path of a file.", path
        )
    for name in names:
        check_name(name)
    return Spelling(path.startswith("/"), tuple(name for name in names if name not in ("", ".")))


@lru_cache(maxsize=1024)
def check_name(name: str) -> None:
    """Refuse one name that cannot or must not be written."""
    if "\0" in name:
        raise bad_path("nul_in_name", "path has a NUL character.", name)
    if len(_bytes(name)) > NAME_MAX:
        raise bad_path("name_too_long", f"a name in path is longer than {NAME_MAX} bytes.", hint="size_limit")
    if not (name.isascii() and name.isprintable()):
        _check_characters(name)
    if name.casefold().startswith(PREFIX):
        raise bad_path(
            "reserved_name",
            f"the name {make_printable(name)} is reserved for temporary files of Perdure.",
            name,
        )


def bad_path(reason: str, message: str, path: str = "", *, hint: ReasonHint = "encoding") -> ToolError:
    context: dict[str, Any] = {"path": make_printable(path)} if path and not path.startswith("/") else {}
    return refuse(
        "invalid_input",
        reason,
        message,
        next_step=call_again(path=FILL),
        suggested_action="fix_syntax",
        reason_hint=hint,
        **context,
    )


def _check_characters(name: str) -> None:
    for character in name:
        if character in _BIDI:
            raise bad_path("bidi_in_name", "path has a character that changes the direction of text.", name)
        if is_ignorable(character):
            raise bad_path("invisible_in_name", "path has an invisible character.", name)
        if unicodedata.category(character) in ("Cc", "Zl", "Zp"):
            raise bad_path("control_in_name", "path has a control character.", name)


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise bad_path("not_utf8", "path is not valid Unicode text.", text) from None

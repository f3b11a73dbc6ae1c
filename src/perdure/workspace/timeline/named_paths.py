"""The paths that the input of a call names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from perdure import risk
from perdure.workspace.paths.roots import Roots
from perdure.workspace.timeline.event import HookEvent

MOST_PATHS: Final = 1000
_SCANNED_COMMAND: Final = 65_536
_MOST_COMMAND: Final = 16_384
_MOST_WORDS: Final = 500
_WORD: Final = re.compile(r"""(?:[^\s"'`;&|<>()]|"[^"]*"|'[^']*')+""")
_NEXT_COMMAND: Final = re.compile(r"[;&|(`\n]")
_QUOTE: Final = re.compile(r"""["']""")


def named_paths(event: HookEvent, roots: Roots) -> tuple[str, ...]:
    """The paths that the input of a call names, as rows name them; those outside of the workspace are left
    out."""
    words = [(path, event.cwd) for path in event.paths]
    if event.command is not None:
        words += command_words(redact(event.command), event.cwd)
    found: dict[str, None] = {}
    for word, cwd in words[:MOST_PATHS]:
        named = _journal_path(roots, os.path.normpath(os.path.join(cwd, word)))
        if named and _is_text(named):
            found[named] = None
    return tuple(found)


def _journal_path(roots: Roots, absolute: str) -> str | None:
    parts = [part for part in absolute.split("/") if part]
    best: tuple[int, str] | None = None
    for number, root in enumerate(roots):
        inside = root.beneath(parts)
        if inside is not None and (best is None or len(inside) < best[0]):
            best = len(inside), (f"@{number}/" if number else "") + "/".join(inside)
    return best[1] if best is not None else None


def command_words(command: str, cwd: str) -> Iterable[tuple[str, str]]:
    """The words of a command line that may be paths, each with the folder that it is relative to, after each `cd`.

    A shell is not imitated: a word with a wildcard or a variable names the folder before it.
    """
    is_cd = False
    end = 0
    for number, match in enumerate(_WORD.finditer(command[:_MOST_COMMAND])):
        if number >= _MOST_WORDS:
            return
        is_program = number == 0 or _NEXT_COMMAND.search(command, end, match.start()) is not None
        end = match.end()
        word = _QUOTE.sub("", match[0])
        if is_cd:
            cwd = os.path.join(cwd, word)
        is_cd = word in ("cd", "pushd")
        if word.startswith("-"):
            word = word.partition("=")[2]
        special = re.search(r"[*?\[{$]", word)
        if special is not None:
            word = word[: special.start()].rpartition("/")[0]
        if word and not is_cd and (not is_program or "/" in word):
            yield word, cwd


def redact(command: str) -> str:
    """A command line without its secrets."""
    text = command[:_SCANNED_COMMAND].encode("utf-8", "replace").decode()
    return risk.redact(text, risk.scan(text))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

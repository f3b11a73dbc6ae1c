"""The patterns of a `.gitignore` file, as git reads them.

| pattern | matches |
|---|---|
| `name`, `*.log`, `a?c`, `[a-z]` | this name at any depth; wildcards match any character but `/` (git: byte) |
| `/a`, `a/b` | relative to the folder of the file |
| `**/a`, `a/**`, `a/**/b` | any number of folders; `a/**` is what is inside `a` |
| `a/` | folders only |
| `!a` | not ignored after all; the last pattern that matches decides |

Matching takes time linear in the path for each pattern: `*` is compiled to atomic groups, and `**` returns to the
last `**` only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

MOST_BYTES: Final = 1 << 20
"""A larger file of patterns is read up to here."""

_ANY_FOLDERS: Final = "**"
_CLASSES: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}

NameMatch = Callable[[str], object]


class Pattern(NamedTuple):
    """One line. `parts` has one matcher for each name of the path, None for `**`; it is empty for a pattern of a
    name alone."""

    is_negated: bool
    is_folder_only: bool
    name: NameMatch | None
    parts: tuple[NameMatch | None, ...]
    leading: tuple[str, ...]
    """The names before the first wildcard, of a pattern of a path."""


class Patterns:
    """The patterns of one file. `folder` is where it is: `""` for the root, else with a `/` at its end."""

    def __init__(self, lines: Iterable[str], folder: str = "") -> None:
        self._folder = folder
        self._literals: dict[str, list[int]] = {}  # the patterns that are one whole name
        self._suffixes: dict[str, list[int]] = {}  # those like `*.log`
        self._others: list[int] = []
        self._all: list[Pattern] = []
        for line in lines:
            self._add(line)

    def __bool__(self) -> bool:
        return bool(self._all)

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        """Whether this file of patterns ignores a path; None where no pattern matches."""
        best = -1
        for index in self._literals.get(name, ()):
            if is_folder or not self._all[index].is_folder_only:
                best = index
        if self._suffixes and (dot := name.rfind(".")) >= 0:
            for index in self._suffixes.get(name[dot:], ()):
                if index > best and (is_folder or not self._all[index].is_folder_only):
                    best = index
        parts: list[str] | None = None
        for index in reversed(self._others):
            if index < best:
                break
            pattern = self._all[index]
            if pattern.is_folder_only and not is_folder:
                continue
            if pattern.name is not None:
                is_match = pattern.name(name) is not None
            else:
                if parts is None:
                    parts = path[len(self._folder) :].split("/")
                is_match = _match_parts(pattern.parts, parts)
            if is_match:
                best = index
                break
        return None if best < 0 else not self._all[best].is_negated

    def may_match_beneath(self, folder: str) -> bool:
        """Whether a pattern of a path begins with this folder, or with one in it."""
        names = tuple(folder.split("/"))
        return any(
            not pattern.is_negated and pattern.parts and pattern.leading[: len(names)] == names
            for pattern in self._all
        )

    def _add(self, line: str) -> None:
        text = _strip_trailing_spaces(line)
        if not text or text.startswith("#"):
            return
        is_negated = text.startswith("!")
        text = text[1:] if is_negated else text
        is_folder_only = text.endswith("/")
        text = text.rstrip("/") if is_folder_only else text
        if not text:
            return
        index = len(self._all)
        if "/" not in text and text != _ANY_FOLDERS:
            is_plain = not re.search(r"[*?\[\\]", text)
            self._all.append(Pattern(is_negated, is_folder_only, _name_match(text), (), ()))
            if is_plain:
                self._literals.setdefault(text, []).append(index)
            elif re.fullmatch(r"\*\.[^*?\[\\.]+", text):
                self._suffixes.setdefault(text[1:], []).append(index)
            else:
                self._others.append(index)
            return
        names = text.removeprefix("/").split("/")
        parts = tuple(None if name == _ANY_FOLDERS else _name_match(name) for name in names)
        leading: list[str] = []
        for name in names:
            if re.search(r"[*?\[\\]", name):
                break
            leading.append(name)
        self._all.append(Pattern(is_negated, is_folder_only, None, parts, tuple(leading)))
        self._others.append(index)


def _strip_trailing_spaces(line: str) -> str:
    """Without the line end and the spaces before it, unless the last one is escaped."""
    text = line.rstrip("\r\n")
    stripped = text.rstrip(" ")
    return stripped + " " if stripped.endswith("\\") and len(stripped) < len(text) else stripped


def _match_parts(wanted: Sequence[NameMatch | None], names: Sequence[str]) -> bool:
    """As a wildcard match of a text, with names for characters. A `**` at the end needs a name of its own."""
    at = number = 0
    star = -1
    resume = 0
    while number < len(names):
        matcher = wanted[at] if at < len(wanted) else None
        if at < len(wanted) and matcher is None:
            if at == len(wanted) - 1:
                return True
            star, resume = at, number
            at += 1
        elif matcher is not None and matcher(names[number]) is not None:
            at, number = at + 1, number + 1
        elif star >= 0:
            resume += 1
            at, number = star + 1, resume
        else:
            return False
    return at == len(wanted)


def _name_match(pattern: str) -> NameMatch:
    return re.compile(_translate(pattern), re.DOTALL).fullmatch


def _translate(pattern: str) -> str:
    """A regular expression in which each inner `*` is an atomic group: it never tries another end than the first."""
    pieces: list[str] = [""]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif character == "?":
            pieces[-1] += "."
        elif character == "[":
            text, at = translate_set(pattern, at)
            pieces[-1] += text
        else:
            if character == "\\" and at < len(pattern):
                character, at = pattern[at], at + 1
            pieces[-1] += re.escape(character)
    if len(pieces) == 1:
        return pieces[0]
    first, *inner, last = pieces
    return first + "".join(f"(?>.*?{piece})" for piece in inner) + ".*" + last


def translate_set(pattern: str, start: int) -> tuple[str, int]:
    """`[…]`, from after the bracket. One that does not end matches nothing, as in git."""
    at = start
    is_negated = pattern[at : at + 1] in ("!", "^")
    at += is_negated
    members = ""
    is_first = True
    while at < len(pattern) and (is_first or pattern[at] != "]"):
        is_first = False
        if pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            members += _CLASSES.get(pattern[at + 2 : end], "")
            at = end + 2
            continue
        if pattern[at] == "\\" and at + 1 < len(pattern):
            at += 1
        low = pattern[at]
        at += 1
        if pattern.startswith("-", at) and at + 1 < len(pattern) and pattern[at + 1] != "]":
            high = pattern[at + 1]
            at += 2
            if high == "\\" and at < len(pattern):
                high, at = pattern[at], at + 1
            if low <= high:
                members += f"{re.escape(low)}-{re.escape(high)}"
        else:
            members += re.escape(low)
    if at >= len(pattern):
        return "(?!)", len(pattern)
    if not members:
        return "." if is_negated else "(?!)", at + 1
    return f"[{'^' if is_negated else ''}{members}]", at + 1

"""The paths of a reservation: a file, a folder with everything in it, or a pattern as in `.gitignore`.

| text | covers |
|---|---|
| `src/app.py`, `src` | this path, and everything beneath it |
| `*.py`, `test_?.md` | files with these names at any depth |
| `src/*.py` | files with these names in `src` |
| `src/*`, `test*`, `src/**/tests` | these names, and everything beneath them; `**` is any number of folders, also none |

A name with a wildcard and an extension stands for files: `*.py` and `*.md` do not overlap, although a folder could be
called `a.py`.

Two patterns overlap if there can be a path that both cover. A path is a pattern without wildcards, so that the same
comparison decides whether a pattern covers a path. Names are compared without their case, as files are on some systems.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from os.path import splitext
from typing import Final, NamedTuple

from perdure.workspace.timeline.gitignore import translate_set

_FOLDERS: Final = "**"
_WILDCARD: Final = re.compile(r"[*?\[]")


class _AnyText:
    """`*`"""


class _OneOf(NamedTuple):
    """`?` and `[…]`. `expression` matches one character."""

    expression: re.Pattern[str]


_Piece = str | _OneOf | type[_AnyText]
_Name = tuple[_Piece, ...]
_Step = _Name | None
"""None stands for any number of folders."""


def has_wildcard(text: str) -> bool:
    return _WILDCARD.search(text) is not None


def covers(pattern: str, path: str) -> bool:
    if has_wildcard(pattern):
        return _overlap(_parse(pattern), _parse_path(path))
    folder, folded = _fold(pattern), _fold(path)
    return folded == folder or folded.startswith(f"{folder}/")


def overlap(first: str, second: str) -> bool:
    """Whether there can be a path that both cover."""
    return _overlap(_parse(first), _parse(second))


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[_Step, ...]:
    names = text.split("/")
    if has_wildcard(text) and len(names) == 1:
        names = [_FOLDERS, *names]
    steps: list[_Step] = [None if name == _FOLDERS else _parse_name(name) for name in names if name]
    is_of_files = has_wildcard(names[-1]) and splitext(names[-1])[1] != ""
    return tuple(steps) if is_of_files else (*steps, None)


@lru_cache(maxsize=1024)
def _parse_path(path: str) -> tuple[_Step, ...]:
    return tuple(tuple(_fold(name)) for name in path.split("/"))


def _parse_name(name: str) -> _Name:
    name = _fold(name)
    pieces: list[_Piece] = []
    at = 0
    while at < len(name):
        character = name[at]
        at += 1
        if character == "*":
            pieces.append(_AnyText)
        elif character == "?":
            pieces.append(_OneOf(re.compile(".", re.S)))
        elif character == "[":
            expression, at = translate_set(name, at)
            pieces.append(_OneOf(re.compile(expression, re.S)))
        else:
            pieces.append(character)
    return tuple(pieces)


@lru_cache(maxsize=4096)
def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _overlap(first: tuple[_Step, ...], second: tuple[_Step, ...]) -> bool:
    """Each reachable pair of positions is looked at once."""
    seen: set[tuple[int, int]] = set()
    todo = [(0, 0)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        i, j = at
        if i == len(first) and j == len(second):
            return True
        left = first[i] if i < len(first) else ()
        right = second[j] if j < len(second) else ()
        if left is None:
            todo.append((i + 1, j))  # it is no folder
            if right:
                todo.append((i, j + 1))  # it is the other's next one
        if right is None:
            todo.append((i, j + 1))
            if left:
                todo.append((i + 1, j))
        if left and right and _names_overlap(left, right):
            todo.append((i + 1, j + 1))
    return False


def _names_overlap(first: _Name, second: _Name) -> bool:
    seen: set[tuple[int, int]] = set()
    todo = [(0, 0)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        i, j = at
        if i == len(first) and j == len(second):
            return True
        left = first[i] if i < len(first) else None
        right = second[j] if j < len(second) else None
        if left is _AnyText:
            todo.append((i + 1, j))
            if right is not None and right is not _AnyText:
                todo.append((i, j + 1))
        if right is _AnyText:
            todo.append((i, j + 1))
            if left is not None and left is not _AnyText:
                todo.append((i + 1, j))
        if left is not None and right is not None and _characters_overlap(left, right):
            todo.append((i + 1, j + 1))
    return False


def _characters_overlap(left: _Piece, right: _Piece) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, _OneOf) and isinstance(right, str):
        return left.expression.fullmatch(right) is not None
    if isinstance(left, str) and isinstance(right, _OneOf):
        return right.expression.fullmatch(left) is not None
    return isinstance(left, _OneOf) and isinstance(right, _OneOf)  # two sets may share a character

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
from collections.abc import Callable, Sequence
from functools import lru_cache
from os.path import splitext
from typing import Final, NamedTuple, TypeVar

from perdure.workspace.timeline.gitignore import translate_set

T = TypeVar("T")

_FOLDERS: Final = "**"
_WILDCARD: Final = re.compile(r"[*?\[]")


class _Character(NamedTuple):
    """A character itself, or an expression that matches one: `?` and `[…]`."""

    text: str
    expression: re.Pattern[str] | None = None


_Name = tuple[_Character | None, ...]
"""None stands for `*`."""
_Step = _Name | None
"""None stands for any number of folders."""


def has_wildcard(text: str) -> bool:
    return _WILDCARD.search(text) is not None


def covers(pattern: str, path: str) -> bool:
    if has_wildcard(pattern):
        return _overlap(_parse(pattern), _parse_path(path), _names_overlap)
    folder, folded = _fold(pattern), _fold(path)
    return folded == folder or folded.startswith(f"{folder}/")


def overlap(first: str, second: str) -> bool:
    """Whether there can be a path that both cover."""
    return _overlap(_parse(first), _parse(second), _names_overlap)


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
    return tuple(tuple(map(_Character, _fold(name))) for name in path.split("/"))


def _parse_name(name: str) -> _Name:
    name = _fold(name)
    pieces: list[_Character | None] = []
    at = 0
    while at < len(name):
        character = name[at]
        at += 1
        if character == "*":
            pieces.append(None)
        elif character == "?":
            pieces.append(_Character("?", re.compile(".", re.S)))
        elif character == "[":
            expression, at = translate_set(name, at)
            pieces.append(_Character("[", re.compile(expression, re.S)))
        else:
            pieces.append(_Character(character))
    return tuple(pieces)


@lru_cache(maxsize=4096)
def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _overlap(first: Sequence[T | None], second: Sequence[T | None], agree: Callable[[T, T], bool]) -> bool:
    """Whether there can be a sequence that both describe; None stands for any number of elements. Each reachable pair of
    positions is looked at once."""
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
        is_first_open = i < len(first) and first[i] is None
        is_second_open = j < len(second) and second[j] is None
        if is_first_open or (is_second_open and i < len(first)):
            todo.append((i + 1, j))
        if is_second_open or (is_first_open and j < len(second)):
            todo.append((i, j + 1))
        if i < len(first) and j < len(second):
            left, right = first[i], second[j]
            if left is not None and right is not None and agree(left, right):
                todo.append((i + 1, j + 1))
    return False


def _names_overlap(first: _Name, second: _Name) -> bool:
    return _overlap(first, second, _characters_overlap)


def _characters_overlap(left: _Character, right: _Character) -> bool:
    if left.expression is not None and right.expression is not None:
        return True  # two sets may share a character
    if left.expression is not None:
        return left.expression.fullmatch(right.text) is not None
    if right.expression is not None:
        return right.expression.fullmatch(left.text) is not None
    return left.text == right.text

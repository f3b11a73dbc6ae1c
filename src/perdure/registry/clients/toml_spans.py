"""Where everything stands in a TOML text. The text is valid: `tomllib` has read it before."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from perdure.registry.clients.splices import Scalar

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")' + r"|'''.*?'{3,5}(?!')" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE: Final = re.compile(r"[^,\]}#\r\n]*[^,\]}#\r\n \t]")


class Value(msgspec.Struct, frozen=True):
    """`pairs` of an inline table, `items` of an array; neither for a scalar."""

    start: int
    end: int
    pairs: tuple[Pair, ...] | None = None
    items: tuple[Value, ...] | None = None


class Pair(msgspec.Struct, frozen=True):
    """A key as it was written, with the dots in it, and its value."""

    key: tuple[str, ...]
    start: int
    value: Value


class Section(msgspec.Struct, frozen=True):
    """A header and the pairs below it. The first one has no header: it is the top of the file."""

    path: tuple[str, ...]
    start: int
    end: int
    is_array: bool
    pairs: tuple[Pair, ...]


@lru_cache(maxsize=16)
def sections(text: str) -> list[Section]:
    """Kept for a few texts: one change looks at the same text more than once."""
    return _Scan(text).all()


def scalars(text: str) -> Iterator[Scalar]:
    for section in sections(text):
        for pair in section.pairs:
            yield from _scalars(text, (*section.path, *pair.key), pair.value)


def _scalars(text: str, path: tuple[str | int, ...], value: Value) -> Iterator[Scalar]:
    if value.pairs is not None:
        for pair in value.pairs:
            yield from _scalars(text, (*path, *pair.key), pair.value)
    elif value.items is not None:
        for index, item in enumerate(value.items):
            yield from _scalars(text, (*path, index), item)
    else:
        written = text[value.start : value.end]
        yield Scalar(path, value.start, value.end, _string(written) if written[0] in "\"'" else "")


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def all(self) -> list[Section]:
        found = []
        path: tuple[str, ...] = ()
        start = end = 0
        is_array = False
        while True:
            pairs = self._pairs()
            found.append(Section(path, start, end, is_array, pairs))
            if self.at >= len(self.text):
                return found
            start = self.at
            is_array = self.text.startswith("[[", self.at)
            width = 2 if is_array else 1
            self.at += width
            path = self._key()
            self.at += width
            end = self.at

    def _pairs(self) -> tuple[Pair, ...]:
        found = []
        self._skip(_BLANK)
        while self.at < len(self.text) and self.text[self.at] != "[":
            found.append(self._pair())
            self._skip(_BLANK)
        return tuple(found)

    def _pair(self) -> Pair:
        start = self.at
        key = self._key()
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        return Pair(key, start, self._value())

    def _key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self._skip(_SPACE)
            parts.append(_name(self._take(_PART)))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def _value(self) -> Value:
        start = self.at
        first = self.text[start]
        if first == "[":
            return self._array(start)
        if first == "{":
            return self._inline(start)
        self._take(_STRING if first in "\"'" else _BARE)
        return Value(start, self.at)

    def _array(self, start: int) -> Value:
        items = []
        self.at += 1
        self._skip(_BLANK)
        while self.text[self.at] != "]":
            items.append(self._value())
            self._past_comma()
        self.at += 1
        return Value(start, self.at, items=tuple(items))

    def _inline(self, start: int) -> Value:
        pairs = []
        self.at += 1
        self._skip(_BLANK)
        while self.text[self.at] != "}":
            pairs.append(self._pair())
            self._past_comma()
        self.at += 1
        return Value(start, self.at, pairs=tuple(pairs))

    def _past_comma(self) -> None:
        self._skip(_BLANK)
        if self.text[self.at] == ",":
            self.at += 1
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise ValueError(f"not understood at character {self.at}")
        self.at = found.end()
        return found[0]


def _name(written: str) -> str:
    return _string(written) if written[0] in "\"'" else written


def _string(written: str) -> str:
    if "\\" not in written and written[:3] not in ('"""', "'''"):
        return written[1:-1]  # it says what it is
    value: str = tomllib.loads(f"k = {written}")["k"]
    return value

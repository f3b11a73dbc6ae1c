"""A text and its UTF-8 bytes: tree-sitter counts bytes, people count characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import Final

from perdure.validate.layout import Lines, Place

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_CLOSED: Final = re.compile(r"\\.|\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*'|`[^`]*`|//.*")


class Source:
    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode("utf-8", "replace")
        self.lines = Lines(text)

    def character(self, byte: int) -> int:
        """The character offset of a byte offset."""
        if len(self.data) == len(self.text):
            return byte
        line = bisect_right(self._row_bytes, byte) - 1
        part = self.data[self._row_bytes[line] : byte].decode("utf-8", "replace")
        return self.lines.offset(line + 1) + len(part)

    def place(self, byte: int) -> Place:
        character = self.character(byte)
        return self.lines.end() if character >= len(self.text.rstrip()) else self.lines.place(character)

    def word_at(self, byte: int) -> str:
        """The token at a place: a word, or one character of punctuation; "" at the end."""
        match = _WORD.search(self.text, self.character(byte))
        return match[0] if match else ""

    def open_quote(self, line: int) -> Place | None:
        """A double quote on a line that has no partner on it."""
        row = self.lines.row(line)
        left = _CLOSED.sub(lambda match: " " * len(match[0]), row)
        return Place(line, left.index('"') + 1) if '"' in left else None

    @cached_property
    def _row_bytes(self) -> list[int]:
        starts = [0]
        for match in re.finditer(b"\n", self.data):
            starts.append(match.end())
        return starts

"""Python newer than the one that runs, put in words of the same length that it knows.

    older("type Pair[T] = tuple[T, T]")    # "x=0; Pair    = tuple[T, T]"

Type parameters and `type` statements (3.12), f-strings with any expression in them (3.12), `except A, B` (3.14) and
template strings (3.14). The expressions in such strings are given back by their places, to be checked as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\f]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<line>\n)
    |(?P<quote>(?:[rbuft]|rb|br|rf|fr|rt|tr)?(?:\"{3}|'{3}|["']))
    |(?P<word>\w+)|(?P<mark>.)""",
    re.X | re.I,
)
_PLAIN_END: Final = {
    '"': re.compile(r'[^"\\\n]*(?:\\(?:.|\n)[^"\\\n]*)*"'),
    "'": re.compile(r"[^'\\\n]*(?:\\(?:.|\n)[^'\\\n]*)*'"),
    '"""': re.compile(r'[^"\\]*(?:(?:\\(?:.|\n)|"(?!""))[^"\\]*)*"""'),
    "'''": re.compile(r"[^'\\]*(?:(?:\\(?:.|\n)|'(?!''))[^'\\]*)*'''"),
}
# What a brace does not start a field in: its own double, a named character, an escape.
_SKIPPED: Final = re.compile(r"\{\{|\}\}|\\N\{[^{}\n\"']*\}|\\(?:[^{}]|(?=[{}]))", re.S)
_RAW_SKIPPED: Final = re.compile(r"\{\{|\}\}|\\(?:[^{}]|(?=[{}]))", re.S)
_DEEPEST: Final = 20


class Token(NamedTuple):
    kind: str
    start: int
    end: int


class Older(NamedTuple):
    """The text in older words, and where the expressions in its strings stand."""

    text: str
    fields: list[tuple[int, int]]


class _Unread(Exception):
    """A string that never ends, or nests too deeply: not for this module to say."""


def older(text: str) -> Older | None:
    """None where a string is not closed, so that what the compiler said counts."""
    reader = _Reader(text)
    try:
        tokens = [token for token in reader.tokens(0, len(text)) if token.kind not in ("space", "comment")]
    except _Unread:
        return None
    changed = list(text)
    for string in tokens:
        if string.kind == "format":
            _make_plain(changed, string)
    _Statements(text, tokens, changed).run()
    return Older("".join(changed), reader.fields)


def _make_plain(changed: list[str], string: Token) -> None:
    """A string of as many lines without anything in it that counts."""
    quote = changed[string.end - 1]
    _fill(changed, string.start, string.end, "x")
    changed[string.start] = changed[string.end - 1] = quote


def _fill(changed: list[str], start: int, end: int, mark: str) -> None:
    """The same character all over; a line that ends inside goes on in the next."""
    for at in range(start, end):
        if changed[at] != "\n":
            changed[at] = mark
        elif at > start:
            changed[at - 1] = "\\"


class _Reader:
    """Cuts Python into tokens, with strings of the newer kind taken as wholes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: list[tuple[int, int]] = []
        self.deep = 0

    def tokens(self, at: int, end: int) -> Iterator[Token]:
        while at < end:
            token = self._token(at)
            yield token
            at = token.end

    def _token(self, at: int) -> Token:
        match = _TOKEN.match(self.text, at)
        if match is None:
            raise _Unread
        if match.lastgroup != "quote":
            return Token(match.lastgroup or "", at, match.end())
        prefix = match[0].rstrip("\"'").lower()
        quote = match[0][len(prefix) :]
        if "f" in prefix or "t" in prefix:
            return Token("format", at, self._format_end(match.end(), quote, raw="r" in prefix))
        closed = _PLAIN_END[quote].match(self.text, match.end())
        if closed is None:
            raise _Unread
        return Token("string", at, closed.end())

    def _format_end(self, at: int, quote: str, *, raw: bool) -> int:
        text = self.text
        while at < len(text):
            if text.startswith(quote, at):
                return at + len(quote)
            skipped = (_RAW_SKIPPED if raw else _SKIPPED).match(text, at)
            if skipped:
                at = skipped.end()
            elif text[at] == "{":
                at = self._field_end(at + 1, quote)
            elif text[at] == "\n" and len(quote) == 1:
                break
            else:
                at += 1
        raise _Unread

    def _field_end(self, start: int, quote: str) -> int:
        self.deep += 1
        if self.deep > _DEEPEST:
            raise _Unread
        depth, at = 0, start
        while at < len(self.text):
            token = self._token(at)
            mark = self.text[at : token.end] if token.kind == "mark" else ""
            if depth == 0 and (mark in ("}", ":") or self._converts(at)):
                self.fields.append((start, at))
                self.deep -= 1
                return self._spec_end(at, quote)
            depth += (mark in ("(", "[", "{")) - (mark in (")", "]", "}"))
            if mark and depth < 0:
                break
            at = token.end
        raise _Unread

    def _converts(self, at: int) -> bool:
        return self.text[at] == "!" and self.text[at + 1 : at + 2] != "="

    def _spec_end(self, at: int, quote: str) -> int:
        """After the brace that closes a field: past `!r` and `:>{width}`."""
        text = self.text
        while at < len(text) and text[at] != "}":
            if text[at] == "{":
                at = self._field_end(at + 1, quote)
            elif text.startswith(quote, at) or (text[at] == "\n" and len(quote) == 1):
                raise _Unread
            else:
                at += 1
        return at + 1


class _Statements:
    """Blanks out what only newer statements have."""

    def __init__(self, text: str, tokens: list[Token], changed: list[str]) -> None:
        self.text = text
        self.tokens = tokens
        self.changed = changed

    def run(self) -> None:
        starts = True
        for index, token in enumerate(self.tokens):
            word = self._word(index)
            if word in ("def", "class") and self._word(index + 2) == "[":
                self._blank(index + 2)
            elif word == "type" and starts and self._is_alias(index):
                self.changed[token.start : token.end] = "x=0;"
                if self._word(index + 2) == "[":
                    self._blank(index + 2)
            elif word == "except":
                self._join(index + 1)
            starts = token.kind == "line" or word in (";", ":")

    def _word(self, index: int) -> str:
        if index >= len(self.tokens):
            return ""
        return self.text[self.tokens[index].start : self.tokens[index].end]

    def _is_alias(self, index: int) -> bool:
        return self._word(index + 1).isidentifier() and self._word(index + 2) in ("=", "[")

    def _blank(self, index: int) -> None:
        depth = 0
        for token in self.tokens[index:]:
            mark = self.text[token.start : token.end] if token.kind == "mark" else ""
            depth += (mark in ("[", "(")) - (mark in ("]", ")"))
            if depth == 0:
                _fill(self.changed, self.tokens[index].start, token.end, " ")
                return

    def _join(self, index: int) -> None:
        """`except A, B:` names one expression in older words: `A | B`."""
        depth = 0
        commas: list[int] = []
        for at in range(index, len(self.tokens)):
            word = self._word(at)
            if depth == 0 and (word in (":", "as") or self.tokens[at].kind == "line"):
                if word == ":":
                    for comma in commas:
                        self.changed[comma] = "|"
                return
            depth += (word in ("(", "[")) - (word in (")", "]"))
            if word == "," and depth == 0:
                commas.append(self.tokens[at].start)

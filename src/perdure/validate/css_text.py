"""CSS: blocks, declarations, strings and comments, read by the rules that all style sheets share.

A browser skips what it does not know, so unknown properties and at-rules are fine. What is reported cannot be
meant: a block that does not end, a declaration without ':' or one that runs into the next.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from perdure.validate.balance import unbalanced
from perdure.validate.layout import Lines
from perdure.validate.report import Problem, shown

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|<!--|-->)|(?P<comment>/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)|(?P<loose>/\*.*)
    |(?P<url>url\(\s*(?!["'\s])[^()"'\n]*\))
    |(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')|(?P<quote>["'])
    |(?P<mark>[{}()\[\];:,])|(?P<word>(?:\\[^\n]|[-\w@#.%!*+&>~=$|^\\?<]|/(?!\*))+)|(?P<other>.)""",
    re.S | re.X | re.I,
)
_PROPERTY: Final = re.compile(r"[*_]?(?:--[\w\\-]+|-?[a-zA-Z_][\w-]*)")
Token = tuple[str, str, int]


def check_css(text: str) -> list[Problem]:
    lines = Lines(text.removeprefix("\ufeff"))
    tokens: list[Token] = []
    for match in _TOKEN.finditer(lines.text):
        kind = match.lastgroup or ""
        if kind == "loose":
            return [Problem(*lines.place(match.start()), "the comment opened here is never closed")]
        if kind == "quote":
            return [Problem(*lines.place(match.start()), "a string that is not closed on its line")]
        if kind not in ("space", "comment"):
            tokens.append((kind, match[0], match.start()))
    marks = [(text, at) for kind, text, at in tokens if kind == "mark" and text in "(){}[]"]
    conflicts = [
        Problem(*lines.place(at), "a mark of a merge conflict")
        for _, text, at in tokens
        if text in ("<<<<<<<", ">>>>>>>") and lines.first_on_line(lines.place(at))
    ]
    return conflicts or unbalanced(marks, lines) or _Reader(tokens, lines).run()


class _Reader:
    """Splits balanced tokens into items that end with ';' or a block."""

    def __init__(self, tokens: list[Token], lines: Lines) -> None:
        self.tokens = tokens
        self.lines = lines
        self.found: list[Problem] = []
        self.blocks: list[str] = []

    def run(self) -> list[Problem]:
        item: list[Token] = []
        depth = 0
        for token in self.tokens:
            text = token[1] if token[0] == "mark" else ""
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text, 0)
            if depth or text not in (";", "{", "}"):
                item.append(token)
                continue
            if text == "{":
                self._open(item, token)
            else:
                self._item(item, token)
                if text == "}":
                    self.blocks.pop()
            item = []
        self._item(item, None)
        return self.found

    def _open(self, head: list[Token], brace: Token) -> None:
        custom = bool(head) and head[0][1].startswith("--")
        opaque = custom or bool(self.blocks and self.blocks[-1] == "opaque")
        if not head and not opaque:
            self._say(brace, "a block without a selector before its '{'")
        elif not opaque:
            self._run_on_head(head)
            self._selectors(head, brace)
        self.blocks.append("opaque" if opaque else "block")

    def _selectors(self, head: list[Token], brace: Token) -> None:
        """A rule that takes no block, or a list of selectors with nothing at a comma."""
        if head[0][1].lower() in ("@import", "@charset", "@namespace"):
            last = [token for token in head if self._line(token) == self._line(head[0])][-1]
            self._say(last, f"expected ';' after this {head[0][1].lower()}", end=True)
        elif not head[0][1].startswith("@"):
            for before, after in pairwise([head[0], *head, brace]):
                if before[1] == "," and after[1] in (",", "{"):
                    self._say(before, f"expected a selector after ',', found {shown(after[1])}")

    def _run_on_head(self, head: list[Token]) -> None:
        """A selector after a declaration on an earlier line means that a ';' or '}' is missing there."""
        if not self.blocks or head[0][1].startswith("@") or len(head) < 3:
            return
        if (
            _PROPERTY.fullmatch(head[0][1])
            and head[1][1] == ":"
            and self._line(head[2]) == self._line(head[0])
        ):
            later = [t for t in head if self._line(t) > self._line(head[0])]
            spaced = self.lines.text[head[1][2] + 1 : head[1][2] + 2].isspace()
            if later and spaced:
                self._say(
                    head[len(head) - len(later) - 1], "expected ';' or '}' after this declaration", end=True
                )

    def _item(self, item: list[Token], end: Token | None) -> None:
        if not item or (self.blocks and self.blocks[-1] == "opaque"):
            return
        if item[0][1].startswith("@"):
            self._run_on_rule(item)
            return
        if not self.blocks:
            what = shown(end[1]) if end else "the end of the file"
            self._say(item[0], f"expected a rule with '{{', found {what}")
            return
        if item[0][1].startswith("--"):
            return
        if not _PROPERTY.fullmatch(item[0][1]):
            self._say(item[0], f"expected a property, found {shown(item[0][1])}")
        elif len(item) < 2 or item[1][1] != ":":
            self._say(item[0], "expected ':' after the property")
        elif item[2:] and item[2][1] == ":":
            self._say(item[2], "found ':' where a value is expected")
        elif len(item) == 2:
            self._say(item[1], "a declaration without a value")
        else:
            self._value(item)

    def _run_on_rule(self, item: list[Token]) -> None:
        """A rule that takes no block, with another at the start of a later line."""
        for before, after in pairwise(item):
            if after[1].startswith("@") and self._line(after) > self._line(before):
                self._say(before, f"expected ';' before {shown(after[1])}", end=True)
                return

    def _value(self, item: list[Token]) -> None:
        """A second property and ':' on a later line, or nothing but ':' between, is a missing ';'."""
        depth = 0
        for index, (kind, text, _) in enumerate(item[2:], 2):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text, 0) if kind == "mark" else 0
            if text != ":" or depth or item[index - 1][0] != "word":
                continue
            if self._line(item[index - 1]) > self._line(item[index - 2]) and item[index - 2][1] != ",":
                self._say(item[index - 2], "expected ';' after this declaration", end=True)
                return
            if item[index - 1][1].lower() != "progid" and index > 3:
                self._say(item[index], "found ':' in a value: a ';' may be missing before it")
                return

    def _line(self, token: Token) -> int:
        return self.lines.place(token[2]).line

    def _say(self, token: Token, message: str, *, end: bool = False) -> None:
        self.found.append(Problem(*self.lines.place(token[2] + (len(token[1]) if end else 0)), message))

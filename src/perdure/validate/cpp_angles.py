"""Angle brackets of C++ that are left open where nothing but a bracket can have been meant.

A `<` is also an operator, so only three places are looked at: the parameters of a template that end with their line,
the bases of a class, and casts.
"""

from __future__ import annotations

from typing import Final

from perdure.validate.c_tokens import Token
from perdure.validate.layout import Lines
from perdure.validate.report import Problem

_CASTS: Final = frozenset(("static_cast", "dynamic_cast", "const_cast", "reinterpret_cast"))
_AFTER_TEMPLATE: Final = frozenset(
    (
        "class",
        "struct",
        "union",
        "using",
        "static",
        "inline",
        "constexpr",
        "void",
        "explicit",
        "auto",
        "friend",
    )
)
_MOST: Final = 200


def open_angles(tokens: list[Token], partner: dict[int, int], lines: Lines) -> list[Problem]:
    found: list[Problem] = []
    for index, token in enumerate(tokens):
        if token.text == "template" and _leaves_line_open(tokens, partner, index, lines):
            found.append(Problem(*lines.place(token.at), "the '<' of this template has no '>'"))
        elif token.text in _CASTS and _is_open_cast(tokens, partner, index):
            found.append(Problem(*lines.place(token.at), f"the '<' of this {token.text} has no '>'"))
        elif token.text in ("class", "struct") and (at := _open_base(tokens, partner, index)):
            found.append(Problem(*lines.place(tokens[at].at), "a '<' before this '{' has no '>'"))
    return found[:20]


def _leaves_line_open(tokens: list[Token], partner: dict[int, int], index: int, lines: Lines) -> bool:
    """Whether the line ends with a word inside the brackets, and the next starts what the template is of."""
    if index + 1 >= len(tokens) or tokens[index + 1].text != "<":
        return False
    line = lines.place(tokens[index].at).line
    depth, at = 0, index + 1
    while at < len(tokens) and at - index < _MOST and lines.place(tokens[at].at).line == line:
        depth += _step(tokens, at)
        if depth <= 0:
            return False
        at = partner.get(at, at) + 1
    if at >= len(tokens) or at - index >= _MOST or tokens[at - 1].kind != "word":
        return False
    return tokens[at].text in _AFTER_TEMPLATE and tokens[at - 1].text not in ("class", "typename")


def _is_open_cast(tokens: list[Token], partner: dict[int, int], index: int) -> bool:
    """Whether a cast comes to the end of its statement, or of what it stands in, before its '>'."""
    if index + 1 >= len(tokens) or tokens[index + 1].text != "<":
        return False
    depth, at = 0, index + 1
    while at < len(tokens) and at - index < _MOST:
        if tokens[at].text in (";", ")", "}", "]"):
            return True
        depth += _step(tokens, at)
        if depth == 0:
            return False
        at = partner.get(at, at) + 1
    return False


def _open_base(tokens: list[Token], partner: dict[int, int], index: int) -> int | None:
    """The brace of a class whose bases open more brackets than they close."""
    depth, at = 0, index + 1
    has_bases = False
    while at < len(tokens) and at - index < _MOST:
        text = tokens[at].text
        if text in (";", "(", ")", "=", "[", ","):
            return None
        if text == "{":
            after = tokens[partner[at] + 1].text if partner.get(at, -2) + 1 < len(tokens) else ""
            return at if has_bases and depth > 0 and after not in (">", ",", ")") else None
        has_bases = has_bases or (text == ":" and depth == 0)
        depth += _step(tokens, at)
        if depth < 0:
            return None
        at += 1
    return None


def _step(tokens: list[Token], at: int) -> int:
    """How a token changes the depth; arrows and comparisons do not."""
    text = tokens[at].text
    before = tokens[at - 1]
    touches = before.at + len(before.text) == tokens[at].at
    if text == ">" and touches and before.text in ("-", "="):
        return 0
    return {"<": 1, ">": -1}.get(text, 0)

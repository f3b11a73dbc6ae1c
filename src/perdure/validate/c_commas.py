"""Comma expressions of C++ whose first part assigns, `(a = f(x), &a)`, put in words that the grammar can read.

For the grammar an assignment and a comma in parentheses may only begin a fold, so it stops at the comma. An operator
in place of the `=` lets it go on, and a fold, a call and a parameter with its default stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perdure.validate.c_tokens import Token

_BEFORE_VALUE: Final = frozenset(
    (
        "return",
        "throw",
        "case",
        "and",
        "or",
        "not",
        "else",
        "do",
        "delete",
        "co_return",
        "co_yield",
        "co_await",
    )
)
_BEFORE_STATEMENT: Final = ("if", "for", "while")
_COMPARES: Final = ("=", "!", "<", ">")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%", "&", "|", "^")


def commas_reworded(text: str, tokens: list[Token], partner: dict[int, int]) -> str:
    """The text with the assignments in comma expressions turned into arithmetic of the same length."""
    letters = list(text)
    for opener in range(len(tokens)):
        if tokens[opener].text != "(" or opener not in partner or not _begins_value(tokens, partner, opener):
            continue
        top = list(_top_level(tokens, partner, opener))
        if any(tokens[index].text == "," for index in top):
            for index in top:
                _reword(tokens, index, letters)
    return "".join(letters)


def _begins_value(tokens: list[Token], partner: dict[int, int], opener: int) -> bool:
    """Whether a parenthesis stands where a value begins, so that it is no call and no list of parameters."""
    before = tokens[opener - 1] if opener else None
    if before is None or before.kind == "string":
        return False
    if before.kind == "word":
        return before.text in _BEFORE_VALUE
    if before.text == ")":
        head = partner.get(opener - 1, 0)
        return head > 0 and tokens[head - 1].text in _BEFORE_STATEMENT
    return before.text not in ("]", ">")


def _top_level(tokens: list[Token], partner: dict[int, int], opener: int) -> Iterator[int]:
    """What stands directly in a pair of parentheses, not in a pair within it."""
    index = opener + 1
    while index < partner[opener]:
        yield index
        index = partner[index] + 1 if index in partner else index + 1


def _reword(tokens: list[Token], index: int, letters: list[str]) -> None:
    """`a = b` becomes `a ^ b`, and `a += b` becomes `a +  b`; a comparison is left alone."""
    token, before, after = tokens[index], tokens[index - 1], tokens[index + 1]
    if token.text != "=" or (after.text == "=" and after.at == token.at + 1) or after.text == "{":
        return
    touches = before.at == token.at - 1
    is_shift = before.text in ("<", ">") and tokens[index - 2].text == before.text
    if touches and (before.text in _ARITHMETIC or is_shift):
        letters[token.at] = " "
    elif not (touches and before.text in _COMPARES):
        letters[token.at] = "^"

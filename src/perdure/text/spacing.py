"""Finding a text whose spacing inside its lines differs: `b*12` where the file has `b * 12`.

Both sides must have the same tokens on the same lines, with the same indentation. Whitespace between two tokens may
then be longer, shorter, added or missing, except:

| where | rule |
|---|---|
| between two words, or two operators | it must be there in both or in neither: `not x` is not `notx`, `- -x` not `--x` |
| in quotes, which end on their line | it must be the same |
| behind a quote that does not end on its line | it must be the same |

The file keeps its own whitespace wherever `old` and `new` agree, so that only what the edit changes is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

_MOST_TOKENS: Final = 500  # bounds the search in a repetitive file, and the comparison of `old` with `new`
_MOST_PLACES: Final = 1000
_LOOKED_FOR: Final = 32  # tokens that must be somewhere before it is worth searching
_TOKEN: Final = re.compile(
    r"""(?P<quote>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\\n]|\\.)*`|["'`][^\n]*)
    |(?P<word>\w+)
    |(?P<bracket>[()\[\]{},;])
    |(?P<newline>\n)
    |(?P<operator>[^\w\s"'`()\[\]{},;]+)""",
    re.VERBOSE,
)
_OPERATOR: Final = r"[^\w\s\"'`()\[\]{},;]"


class Token(NamedTuple):
    kind: str
    text: str
    gap: str  # the whitespace before it

    def joins(self, other: Token) -> bool:
        """Whether the two would be read as one without whitespace between them: `f "x"` and `f"x"` differ."""
        if self.kind == "operator" or other.kind == "operator":
            return self.kind == other.kind
        return {self.kind, other.kind} <= {"word", "quote"}


class Place(NamedTuple):
    start: int
    end: int
    new: str


def find(content: str, old: str, new: str) -> list[Place]:
    """Every place of `old` with other spacing, and what replaces it, in order. Places may overlap."""
    wanted, tail = _tokens(old)
    replacement, new_tail = _tokens(new)
    words = sorted({token.text for token in wanted if token.kind in ("word", "quote")}, key=len)
    is_long = len(wanted) > _MOST_TOKENS or len(replacement) > _MOST_TOKENS
    if is_long or not words or any(word not in content for word in words[-_LOOKED_FOR:]):
        return []
    pattern = _pattern(wanted, tail)
    places: list[Place] = []
    at = 0
    while (match := pattern.search(content, at)) is not None:
        if len(places) == _MOST_PLACES:
            return []
        at = match.start() + 1
        have, have_tail = _tokens(match.group())
        if [token.text for token in have] == [token.text for token in wanted] and not _in_quotes(
            content, match.start()
        ):
            end = have_tail if new_tail == tail else new_tail
            places.append(Place(*match.span(), _merge(wanted, have, replacement) + end))
    return places


def _tokens(text: str) -> tuple[list[Token], str]:
    """The tokens of a text, and the whitespace behind the last."""
    found: list[Token] = []
    at = 0
    for match in _TOKEN.finditer(text):
        found.append(Token(str(match.lastgroup), match.group(), text[at : match.start()]))
        at = match.end()
    return found, text[at:]


def _pattern(tokens: list[Token], tail: str) -> re.Pattern[str]:
    parts = [re.escape(tokens[0].gap), _edge(tokens[0], "(?<!%s)"), re.escape(tokens[0].text)]
    for before, token in pairwise(tokens):
        parts += (_gap(before, token), re.escape(token.text))
    parts += (_edge(tokens[-1], "(?!%s)"), r"[^\S\n]*" if tail else "")
    return re.compile("".join(parts))


def _gap(before: Token, token: Token) -> str:
    if before.kind == "newline":
        return re.escape(token.gap)
    if token.joins(before):
        return r"[^\S\n]+" if token.gap else ""
    return r"[^\S\n]*"


def _edge(token: Token, form: str) -> str:
    """A token is found whole: not `x` in `xy`, nor `=` in `==`."""
    match token.kind:
        case "word":
            return form % r"\w"
        case "operator":
            return form % _OPERATOR
        case _:
            return ""


def _in_quotes(content: str, start: int) -> bool:
    """Whether a place begins inside quotes: there, whitespace has a meaning."""
    line = content.rfind("\n", 0, start) + 1
    end = content.find("\n", start)
    return any(
        match.lastgroup == "quote" and match.start() < start - line < match.end()
        for match in _TOKEN.finditer(content[line : end if end >= 0 else len(content)])
    )


def _merge(old: list[Token], have: list[Token], new: list[Token]) -> str:
    """The text of `new`, with the file's whitespace where `new` has the same as `old`."""
    parts: list[str] = []
    before: Token | None = None
    for token, partner in zip(new, _partners(old, new), strict=True):
        gap = token.gap
        if partner is not None and gap == old[partner].gap and not (before and token.joins(before)):
            gap = have[partner].gap
        parts += (gap, token.text)
        before = token
    return "".join(parts)


def _partners(old: list[Token], new: list[Token]) -> Iterator[int | None]:
    """For each token of `new`, the one of `old` that it keeps or replaces."""
    from difflib import SequenceMatcher  # here, since a worker starts without it

    texts = [token.text for token in old], [token.text for token in new]
    for _, start, end, first, last in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        for index in range(last - first):
            yield start + index if start + index < end else None

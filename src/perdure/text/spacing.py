"""Find a text whose spacing inside its lines differs: `b*12` where the file has `b * 12`.

Both sides must have the same tokens on the same lines, with the same indentation. Whitespace between two tokens may
then be longer, shorter, added or missing, except:

| where | rule |
|---|---|
| between two words, or two operators | it must be there in both or in neither: `not x` is not `notx`, `- -x` not `--x` |
| in quotes, which end on their line | it must be the same |
| behind a quote that does not end on its line | it must be the same |

The file keeps its own whitespace wherever `old` and `new` agree, so that an edit changes nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

_MAX_TOKENS: Final = 500  # bounds the search in a repetitive file, and the comparison of `old` with `new`
_MAX_MATCHES: Final = 1000
_MAX_PREFILTER_TOKENS: Final = 32  # tokens that the content must hold before the pattern is searched
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
        """Whether the two would be one token without whitespace between them: `f "x"` and `f"x"` differ."""
        if self.kind == "operator" or other.kind == "operator":
            return self.kind == other.kind
        return {self.kind, other.kind} <= {"word", "quote"}


class Replacement(NamedTuple):
    """`text` replaces the characters `start:end` of a content."""

    start: int
    end: int
    text: str


def find_replacements(content: str, old: str, new: str) -> list[Replacement]:
    """Return a replacement for every match of `old` with other spacing, in order. Matches may overlap."""
    old_tokens, old_tail = _tokenize(old)
    new_tokens, new_tail = _tokenize(new)
    words = sorted({token.text for token in old_tokens if token.kind in ("word", "quote")}, key=len)
    is_too_long = len(old_tokens) > _MAX_TOKENS or len(new_tokens) > _MAX_TOKENS
    if is_too_long or not words or any(word not in content for word in words[-_MAX_PREFILTER_TOKENS:]):
        return []
    pattern = _compile_pattern(old_tokens, old_tail)
    old_texts = [token.text for token in old_tokens]
    replacements: list[Replacement] = []
    at = 0
    while (match := pattern.search(content, at)) is not None:
        if len(replacements) == _MAX_MATCHES:
            return []
        at = match.start() + 1
        tokens, tail = _tokenize(match.group())
        if [token.text for token in tokens] == old_texts and not _is_in_quotes(content, match.start()):
            text = _merge_spacing(old_tokens, tokens, new_tokens) + (
                tail if new_tail == old_tail else new_tail
            )
            replacements.append(Replacement(*match.span(), text))
    return replacements


def _tokenize(text: str) -> tuple[list[Token], str]:
    """Return the tokens of a text, and the whitespace behind the last one."""
    tokens: list[Token] = []
    at = 0
    for match in _TOKEN.finditer(text):
        tokens.append(Token(str(match.lastgroup), match.group(), text[at : match.start()]))
        at = match.end()
    return tokens, text[at:]


def _compile_pattern(tokens: list[Token], tail: str) -> re.Pattern[str]:
    first, last = tokens[0], tokens[-1]
    parts = [re.escape(first.gap), _assert_boundary(first, "(?<!%s)"), re.escape(first.text)]
    for previous, token in pairwise(tokens):
        parts += (_gap_pattern(previous, token), re.escape(token.text))
    parts += (_assert_boundary(last, "(?!%s)"), r"[^\S\n]*" if tail else "")
    return re.compile("".join(parts))


def _gap_pattern(previous: Token, token: Token) -> str:
    if previous.kind == "newline":
        return re.escape(token.gap)
    if token.joins(previous):
        return r"[^\S\n]+" if token.gap else ""
    return r"[^\S\n]*"


def _assert_boundary(token: Token, assertion: str) -> str:
    """Return a lookaround that matches a token only as a whole: not `x` in `xy`, nor `=` in `==`."""
    match token.kind:
        case "word":
            return assertion % r"\w"
        case "operator":
            return assertion % _OPERATOR
        case _:
            return ""


def _is_in_quotes(content: str, start: int) -> bool:
    """Whether a match begins inside quotes, where whitespace has a meaning."""
    line_start = content.rfind("\n", 0, start) + 1
    line_end = content.find("\n", start)
    return any(
        match.lastgroup == "quote" and match.start() < start - line_start < match.end()
        for match in _TOKEN.finditer(content[line_start : line_end if line_end >= 0 else len(content)])
    )


def _merge_spacing(old: list[Token], file: list[Token], new: list[Token]) -> str:
    """Return the text of `new`, with the file's whitespace where `new` has the same whitespace as `old`."""
    parts: list[str] = []
    previous: Token | None = None
    for token, old_index in zip(new, _map_tokens(old, new), strict=True):
        gap = token.gap
        if old_index is not None and gap == old[old_index].gap and not (previous and token.joins(previous)):
            gap = file[old_index].gap
        parts += (gap, token.text)
        previous = token
    return "".join(parts)


def _map_tokens(old: list[Token], new: list[Token]) -> Iterator[int | None]:
    """Yield, for each token of `new`, the index of the token of `old` that it keeps or replaces."""
    from difflib import SequenceMatcher  # imported on first use: most workers never need it

    texts = [token.text for token in old], [token.text for token in new]
    matcher = SequenceMatcher(None, *texts, autojunk=False)
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        for index in range(old_start, old_start + new_end - new_start):
            yield index if index < old_end else None

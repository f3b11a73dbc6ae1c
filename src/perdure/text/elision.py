"""Detect placeholders that stand for left-out content, such as "rest of file unchanged".

| rule | matches |
|---|---|
| `trimmed_marker` | `[Trimmed input`, `<unchanged>`, `[… 40 lines omitted …]`: a program truncated the text |
| `placeholder` | a comment, or a line of its own, that says that code is left out |
| `ellipsis_comment` | a comment that holds an ellipsis and nothing else |
| `shrunk_ellipsis` | any other ellipsis for lines, if the text also shrank to less than half |

A line that the old content has as well is no elision. Neither are words or dots that have a meaning in their context:
a Python body, a spread, a sentence that trails off or continues in the next comment line, an example inside a comment
or a document. A caller can override the detection.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final, Literal

import msgspec

from perdure.text import lines

Rule = Literal["trimmed_marker", "placeholder", "ellipsis_comment", "shrunk_ellipsis"]

MAX_ELISIONS: Final = 20
_MAX_LENGTH: Final = 240  # a placeholder is short
_MIN_SHRUNK_LINES: Final = 10  # a smaller file cannot be said to have shrunk


class Elision(msgspec.Struct, frozen=True):
    """The number, from one, of a line of the new content, and the rule it matches. Never the line's text."""

    line: int
    rule: Rule


_DOTS = r"(?:\.{3,}|…)"
_CODE_NOUNS = (
    r"(?:code|codes|file|files|functions?|methods?|class|classes|implementations?|contents?|components?"
    r"|modules?|scripts?|imports?|logic|body|document|text|sections?|tests?|test cases?|config|configuration"
    r"|definitions?|fields?|properties|routes?|handlers?|styles?|rules?|options?|settings?|items?|entries"
    r"|lines?|helpers?|variables?|constants?|cases?|setup|template|markup|page|program|source|schema|data)"
)
_UNCHANGED = (
    r"(?:unchanged|untouched|unmodified|omitted|elided|truncated|not shown|identical|intact"
    r"|(?:the )?same(?: as (?:before|above|original|the original))?"
    r"|as[ -](?:before|is|it was|above|original)|exactly the same|here|goes here|follows?|continues?(?: here)?)"
)
_VERB = r"(?:(?:is|are|was|were|remains?|stays?|goes|kept|left|will remain|should remain) )?"
_EXPLICIT = re.compile(
    "|".join(
        (
            rf"(?:\w+ )?(?:the )?(?:rest|remainder)(?: of (?:the |this |your |my )?(?:\w+ ){{0,2}}{_CODE_NOUNS})?"
            rf"(?: {_VERB}{_UNCHANGED})(?: for (?:brevity|clarity))?",
            rf"(?:the )?(?:rest|remainder) of (?:the |this |your |my )?(?:\w+ ){{0,2}}{_CODE_NOUNS}",
            rf"(?:all |the |keep |any )*(?:(?:existing|previous|remaining|original|other|above|following|current)"
            rf" )(?:\w+ ){{0,2}}{_CODE_NOUNS} {_VERB}{_UNCHANGED}",
            rf"(?:the )?{_CODE_NOUNS} (?:(?:is|are|remains?|stays?) )?(?:unchanged|the same(?: as before)?|as before)",
            r"everything else (?:is |remains |stays )?(?:unchanged|the same|as before|as is)",
            r"(?:keep|leave) (?:the )?(?:rest|remainder|existing code|everything else)"
            r"(?: of the \w+)?(?: (?:the same|unchanged|as is|as before|as-is))?",
            r"(?:same|unchanged|identical) (?:as|from) (?:before|the original|original|previous(?: version)?)",
            r"no (?:other )?changes? (?:here|needed here|below|above|to the rest(?: of the \w+)?)",
            r"(?:[\w ]{1,40} )?(?:omitted|truncated|elided|snipped|trimmed|shortened|hidden|removed)"
            r" for (?:brevity|clarity|space|conciseness|readability)",
            rf"(?:\d+ )?(?:more |other |remaining )*{_CODE_NOUNS} (?:omitted|truncated|elided|snipped|unchanged|not shown)",
            r"unchanged(?: code| lines?| content| part| section)?",
        )
    )
)
_IMPLICIT = re.compile(
    rf"(?:(?:all|the|your|and) )*(?:existing|previous|remaining|original|other|more|same|additional|further"
    rf"|unchanged|current|earlier|rest of) (?:\w+ ){{0,3}}(?:{_CODE_NOUNS}|unchanged|here)(?: {_VERB}{_UNCHANGED})?"
    rf"|(?:the )?(?:rest|remainder|remaining)(?: {_UNCHANGED})?"
    rf"|{_CODE_NOUNS} (?:here|goes here|continues?|omitted)"
)
_CODE_WORD = re.compile(r"\b(?:code|file|content|implementation)\b")
_LEFT_OUT = r"(?:trimmed|truncated|omitted|elided|snipped|unchanged|not shown|hidden|skipped|removed)"
_TRIMMED_MARKER = re.compile(
    rf"[\[<({{]\s{{0,3}}{_DOTS}?\s{{0,3}}(?:"
    rf"(?:trimmed|truncated) (?:input|output|content|text|file|code|lines?)\b"
    rf"|(?:input|output|content|contents|text|file|code|rest|remainder|middle|section)[ _-]{_LEFT_OUT}\b"
    rf"|(?:[\d,]+|several|many|some|more) (?:more )?(?:lines?|chars|characters|bytes|tokens) {_LEFT_OUT}\b"
    rf"|[\d,]+ (?:more|other|further|additional|remaining) (?:lines?|chars|characters|bytes|tokens)\s*{_DOTS}?\s*[\]>)}}]"
    rf"|{_LEFT_OUT}\s{{0,3}}{_DOTS}\s{{0,3}}[\]>)}}]"
    rf"|(?:rest[ _-]of[ _-](?:the[ _-])?\w+[ _-])?(?:unchanged|snip|snipped|elided)\s*/?[\]>)}}]"
    r")",
    re.IGNORECASE,
)
_COMMENT_START = r"(?://+|\#+|--+|;+|%+|/\*+|<!--|\{/\*|\(\*|\{-|REM\b|@rem\b|::|dnl\b|'(?!'))"
_COMMENT = re.compile(rf"\s*{_COMMENT_START}", re.IGNORECASE)
_TRAILING_COMMENT = re.compile(r"\s(?:\#|//|--|/\*)\s*\S.*$")
_DOTS_COMMENT = re.compile(
    rf"\s*{_COMMENT_START}\s*[(\[{{]?\s*{_DOTS}[.…\s]*[)\]}}]?\s*(?:\*+/\}}?|-->|\*\)|-\}})?\s*",
    re.IGNORECASE,
)
_RULER: Final = "......."
_BARE_DOTS = re.compile(rf"\s*{_DOTS}\s*")
_PLAIN_WORDS = re.compile(r"[\w\s'’-]+")  # words and nothing that makes a line code, or a sentence
_LEADING_DOTS_COMMENT = re.compile(rf"[\W_]*?{_DOTS}")
_LEADING_DOTS_LINE = re.compile(rf"{_DOTS}\s")
_TRAILING_DOTS = re.compile(rf"{_DOTS}[\W_]*$")
_PUNCTUATION: Final = " \t\r.…*/#-;%<>!(){}[]\"'`~_=:|\\,"

# Only lines that hold one of these are examined, which makes the search in a large file fast.
_KEYWORDS: Final = (
    *("...", "…", "unchanged", "untouched", "unmodified", "rest ", "remainder", "remaining", "existing"),
    *("previous", "original", "omitted", "truncated", "trimmed", "elided", "snip", "not shown", "hidden"),
    *("skipped", "removed", "identical", "intact", "same", "as before", "as is", "as-is", "everything else"),
    *("more line", "more char", "more byte", "more token"),
    *("no change", "no other change", "for brevity", "for clarity", "for space", "for conciseness"),
)

_LineKind = Rule | Literal["statement", "dots"]
"""What a line is by itself: an elision by one rule, or one that depends on the lines around it."""


def has_no_keyword(data: bytes) -> bool:
    """Whether a file certainly has no elision. A fast test on the bytes; False means that `find_elisions` decides."""
    return data.isascii() and _keyword_test()(data)


@cache
def _keyword_test() -> Callable[[bytes], bool]:
    from perdure.risk.engine import FirstMatches

    keywords = [re.escape(keyword).encode() for keyword in _KEYWORDS if keyword.isascii()]
    scan = FirstMatches(keywords, caseless=True)
    return lambda data: not scan.ends(data)


def find_elisions(new: str, old: str = "") -> list[Elision]:
    """Return the lines of `new` that stand for left-out content and that `old` does not have."""
    line_starts = _find_lines_with_keyword(new)
    if not line_starts:
        return []
    old_lines = Counter(
        old[start : lines.find_end(old, start)].strip() for start in _find_lines_with_keyword(old)
    )
    has_shrunk = old.count("\n") >= _MIN_SHRUNK_LINES and 2 * len(new) < len(old)
    fences = _find_lines_starting_with(new, "```") if "```" in new else []
    kinds: dict[str, _LineKind | None] = {}
    elisions: list[Elision] = []
    number, at = 1, 0
    for start in line_starts:
        number, at = number + new.count("\n", at, start), start
        line = new[start : lines.find_end(new, start)]
        if line not in kinds:
            kinds[line] = _classify_line(line)
        is_fenced = bisect_left(fences, start) % 2 == 1
        rule = _apply_context(kinds[line], new, start, is_fenced=is_fenced, has_shrunk=has_shrunk)
        if rule is None:
            continue
        old_lines[line.strip()] -= 1
        if old_lines[line.strip()] < 0:
            elisions.append(Elision(number, rule))
        if len(elisions) == MAX_ELISIONS:
            break
    return elisions


def _find_lines_with_keyword(text: str) -> list[int]:
    """Return the offsets at which the lines begin that hold a keyword."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter whose lower case is longer would shift all offsets behind it
        lowered = "".join(c if len(c.lower()) > 1 else c.lower() for c in text)
    starts: set[int] = set()
    for keyword in _KEYWORDS:
        at = 0
        while (hit := lowered.find(keyword, at)) >= 0:
            starts.add(max(text.rfind("\n", at, hit) + 1, at))
            at = lines.find_end(text, hit) + 1
    return sorted(starts)


def _find_lines_starting_with(text: str, mark: str) -> list[int]:
    starts: list[int] = []
    at = 0
    while (hit := text.find(mark, at)) >= 0:
        start = max(text.rfind("\n", at, hit) + 1, at)
        if not text[start:hit].strip():
            starts.append(start)
        at = lines.find_end(text, hit) + 1
    return starts


# --- a line by itself ----------------------------------------------------------------------------------------


def _classify_line(line: str) -> _LineKind | None:
    if _has_trimmed_marker(line):
        return "trimmed_marker"
    if len(line) > _MAX_LENGTH:
        return None
    if _DOTS_COMMENT.fullmatch(line) and _RULER not in line:
        return "ellipsis_comment"
    kind = _classify_words(line)
    if kind is not None:
        return kind
    has_dots = _BARE_DOTS.fullmatch(line) or (_COMMENT.match(line) and re.search(_DOTS, line))
    return "dots" if has_dots else None


def _has_trimmed_marker(line: str) -> bool:
    for hit in _TRIMMED_MARKER.finditer(line):
        before = line[max(hit.start() - _MAX_LENGTH, 0) : hit.start()]
        if before.strip() and any(before.count(quote) % 2 for quote in "\"'`"):
            continue  # inside a string literal
        if not before.strip(_PUNCTUATION) or hit.group()[1:].lstrip().lower().startswith("trimmed input"):
            return True
    return False


def _classify_words(line: str) -> Literal["placeholder", "statement"] | None:
    text = line.strip()
    if text.startswith("*"):
        return None  # an example inside a block comment
    trailing_comment = None if _COMMENT.match(line) else _TRAILING_COMMENT.search(line)
    if trailing_comment is not None and not _extract_words(line[: trailing_comment.start()]):
        text = trailing_comment[0].strip()
    words = _extract_words(text)
    if not words or len(words) > _MAX_LENGTH // 2:
        return None
    is_comment = _COMMENT.match(text) is not None
    is_bracketed = text[0] in "[<({" and text[-1] in "]>)}"
    leading_dots = (_LEADING_DOTS_COMMENT if is_comment or is_bracketed else _LEADING_DOTS_LINE).match(text)
    trailing_dots = _TRAILING_DOTS.search(text)
    if _EXPLICIT.fullmatch(words):
        if is_bracketed or leading_dots or trailing_dots or trailing_comment:
            return "placeholder"
        return "statement" if is_comment or (_PLAIN_WORDS.fullmatch(text) and " of " in words) else None
    if not _IMPLICIT.fullmatch(words):
        return None
    if is_comment or is_bracketed:
        return "placeholder" if leading_dots or (trailing_dots and _CODE_WORD.search(words)) else None
    return "placeholder" if leading_dots and trailing_dots else None


def _extract_words(text: str) -> str:
    """Return the words of a line in lower case, without punctuation."""
    return re.sub(r"[\s.…,()\[\]*'’]+", " ", text.strip(_PUNCTUATION)).strip().lower()


# --- a line in its context -----------------------------------------------------------------------------------


def _apply_context(
    kind: _LineKind | None, text: str, start: int, *, is_fenced: bool, has_shrunk: bool
) -> Rule | None:
    if kind is None:
        return None
    line_above = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    match kind:
        case "statement":
            # Below another comment line it may be the end of a sentence.
            return "placeholder" if has_shrunk or not _COMMENT.match(line_above) else None
        case "ellipsis_comment" if not has_shrunk:
            end = lines.find_end(text, start)
            line_below = text[end + 1 : lines.find_end(text, end + 1)]
            is_inside_comment = _COMMENT.match(line_above) and _COMMENT.match(line_below)
            return None if is_fenced or is_inside_comment else kind
        case "dots":
            is_body = text[start : start + 1].isspace() or line_above.rstrip().endswith(":")
            is_bare = _BARE_DOTS.fullmatch(text, start, lines.find_end(text, start))
            return "shrunk_ellipsis" if has_shrunk and not (is_bare and is_body) else None
        case _:
            return kind

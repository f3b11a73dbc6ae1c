"""Content that only stands for content: "rest of file unchanged", where the rest of the file should be.

| rule | what is found |
|---|---|
| `trimmed_marker` | `[Trimmed input`, `<unchanged>`, `[… 40 lines omitted …]`: something cut the text |
| `placeholder` | a comment, or a line of its own, that says that code is left out |
| `ellipsis_comment` | a comment that holds an ellipsis and nothing else |
| `shrunk_ellipsis` | any other ellipsis for lines, where the text also shrank to less than half |

A line that the old content has as well is never evidence, and neither are words or dots that mean something
where they stand: a Python body, a spread, a sentence that trails off or goes on in the next comment line, an
example inside a comment or a document. What is found can be forced through.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final, Literal

import msgspec

from perdure.risk.runs import Scan
from perdure.text.lines import line_end

Rule = Literal["trimmed_marker", "placeholder", "ellipsis_comment", "shrunk_ellipsis"]

MAX_EVIDENCE: Final = 20
_LONGEST: Final = 240  # a placeholder is short
_SHRUNK_LINES: Final = 10  # below this a file is too small to have shrunk suddenly


class Evidence(msgspec.Struct, frozen=True):
    """A line of the new content, from one, and the rule it breaks. Never what it says."""

    line: int
    rule: Rule


_DOTS = r"(?:\.{3,}|…)"
_THINGS = (
    r"(?:code|codes|file|files|functions?|methods?|class|classes|implementations?|contents?|components?"
    r"|modules?|scripts?|imports?|logic|body|document|text|sections?|tests?|test cases?|config|configuration"
    r"|definitions?|fields?|properties|routes?|handlers?|styles?|rules?|options?|settings?|items?|entries"
    r"|lines?|helpers?|variables?|constants?|cases?|setup|template|markup|page|program|source|schema|data)"
)
_SAME = (
    r"(?:unchanged|untouched|unmodified|omitted|elided|truncated|not shown|identical|intact"
    r"|(?:the )?same(?: as (?:before|above|original|the original))?"
    r"|as[ -](?:before|is|it was|above|original)|exactly the same|here|goes here|follows?|continues?(?: here)?)"
)
_IS = r"(?:(?:is|are|was|were|remains?|stays?|goes|kept|left|will remain|should remain) )?"
_STATED = re.compile(
    "|".join(
        (
            rf"(?:\w+ )?(?:the )?(?:rest|remainder)(?: of (?:the |this |your |my )?(?:\w+ ){{0,2}}{_THINGS})?"
            rf"(?: {_IS}{_SAME})(?: for (?:brevity|clarity))?",
            rf"(?:the )?(?:rest|remainder) of (?:the |this |your |my )?(?:\w+ ){{0,2}}{_THINGS}",
            rf"(?:all |the |keep |any )*(?:(?:existing|previous|remaining|original|other|above|following|current)"
            rf" )(?:\w+ ){{0,2}}{_THINGS} {_IS}{_SAME}",
            rf"(?:the )?{_THINGS} (?:(?:is|are|remains?|stays?) )?(?:unchanged|the same(?: as before)?|as before)",
            r"everything else (?:is |remains |stays )?(?:unchanged|the same|as before|as is)",
            r"(?:keep|leave) (?:the )?(?:rest|remainder|existing code|everything else)"
            r"(?: of the \w+)?(?: (?:the same|unchanged|as is|as before|as-is))?",
            r"(?:same|unchanged|identical) (?:as|from) (?:before|the original|original|previous(?: version)?)",
            r"no (?:other )?changes? (?:here|needed here|below|above|to the rest(?: of the \w+)?)",
            r"(?:[\w ]{1,40} )?(?:omitted|truncated|elided|snipped|trimmed|shortened|hidden|removed)"
            r" for (?:brevity|clarity|space|conciseness|readability)",
            rf"(?:\d+ )?(?:more |other |remaining )*{_THINGS} (?:omitted|truncated|elided|snipped|unchanged|not shown)",
            r"unchanged(?: code| lines?| content| part| section)?",
        )
    )
)
_HINTED = re.compile(
    rf"(?:(?:all|the|your|and) )*(?:existing|previous|remaining|original|other|more|same|additional|further"
    rf"|unchanged|current|earlier|rest of) (?:\w+ ){{0,3}}(?:{_THINGS}|unchanged|here)(?: {_IS}{_SAME})?"
    rf"|(?:the )?(?:rest|remainder|remaining)(?: {_SAME})?"
    rf"|{_THINGS} (?:here|goes here|continues?|omitted)"
)
_TELLING = re.compile(r"\b(?:code|file|content|implementation)\b")
_WAS_CUT = r"(?:trimmed|truncated|omitted|elided|snipped|unchanged|not shown|hidden|skipped|removed)"
_CUT = re.compile(
    rf"[\[<({{]\s{{0,3}}{_DOTS}?\s{{0,3}}(?:"
    rf"(?:trimmed|truncated) (?:input|output|content|text|file|code|lines?)\b"
    rf"|(?:input|output|content|contents|text|file|code|rest|remainder|middle|section)[ _-]{_WAS_CUT}\b"
    rf"|(?:[\d,]+|several|many|some|more) (?:more )?(?:lines?|chars|characters|bytes|tokens) {_WAS_CUT}\b"
    rf"|[\d,]+ (?:more|other|further|additional|remaining) (?:lines?|chars|characters|bytes|tokens)\s*{_DOTS}?\s*[\]>)}}]"
    rf"|{_WAS_CUT}\s{{0,3}}{_DOTS}\s{{0,3}}[\]>)}}]"
    rf"|(?:rest[ _-]of[ _-](?:the[ _-])?\w+[ _-])?(?:unchanged|snip|snipped|elided)\s*/?[\]>)}}]"
    r")",
    re.IGNORECASE,
)
_LEADER = r"(?://+|\#+|--+|;+|%+|/\*+|<!--|\{/\*|\(\*|\{-|REM\b|@rem\b|::|dnl\b|'(?!'))"
_COMMENT = re.compile(rf"\s*{_LEADER}", re.IGNORECASE)
_TRAILING = re.compile(r"\s(?:\#|//|--|/\*)\s*\S.*$")
_ONLY_DOTS = re.compile(
    rf"\s*{_LEADER}\s*[(\[{{]?\s*{_DOTS}[.…\s]*[)\]}}]?\s*(?:\*+/\}}?|-->|\*\)|-\}})?\s*", re.IGNORECASE
)
_RULER: Final = "......."
_BARE_DOTS = re.compile(rf"\s*{_DOTS}\s*")
_PLAIN = re.compile(r"[\w\s'’-]+")  # words and nothing that makes a line code, or a sentence
_OPENS_COMMENT = re.compile(rf"[\W_]*?{_DOTS}")
_OPENS_LINE = re.compile(rf"{_DOTS}\s")
_CLOSES = re.compile(rf"{_DOTS}[\W_]*$")
_MARKS: Final = " \t\r.…*/#-;%<>!(){}[]\"'`~_=:|\\,"

# No line that lacks all of these is looked at: finding them is what makes a large file quick to judge.
_KEYS: Final = (
    *("...", "…", "unchanged", "untouched", "unmodified", "rest ", "remainder", "remaining", "existing"),
    *("previous", "original", "omitted", "truncated", "trimmed", "elided", "snip", "not shown", "hidden"),
    *("skipped", "removed", "identical", "intact", "same", "as before", "as is", "as-is", "everything else"),
    *("more line", "more char", "more byte", "more token"),
    *("no change", "no other change", "for brevity", "for clarity", "for space", "for conciseness"),
)

_Reading = Rule | Literal["statement", "dots"]
"""What a line says by itself: a rule it breaks anywhere, or one that depends on where it stands."""


def is_clear(data: bytes) -> bool:
    """Whether it is known, by a look that takes next to nothing, that a file holds none of the keys."""
    return data.isascii() and _holds_no_key()(data)


@cache
def _holds_no_key() -> Callable[[bytes], bool]:
    try:
        keys = Scan([re.escape(key).encode() for key in _KEYS if key.isascii()], caseless=True)
    except ImportError:
        return lambda data: False
    return lambda data: not keys.ends(data)


def evidence(new: str, old: str = "") -> list[Evidence]:
    """The lines of `new` that stand for content that `old` does not leave out."""
    suspects = _suspects(new)
    if not suspects:
        return []
    known = Counter(old[start : line_end(old, start)].strip() for start in _suspects(old))
    shrunk = old.count("\n") >= _SHRUNK_LINES and 2 * len(new) < len(old)
    fences = _starting_with(new, "```") if "```" in new else []
    readings: dict[str, _Reading | None] = {}
    found: list[Evidence] = []
    number, at = 1, 0
    for start in suspects:
        number, at = number + new.count("\n", at, start), start
        line = new[start : line_end(new, start)]
        if line not in readings:
            readings[line] = _reading(line)
        fenced = bisect_left(fences, start) % 2 == 1
        rule = _in_place(readings[line], new, start, fenced=fenced, shrunk=shrunk)
        if rule is None:
            continue
        known[line.strip()] -= 1
        if known[line.strip()] < 0:
            found.append(Evidence(number, rule))
        if len(found) == MAX_EVIDENCE:
            break
    return found


def _suspects(text: str) -> list[int]:
    """Where the lines begin that hold one of the keys."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that has no single lower case would move all that follows
        lowered = "".join(c if len(c.lower()) > 1 else c.lower() for c in text)
    found: set[int] = set()
    for key in _KEYS:
        at = 0
        while (hit := lowered.find(key, at)) >= 0:
            found.add(max(text.rfind("\n", at, hit) + 1, at))
            at = line_end(text, hit) + 1
    return sorted(found)


def _starting_with(text: str, mark: str) -> list[int]:
    found: list[int] = []
    at = 0
    while (hit := text.find(mark, at)) >= 0:
        start = max(text.rfind("\n", at, hit) + 1, at)
        if not text[start:hit].strip():
            found.append(start)
        at = line_end(text, hit) + 1
    return found


# --- what a line says ----------------------------------------------------------------------------------------


def _reading(line: str) -> _Reading | None:
    if _was_cut(line):
        return "trimmed_marker"
    if len(line) > _LONGEST:
        return None
    if _ONLY_DOTS.fullmatch(line) and _RULER not in line:
        return "ellipsis_comment"
    stated = _stands_for_code(line)
    if stated is not None:
        return stated
    dots = _BARE_DOTS.fullmatch(line) or (_COMMENT.match(line) and re.search(_DOTS, line))
    return "dots" if dots else None


def _was_cut(line: str) -> bool:
    for hit in _CUT.finditer(line):
        before = line[max(hit.start() - _LONGEST, 0) : hit.start()]
        if before.strip() and any(before.count(quote) % 2 for quote in "\"'`"):
            continue  # a string that speaks of cutting
        if not before.strip(_MARKS) or hit.group()[1:].lstrip().lower().startswith("trimmed input"):
            return True
    return False


def _stands_for_code(line: str) -> Literal["placeholder", "statement"] | None:
    said = line.strip()
    if said.startswith("*"):
        return None  # an example inside a block comment
    behind = None if _COMMENT.match(line) else _TRAILING.search(line)
    if behind is not None and not _words(line[: behind.start()]):
        said = behind[0].strip()
    words = _words(said)
    if not words or len(words) > _LONGEST // 2:
        return None
    comment = _COMMENT.match(said) is not None
    bracket = said[0] in "[<({" and said[-1] in "]>)}"
    opens = _OPENS_COMMENT.match(said) if comment or bracket else _OPENS_LINE.match(said)
    closes = _CLOSES.search(said)
    if _STATED.fullmatch(words):
        if bracket or opens or closes or behind:
            return "placeholder"
        return "statement" if comment or (_PLAIN.fullmatch(said) and " of " in words) else None
    if not _HINTED.fullmatch(words):
        return None
    if comment or bracket:
        return "placeholder" if opens or (closes and _TELLING.search(words)) else None
    return "placeholder" if opens and closes else None


def _words(said: str) -> str:
    """What a line says, without the marks around it."""
    return re.sub(r"[\s.…,()\[\]*'’]+", " ", said.strip(_MARKS)).strip().lower()


# --- and where it stands --------------------------------------------------------------------------------------


def _in_place(reading: _Reading | None, text: str, start: int, *, fenced: bool, shrunk: bool) -> Rule | None:
    if reading is None:
        return None
    above = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    match reading:
        case "statement":
            # Below another comment it ends a sentence.
            return "placeholder" if shrunk or not _COMMENT.match(above) else None
        case "ellipsis_comment" if not shrunk:
            end = line_end(text, start)
            below = text[end + 1 : line_end(text, end + 1)]
            inside = _COMMENT.match(above) and _COMMENT.match(below)
            return None if fenced or inside else reading
        case "dots":
            body = text[start : start + 1].isspace() or above.rstrip().endswith(":")
            bare = _BARE_DOTS.fullmatch(text, start, line_end(text, start))
            return "shrunk_ellipsis" if shrunk and not (bare and body) else None
        case _:
            return reading

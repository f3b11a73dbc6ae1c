"""Several replacements at once, each applied to the result of the one before, all or none.

| how a text is found | when |
|---|---|
| exact | always tried first |
| tolerant | only where it is nowhere exact: whole lines that differ in trailing whitespace, or in an |
|          | indentation that differs alike on every line; `new` is then indented the same way |
| tolerant | only where neither finds it: the spacing inside its lines differs (`spacing.py`) |

A text must stand in as many places as `count` says (-1: in all there are). Content is in LF, and so are
`old` and `new` whatever they were sent in; the file's own endings come back when it is encoded. What an
error says is in `edit_refusals.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal

import msgspec

from perdure.protocol.tools import arg
from perdure.risk import DEFAULT, RiskSettings
from perdure.text import lines, spacing
from perdure.text.edit_errors import Attempt, ambiguous, check, missing, no_edits, too_few
from perdure.text.spacing import Replacement

Match = Literal["exact", "tolerant"]

_BLANK: Final = " \t\r\f\v"
_LOOKED_FOR: Final = 32  # lines that must be somewhere before it is worth comparing any
_COMPARISONS: Final = 200_000  # lines compared before a tolerant search in a repetitive file gives up


class Edit(msgspec.Struct, frozen=True):
    old: Annotated[str, arg(aliases=("old_string",))]
    new: Annotated[str, arg(aliases=("new_string",))]
    count: Annotated[int, arg("How often it must occur; -1: replace all.")] = 1


class AppliedEdit(msgspec.Struct, frozen=True):
    """What became of one edit; `line` is the first it changed, in the text it was applied to."""

    match: Match
    replacements: int
    line: int


class EditedText(msgspec.Struct, frozen=True):
    """The content after all edits. `match` is tolerant if any edit was."""

    content: str
    replacements: int
    match: Match
    applied: tuple[AppliedEdit, ...]

    @property
    def warnings(self) -> list[str]:
        """What the caller must know of an edit that was not found as it was sent."""
        return [
            f"edit {number} matched line {one.line} apart from whitespace; the file's own whitespace is kept"
            for number, one in enumerate(self.applied, 1)
            if one.match == "tolerant"
        ]


def apply(
    content: str,
    edits: Sequence[Edit],
    *,
    path: str = "the file",
    settings: RiskSettings = DEFAULT,
    retries: int = 0,
) -> EditedText:
    """The content with every edit in it, or a `ToolError` and no content at all.

    The error names `path` and says how many `retries` are left; the settings say what in it is a secret.
    """
    if not edits:
        raise no_edits()
    original = content
    applied: list[AppliedEdit] = []
    for number, edit in enumerate(edits, 1):
        attempt = Attempt(
            path=path,
            settings=settings,
            retries=retries,
            number=number,
            original=original,
            content=content,
            old=_lf(edit.old),
            new=_lf(edit.new),
            count=edit.count,
        )
        check(attempt)
        match: Match = "exact"
        places = _exact(attempt)
        if not places:
            match = "tolerant"
            places = _tolerated(attempt)
        applied.append(AppliedEdit(match, len(places), lines.number_at(content, places[0].start)))
        content = _replaced(content, places)
    loose: Match = "tolerant" if any(one.match == "tolerant" for one in applied) else "exact"
    return EditedText(content, sum(one.replacements for one in applied), loose, tuple(applied))


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _replaced(content: str, places: Sequence[Replacement]) -> str:
    parts: list[str] = []
    at = 0
    for place in places:
        parts += (content[at : place.start], place.text)
        at = place.end
    parts.append(content[at:])
    return "".join(parts)


# --- exact -------------------------------------------------------------------------------------------------


def _exact(attempt: Attempt) -> list[Replacement]:
    """The places of a text; none if it is nowhere. Raises if they are not as many as were asked for."""
    content, old, count = attempt.content, attempt.old, attempt.count
    if count == -1:
        return [
            Replacement(start, start + len(old), attempt.new) for start in _starts(content, old, len(old))
        ]
    # Places that overlap count too: of "aa" in "aaa", which one was meant is not certain.
    found: list[int] = []
    for start in _starts(content, old, 1):
        found.append(start)
        if len(found) > count:
            raise ambiguous(attempt, _starts(content, old, 1), content.count(old))
    if any(later - start < len(old) for start, later in pairwise(found)):
        raise ambiguous(attempt, found, len(found))
    if 0 < len(found) < count:
        raise too_few(attempt, found)
    return [Replacement(start, start + len(old), attempt.new) for start in found]


def _starts(content: str, old: str, step: int) -> Iterator[int]:
    start = content.find(old)
    while start >= 0:
        yield start
        start = content.find(old, start + step)


# --- tolerant ----------------------------------------------------------------------------------------------


def _tolerated(attempt: Attempt) -> list[Replacement]:
    """The places of a text with other whitespace. Raises if they are not as many as were asked for."""
    places = list(_indented(attempt)) or spacing.find_replacements(attempt.content, attempt.old, attempt.new)
    if attempt.count == -1:
        places = _apart(places)
    if not places:
        raise missing(attempt)
    starts = [place.start for place in places]
    overlap = any(later.start < place.end for place, later in pairwise(places))
    if attempt.count != -1 and (len(places) > attempt.count or overlap):
        raise ambiguous(attempt, starts, len(places))
    if len(places) < attempt.count:
        raise too_few(attempt, starts)
    return places


def _apart(places: list[Replacement]) -> list[Replacement]:
    """The places without those that overlap the one before."""
    found: list[Replacement] = []
    for place in places:
        if not found or found[-1].end <= place.start:
            found.append(place)
    return found


def _indented(attempt: Attempt) -> Iterator[Replacement]:
    """The places where whole lines differ in their indentation, or in whitespace at their ends."""
    content, old = attempt.content, attempt.old
    wanted = old.removesuffix("\n").split("\n")
    for start, block in _blocks(content, [line.strip(_BLANK) for line in wanted]):
        place = _fitted(content, start, block, wanted, old.endswith("\n"), attempt.new)
        if place is not None:
            yield place


def _blocks(content: str, wanted: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Where these lines stand but for the whitespace around them: the offset and the lines there."""
    key = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    needle = wanted[key]
    compared = at = 0
    if any(line not in content for line in sorted(set(wanted), key=len)[-_LOOKED_FOR:]):
        return
    while needle and compared < _COMPARISONS and (hit := content.find(needle, at)) >= 0:
        start = max(content.rfind("\n", at, hit) + 1, at)
        end = lines.find_end(content, hit)
        at = end + 1
        if content[start:end].strip(_BLANK) != needle:
            continue
        for line in reversed(wanted[:key]):
            compared += 1
            before = content.rfind("\n", 0, start - 1) + 1 if start else 0
            if start == 0 or content[before : start - 1].strip(_BLANK) != line:
                break
            start = before
        else:
            block: list[str] = []
            begin = start
            for line in wanted:
                compared += 1
                end = lines.find_end(content, begin)
                block.append(content[begin:end])
                if begin >= len(content) or block[-1].strip(_BLANK) != line:
                    break
                begin = end + 1
            else:
                yield start, block


def _fitted(
    content: str, start: int, block: list[str], wanted: list[str], newline: bool, new: str
) -> Replacement | None:
    """The replacement of a block, indented as the block is; None where that is not certain."""
    end = start + sum(len(line) for line in block) + len(block) - 1
    pairs = [
        (get_indentation(want), get_indentation(have))
        for want, have in zip(wanted, block, strict=True)
        if want.strip()
    ]
    if wanted[0].strip() and not pairs[0][0] and all(want == have for want, have in pairs[1:]):
        start += len(get_indentation(block[0]))  # `old` begins behind the indentation of its first line
        indented: str | None = new
    else:
        indented = reindent(new, pairs)
    if indented is None:
        return None
    if newline and end < len(content):
        end += 1
    elif newline:
        indented = indented.removesuffix("\n")  # the file has no final newline and keeps none
    return Replacement(start, end, indented)


def get_indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def reindent(new: str, pairs: list[tuple[str, str]]) -> str | None:
    """A text moved as its lines were: from each pair's first indentation to its second. None where that is unclear."""
    want, have = pairs[0]
    if all(want == have for want, have in pairs):
        return new
    if have.endswith(want) and all(have[: len(have) - len(want)] + a == b for a, b in pairs):
        return _each(new, lambda indent: have[: len(have) - len(want)] + indent)
    if want.endswith(have) and all(want[: len(want) - len(have)] + b == a for a, b in pairs):
        excess = want[: len(want) - len(have)]
        return _each(new, lambda indent: indent.removeprefix(excess) if indent.startswith(excess) else None)
    for one, other in ((" ", "\t"), ("\t", " ")):
        if all(not a.strip(one) and not b.strip(other) for a, b in pairs):
            return _exchanged(new, pairs, one, other)
    return None


def _exchanged(new: str, pairs: list[tuple[str, str]], one: str, other: str) -> str | None:
    """Tabs for spaces or the other way round, where one width holds for every line."""
    wide, narrow = max(((len(a), len(b)) for a, b in pairs), default=(0, 0))
    if not wide or not narrow or any(len(a) * narrow != len(b) * wide for a, b in pairs):
        return None

    def width(indent: str) -> str | None:
        if indent.strip(one) or len(indent) * narrow % wide:
            return None
        return other * (len(indent) * narrow // wide)

    return _each(new, width)


def _each(new: str, moved: Callable[[str], str | None]) -> str | None:
    found: list[str] = []
    for line in new.split("\n"):
        if not line.strip():
            found.append(line)
            continue
        indent = get_indentation(line)
        settled = moved(indent)
        if settled is None:
            return None
        found.append(settled + line[len(indent) :])
    return "\n".join(found)

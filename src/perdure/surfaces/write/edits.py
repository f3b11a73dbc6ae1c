"""Several replacements at once, each applied to the result of the one before, all or none.

| how a text is found | when |
|---|---|
| exact | always tried first |
| tolerant | only where it is nowhere exact: whole lines that differ in trailing whitespace, or in an |
|          | indentation that differs alike on every line; `new` is then indented the same way |

A text must stand in as many places as `count` says (-1: in all there are). Content is in LF, and so are
`old` and `new` whatever they were sent in; the file's own endings come back when it is encoded. An error
tells lines and shapes, never what the file or the edit says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from perdure.model.envelope import ToolError, refuse
from perdure.model.tools import arg
from perdure.surfaces.write import lines

Match = Literal["exact", "tolerant"]

LINES_SHOWN: Final = 100
_BLANK: Final = " \t\r\f\v"
_LOOKED_FOR: Final = 32  # lines that must be somewhere before it is worth comparing any
_COMPARISONS: Final = 200_000  # lines compared before a tolerant search in a repetitive file gives up


class Edit(msgspec.Struct, frozen=True):
    old: Annotated[str, arg()]
    new: Annotated[str, arg()]
    count: Annotated[int, arg("How often it must occur; -1: replace all.")] = 1


class Applied(msgspec.Struct, frozen=True):
    """What became of one edit; `line` is the first it changed, in the text it was applied to."""

    match: Match
    replacements: int
    line: int


class Edited(msgspec.Struct, frozen=True):
    """The content after all edits. `match` is tolerant if any edit was."""

    content: str
    replacements: int
    match: Match
    applied: tuple[Applied, ...]


class _Place(NamedTuple):
    start: int
    end: int
    new: str


def apply(content: str, edits: Sequence[Edit]) -> Edited:
    """The content with every edit in it, or a `ToolError` and no content at all."""
    if not edits:
        raise _invalid("no_edits", "there is no edit to apply", 0)
    applied: list[Applied] = []
    for number, edit in enumerate(edits, 1):
        old, new = _lf(edit.old), _lf(edit.new)
        _check(edit, old, new, number)
        match: Match = "exact"
        places = _exact(content, old, new, edit.count, number)
        if not places:
            match = "tolerant"
            places = _tolerated(content, old, new, edit.count, number)
        applied.append(Applied(match, len(places), lines.number_at(content, places[0].start)))
        content = _replaced(content, places)
    loose: Match = "tolerant" if any(one.match == "tolerant" for one in applied) else "exact"
    return Edited(content, sum(one.replacements for one in applied), loose, tuple(applied))


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _check(edit: Edit, old: str, new: str, number: int) -> None:
    if not old:
        raise _invalid("empty_old_string", "old must not be empty", number)
    if old == new:
        raise _invalid("nothing_to_change", "old and new are the same but for line endings", number)
    if edit.count == 0:
        raise _invalid("count_cannot_be_zero", "count must be at least 1, or -1 for all", number)
    if edit.count < -1:
        raise _invalid("bad_count", "count must be at least 1, or -1 for all", number)


def _replaced(content: str, places: Sequence[_Place]) -> str:
    parts: list[str] = []
    at = 0
    for place in places:
        parts += (content[at : place.start], place.new)
        at = place.end
    parts.append(content[at:])
    return "".join(parts)


# --- exact -------------------------------------------------------------------------------------------------


def _exact(content: str, old: str, new: str, count: int, number: int) -> list[_Place]:
    """The places of a text; none if it is nowhere. Raises if they are not as many as were asked for."""
    if count == -1:
        return [_Place(start, start + len(old), new) for start in _starts(content, old, len(old))]
    # Places that overlap count too: of "aa" in "aaa", which one was meant is not certain.
    found: list[int] = []
    for start in _starts(content, old, 1):
        found.append(start)
        if len(found) > count:
            raise _ambiguous(content, _starts(content, old, 1), count, content.count(old), number)
    if any(later - start < len(old) for start, later in pairwise(found)):
        raise _ambiguous(content, found, count, len(found), number)
    if 0 < len(found) < count:
        raise _too_few(content, found, count, number)
    return [_Place(start, start + len(old), new) for start in found]


def _starts(content: str, old: str, step: int) -> Iterator[int]:
    start = content.find(old)
    while start >= 0:
        yield start
        start = content.find(old, start + step)


# --- tolerant ----------------------------------------------------------------------------------------------


def _tolerated(content: str, old: str, new: str, count: int, number: int) -> list[_Place]:
    wanted = old.removesuffix("\n").split("\n")
    found: list[_Place] = []
    for start, block in _blocks(content, [line.strip(_BLANK) for line in wanted]):
        place = _fitted(content, start, block, wanted, old.endswith("\n"), new)
        if place is not None and (count != -1 or not found or found[-1].end <= place.start):
            found.append(place)
    if not found:
        raise _missing(content, wanted, number)
    overlap = any(later.start < place.end for place, later in pairwise(found))
    if count != -1 and (len(found) > count or overlap):
        raise _ambiguous(content, [place.start for place in found], count, len(found), number)
    if len(found) < count:
        raise _too_few(content, [place.start for place in found], count, number)
    return found


def _blocks(content: str, wanted: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Where these lines stand but for the whitespace around them: the offset and the lines there."""
    key = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    needle = wanted[key]
    compared = at = 0
    if any(line not in content for line in sorted(set(wanted), key=len)[-_LOOKED_FOR:]):
        return
    while needle and compared < _COMPARISONS and (hit := content.find(needle, at)) >= 0:
        start = max(content.rfind("\n", at, hit) + 1, at)
        end = lines.line_end(content, hit)
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
                end = lines.line_end(content, begin)
                block.append(content[begin:end])
                if begin >= len(content) or block[-1].strip(_BLANK) != line:
                    break
                begin = end + 1
            else:
                yield start, block


def _fitted(
    content: str, start: int, block: list[str], wanted: list[str], newline: bool, new: str
) -> _Place | None:
    """The replacement of a block, indented as the block is; None where that is not certain."""
    end = start + sum(len(line) for line in block) + len(block) - 1
    pairs = [
        (indentation(want), indentation(have))
        for want, have in zip(wanted, block, strict=True)
        if want.strip()
    ]
    if wanted[0].strip() and not pairs[0][0] and all(want == have for want, have in pairs[1:]):
        start += len(indentation(block[0]))  # `old` begins behind the indentation of its first line
        indented: str | None = new
    else:
        indented = reindent(new, pairs)
    if indented is None:
        return None
    if newline and end < len(content):
        end += 1
    elif newline:
        indented = indented.removesuffix("\n")  # the file has no final newline and keeps none
    return _Place(start, end, indented)


def indentation(line: str) -> str:
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
        indent = indentation(line)
        settled = moved(indent)
        if settled is None:
            return None
        found.append(settled + line[len(indent) :])
    return "\n".join(found)


# --- refusals ----------------------------------------------------------------------------------------------


def _invalid(reason: str, message: str, number: int) -> ToolError:
    return refuse(
        "invalid_input", reason, message, reason_hint="syntax", suggested_action="fix_syntax", edit=number
    )


def _stale(reason: str, message: str, number: int, **context: Any) -> ToolError:
    return refuse("stale_precondition", reason, message, suggested_action="reread", edit=number, **context)


def _missing(content: str, wanted: list[str], number: int) -> ToolError:
    near = lines.nearest(content, wanted)
    if near is None:
        return _stale("old_string_not_found", "old is not in the file", number, nearest=None)
    at = near.diverges + 1
    shown = {"line": near.start + 1, "diverges_at_line": at, "text": lines.masked(near.text)}
    message = f"old is not in the file; the nearest text differs at line {at}"
    return _stale("old_string_not_found", message, number, nearest=shown)


def _ambiguous(
    content: str, starts: Iterator[int] | Sequence[int], count: int, actual: int, number: int
) -> ToolError:
    shown, more = _numbers(content, starts)
    message = "old stands in more places than count says; take in more of the lines around it"
    counts = {"expected_count": count, "actual_count": actual}
    return _stale("ambiguous_match", message, number, lines=shown, more=more, **counts)


def _too_few(content: str, starts: Sequence[int], count: int, number: int) -> ToolError:
    shown, more = _numbers(content, starts)
    message = f"old stands in {len(starts)} of the {count} places that count says"
    counts = {"expected_count": count, "actual_count": len(starts)}
    return _stale("insufficient_matches", message, number, lines=shown, more=more, **counts)


def _numbers(content: str, starts: Iterator[int] | Sequence[int]) -> tuple[list[int], bool]:
    """The lines of the first places, and whether there are more than are shown."""
    found: list[int] = []
    at, line = 0, 1
    for start in starts:
        if len(found) == LINES_SHOWN:
            return found, True
        line += content.count("\n", at, start)
        at = start
        found.append(line)
    return found, False

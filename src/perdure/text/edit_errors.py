"""What a caller reads when an edit does not apply: where the nearest text is, and both sides of the first difference.

The caller may read the file anyway, so its lines are quoted as they are; only what the risk rules match is masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import msgspec

from perdure import risk
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, then
from perdure.risk import RiskSettings
from perdure.text import lines
from perdure.text.similarity import find_first_difference, find_nearest

LINES_SHOWN: Final = 100
MOST_SHOWN: Final = 200
"""Characters of a line that an error quotes."""
_IN_SENTENCE: Final = 100
_LINES_IN_SENTENCE: Final = 5
_AROUND: Final = 5
"""Lines before and behind a place that the caller is told to read."""
_MOST_READ: Final = 100
_SCANNED: Final = 32 << 10
"""Characters before and behind a line that are scanned with it: a secret may take several lines."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One edit, in LF, and the content it is applied to. `original` is what the file holds: without earlier edits.

    The settings say what a secret is; `retries` is the whole budget, which a miss leaves untouched."""

    path: str
    settings: RiskSettings
    retries: int
    number: int
    original: str
    content: str
    old: str
    new: str
    count: int


# --- edits that mean nothing -----------------------------------------------------------------------------------


def no_edits() -> ToolError:
    return _invalid("no_edits", "edits is empty: give at least one {old, new}.", 0)


def check(attempt: Attempt) -> None:
    number = attempt.number
    if not attempt.old:
        message = f"edit {number}: old is empty. Give the text that new replaces."
        raise _invalid("empty_old_string", message, number)
    if attempt.old == attempt.new:
        message = f"edit {number} changes nothing: old and new are the same, line endings aside."
        raise _invalid("nothing_to_change", message, number)
    if attempt.count == 0 or attempt.count < -1:
        reason = "count_cannot_be_zero" if attempt.count == 0 else "bad_count"
        message = f"edit {number}: count is {attempt.count}; it must be at least 1, or -1 for all places."
        raise _invalid(reason, message, number)


def _invalid(reason: str, message: str, number: int) -> ToolError:
    return refuse(
        "invalid_input",
        reason,
        message,
        next_step=call_again(edits=FILL),
        reason_hint="syntax",
        suggested_action="fix_syntax",
        edit=number,
    )


# --- edits that do not fit the file ----------------------------------------------------------------------------


def missing(attempt: Attempt) -> ToolError:
    """`old` is nowhere: tell the nearest text of the file and the first line in which they differ."""
    block = attempt.old.removesuffix("\n").split("\n")
    name = f"not edited: edit {attempt.number} is not in {attempt.path}"
    if attempt.number > 1 and attempt.old in attempt.original:
        message = f"{name} any more: an earlier edit of this call changed that text. Edits apply in order."
        return _stale(attempt, "old_string_not_found", message, None, nearest=None)
    near = find_nearest(attempt.original, block)
    if near is None:
        message = f"{name}, and nothing in the file is similar."
        return _stale(attempt, "old_string_not_found", message, None, nearest=None)
    first, at = near.start + 1, near.diverges + 1
    want = block[near.diverges - near.start]
    differs = find_first_difference(want, near.text[near.column :])
    sent = _masked(attempt.old, near.diverges - near.start, attempt.settings)
    found = _masked(attempt.original, near.diverges, attempt.settings)
    in_found = near.column + differs
    you_sent = f'"{_excerpt(sent, differs, _IN_SENTENCE)}"'
    if at > lines.count(attempt.original):
        message = f"{name}. The nearest text begins at line {first}, but the file ends before {you_sent}."
    else:
        message = (
            f'{name}. Nearest, line {at}: "{_excerpt(found, in_found, _IN_SENTENCE)}" (you sent {you_sent}).'
        )
    shown = {
        "line": first,
        "diverges_at_line": at,
        "sent": _excerpt(sent, differs, MOST_SHOWN),
        "found": _excerpt(found, in_found, MOST_SHOWN),
    }
    return _stale(
        attempt, "old_string_not_found", message, (first, max(at, first + len(block) - 1)), nearest=shown
    )


def ambiguous(attempt: Attempt, starts: Iterable[int], actual: int) -> ToolError:
    shown, more = _numbers(attempt.content, starts)
    places = max(actual, len(shown))
    wanted = "" if attempt.count == 1 else f", and count is {attempt.count}"
    message = (
        f"not edited: {_named(attempt)} occurs {places} times in {attempt.path} ({_told(shown, more)}){wanted}. "
        "Add surrounding lines to make it unique, or count=-1 for all."
    )
    counts = {"expected_count": attempt.count, "actual_count": actual}
    return _stale(
        attempt, "ambiguous_match", message, (shown[0], shown[-1]), lines=shown, **_more(more), **counts
    )


def too_few(attempt: Attempt, starts: Iterable[int]) -> ToolError:
    shown, more = _numbers(attempt.content, starts)
    times = "once" if len(shown) == 1 else f"{len(shown)} times"
    message = (
        f"not edited: {_named(attempt)} occurs {times} in {attempt.path} ({_told(shown, more)}), "
        f"and count is {attempt.count}. Give the number that is there, or count=-1 for all."
    )
    counts = {"expected_count": attempt.count, "actual_count": len(shown)}
    return _stale(
        attempt, "insufficient_matches", message, (shown[0], shown[-1]), lines=shown, **_more(more), **counts
    )


def _stale(
    attempt: Attempt, reason: str, message: str, span: tuple[int, int] | None, **context: Any
) -> ToolError:
    """The call that shows the lines is the next step: the caller then sends the edit with the file's text."""
    read = call_tool("read", path=attempt.path)
    if span is not None:
        start, last = max(span[0] - _AROUND, 1), max(lines.count(attempt.original), 1)
        end = min(span[1] + _AROUND, start + _MOST_READ, last)
        read = call_tool("read", path=attempt.path, start_line=start, end_line=end)
    return refuse(
        "stale_precondition",
        reason,
        message,
        next_step=then(read, call_again()),
        suggested_action="reread",
        retry_budget=attempt.retries,
        edit=attempt.number,
        **context,
    )


# --- quoting ---------------------------------------------------------------------------------------------------


def _named(attempt: Attempt) -> str:
    first = _excerpt(_masked(attempt.old, 0, attempt.settings), 0, _IN_SENTENCE)
    return f'"{first}"' if "\n" not in attempt.old.rstrip("\n") else f'"{first} …"'


def _masked(text: str, number: int, settings: RiskSettings) -> str:
    """A line of a text, from zero, with its secrets masked."""
    start = 0
    for _ in range(number):
        start = lines.find_end(text, start) + 1
    end = lines.find_end(text, start)
    left = max(start - _SCANNED, 0)
    report = risk.scan(text[left : end + _SCANNED], settings)
    parts: list[str] = []
    at = start
    for begin, stop, rule in ((left + a, left + b, rule) for a, b, rule in report.spans):
        if begin < end and stop > at:
            parts += (text[at : max(begin, at)], f"[REDACTED:{rule}]")
            at = stop
    return "".join((*parts, text[at:end]))


def _excerpt(line: str, at: int, limit: int) -> str:
    """A line, or of a long one the part around a character."""
    if len(line) <= limit:
        return line
    room = limit - 2
    begin = max(min(at - limit // 4, len(line) - room), 0)
    end = begin + room
    return f"{'…' if begin else ''}{line[begin:end]}{'…' if end < len(line) else ''}"


def _told(numbers: list[int], more: bool) -> str:
    distinct = list(dict.fromkeys(numbers))
    shown = ", ".join(map(str, distinct[:_LINES_IN_SENTENCE]))
    if len(distinct) > _LINES_IN_SENTENCE or more:
        shown += ", …"
    return f"line{'' if len(distinct) == 1 else 's'} {shown}"


def _more(more: bool) -> dict[str, bool]:
    return {"more": True} if more else {}


def _numbers(content: str, starts: Iterable[int]) -> tuple[list[int], bool]:
    """The lines of the first places, and whether there are more than are shown."""
    places = list(islice(starts, LINES_SHOWN + 1))
    found: list[int] = []
    at, line = 0, 1
    for start in places[:LINES_SHOWN]:
        line += content.count("\n", at, start)
        at = start
        found.append(line)
    return found, len(places) > LINES_SHOWN

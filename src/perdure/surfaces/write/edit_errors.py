"""The error of an edit that does not apply: where the nearest text is, and both sides of the first difference.

The caller may read the file anyway, so its lines are quoted as they are; only what the risk rules match is masked.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from perdure import risk
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, then
from perdure.risk import RiskSettings
from perdure.text import lines
from perdure.text.edits import EditError, EditMismatch, InvalidEdit
from perdure.text.similarity import find_first_difference, find_nearest

MAX_QUOTED: Final = 200
"""Characters of a line that an error quotes."""
_MAX_QUOTED_IN_MESSAGE: Final = 100
_MAX_LINES_IN_MESSAGE: Final = 5
_CONTEXT_LINES: Final = 5
"""Lines before and behind a place that the next step reads."""
_MAX_LINES_READ: Final = 100
_SCAN_MARGIN: Final = 32 << 10
"""Characters before and behind a line that are scanned with it: a secret may span several lines."""


def make_tool_error(error: EditError, path: str, settings: RiskSettings, retries: int) -> ToolError:
    """Build the error of a failed edit. The settings say what is masked; `retries` is the whole budget."""
    if isinstance(error, InvalidEdit):
        return _make_invalid_input(error)
    assert isinstance(error, EditMismatch)
    mismatch = _MismatchErrors(error, path, settings, retries)
    match error.reason:
        case "old_string_not_found":
            return mismatch.not_found()
        case "ambiguous_match":
            return mismatch.ambiguous()
        case "insufficient_matches":
            return mismatch.too_few()
        case _:
            assert_never(error.reason)


def _make_invalid_input(error: InvalidEdit) -> ToolError:
    number = error.number
    match error.reason:
        case "no_edits":
            message = "edits is empty: give at least one {old, new}."
        case "empty_old_string":
            message = f"edit {number}: old is empty. Give the text that new replaces."
        case "nothing_to_change":
            message = f"edit {number} changes nothing: old and new are the same, line endings aside."
        case "count_cannot_be_zero" | "bad_count":
            message = f"edit {number}: count is {error.count}; it must be at least 1, or -1 for all places."
        case _:
            assert_never(error.reason)
    return refuse(
        "invalid_input",
        error.reason,
        message,
        next_step=call_again(edits=FILL),
        reason_hint="syntax",
        suggested_action="fix_syntax",
        edit=number,
    )


class _MismatchErrors:
    """Builds the error of one mismatch."""

    def __init__(self, mismatch: EditMismatch, path: str, settings: RiskSettings, retries: int) -> None:
        self._mismatch = mismatch
        self._attempt = mismatch.attempt
        self._path = path
        self._settings = settings
        self._retries = retries

    def not_found(self) -> ToolError:
        """Quote the nearest text of the file and the first line in which it differs from `old`."""
        attempt = self._attempt
        block = attempt.old.removesuffix("\n").split("\n")
        subject = f"not edited: edit {attempt.number} is not in {self._path}"
        if attempt.number > 1 and attempt.old in attempt.original:
            message = (
                f"{subject} any more: an earlier edit of this call changed that text. Edits apply in order."
            )
            return self._refuse(message, None, nearest=None)
        nearest = find_nearest(attempt.original, block)
        if nearest is None:
            return self._refuse(f"{subject}, and nothing in the file is similar.", None, nearest=None)
        first_line, line = nearest.start + 1, nearest.diverges + 1
        block_index = nearest.diverges - nearest.start
        difference = find_first_difference(block[block_index], nearest.text[nearest.column :])
        sent = _mask_line(attempt.old, block_index, self._settings)
        found = _mask_line(attempt.original, nearest.diverges, self._settings)
        column = nearest.column + difference
        you_sent = f'"{_quote(sent, difference, _MAX_QUOTED_IN_MESSAGE)}"'
        if line > lines.count(attempt.original):
            message = f"{subject}. The nearest text begins at line {first_line}, but the file ends before {you_sent}."
        else:
            quoted = _quote(found, column, _MAX_QUOTED_IN_MESSAGE)
            message = f'{subject}. Nearest, line {line}: "{quoted}" (you sent {you_sent}).'
        details = {
            "line": first_line,
            "diverges_at_line": line,
            "sent": _quote(sent, difference, MAX_QUOTED),
            "found": _quote(found, column, MAX_QUOTED),
        }
        return self._refuse(message, (first_line, max(line, first_line + len(block) - 1)), nearest=details)

    def ambiguous(self) -> ToolError:
        numbers = self._line_numbers()
        times = max(self._mismatch.actual_count, len(numbers))
        expected = self._attempt.count
        count = "" if expected == 1 else f", and count is {expected}"
        message = (
            f"not edited: {self._quote_old()} occurs {times} times in {self._path} "
            f"({self._format_lines(numbers)}){count}. "
            "Add surrounding lines to make it unique, or count=-1 for all."
        )
        return self._refuse_count(message, numbers)

    def too_few(self) -> ToolError:
        numbers = self._line_numbers()
        actual = self._mismatch.actual_count
        times = "once" if actual == 1 else f"{actual} times"
        message = (
            f"not edited: {self._quote_old()} occurs {times} in {self._path} ({self._format_lines(numbers)}), "
            f"and count is {self._attempt.count}. Give the number that is there, or count=-1 for all."
        )
        return self._refuse_count(message, numbers)

    def _refuse_count(self, message: str, numbers: list[int]) -> ToolError:
        context: dict[str, Any] = {"lines": numbers}
        if self._mismatch.has_more:
            context["more"] = True
        context |= {"expected_count": self._attempt.count, "actual_count": self._mismatch.actual_count}
        return self._refuse(message, (numbers[0], numbers[-1]), **context)

    def _refuse(self, message: str, line_range: tuple[int, int] | None, **context: Any) -> ToolError:
        """The next step reads the lines; the caller then sends the edit with the file's own text."""
        read = call_tool("read", path=self._path)
        if line_range is not None:
            start, last = max(line_range[0] - _CONTEXT_LINES, 1), max(lines.count(self._attempt.original), 1)
            end = min(line_range[1] + _CONTEXT_LINES, start + _MAX_LINES_READ, last)
            read = call_tool("read", path=self._path, start_line=start, end_line=end)
        return refuse(
            "stale_precondition",
            self._mismatch.reason,
            message,
            next_step=then(read, call_again()),
            suggested_action="reread",
            retry_budget=self._retries,
            edit=self._attempt.number,
            **context,
        )

    def _line_numbers(self) -> list[int]:
        numbers: list[int] = []
        at, number = 0, 1
        for start in self._mismatch.starts:
            number += self._attempt.content.count("\n", at, start)
            at = start
            numbers.append(number)
        return numbers

    def _format_lines(self, numbers: list[int]) -> str:
        distinct = list(dict.fromkeys(numbers))
        listed = ", ".join(map(str, distinct[:_MAX_LINES_IN_MESSAGE]))
        if len(distinct) > _MAX_LINES_IN_MESSAGE or self._mismatch.has_more:
            listed += ", …"
        return f"line{'' if len(distinct) == 1 else 's'} {listed}"

    def _quote_old(self) -> str:
        old = self._attempt.old
        first_line = _quote(_mask_line(old, 0, self._settings), 0, _MAX_QUOTED_IN_MESSAGE)
        return f'"{first_line}"' if "\n" not in old.rstrip("\n") else f'"{first_line} …"'


def _mask_line(text: str, index: int, settings: RiskSettings) -> str:
    """Return one line of a text with its secrets masked."""
    start = 0
    for _ in range(index):
        start = lines.find_end(text, start) + 1
    end = lines.find_end(text, start)
    scan_start = max(start - _SCAN_MARGIN, 0)
    report = risk.scan(text[scan_start : end + _SCAN_MARGIN], settings)
    parts: list[str] = []
    at = start
    for secret_start, secret_end, rule in report.spans:
        secret_start, secret_end = scan_start + secret_start, scan_start + secret_end
        if secret_start < end and secret_end > at:
            parts += (text[at : max(secret_start, at)], f"[REDACTED:{rule}]")
            at = secret_end
    return "".join((*parts, text[at:end]))


def _quote(line: str, column: int, limit: int) -> str:
    """Return a line, or the part of a long line around a column."""
    if len(line) <= limit:
        return line
    length = limit - 2
    start = max(min(column - limit // 4, len(line) - length), 0)
    end = start + length
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"

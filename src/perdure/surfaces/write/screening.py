"""The risk of contents of any size: of one as it was sent, or of what a change adds to a file.

What stood in a file before is not held against a change: a secret that is there already may stay. In files above
`MOST_COMPARED` everything after the first difference counts as new.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from perdure import risk
from perdure.protocol.envelope import ToolError
from perdure.risk import Report, RiskSettings
from perdure.risk.report import FINDINGS_LISTED
from perdure.text import codec

WINDOW: Final = 1024 * 1024
OVERLAP: Final = 16 * 1024
MOST_COMPARED: Final = 8 * 1024 * 1024
# Around a change, so that what it completes is seen whole.
AROUND: Final = 4096
MOST_TOLD: Final = 20

VERDICTS: Final = ("safe", "low", "medium", "high")


def readable(data: bytes) -> str:
    """Bytes as text in their own encoding; where they are not text, as much of it as there is."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    try:
        return codec.decode(data).body
    except ToolError:
        return data.decode(errors="replace")


def whole(pieces: Iterable[bytes], settings: RiskSettings) -> Report:
    """The report on a content in pieces; of a large one no more than a window is held at once."""
    found: Report | None = None
    for one in _windows(pieces):
        report = risk.scan(readable(one.data), settings)
        found = report if found is None else _joined(found, report, one)
    assert found is not None
    return found


def longest_line(pieces: Iterable[bytes]) -> int:
    """The characters of the longest line of a content in pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    longest = unfinished = 0
    for piece in pieces:
        first, newline, rest = decoder.decode(piece).partition("\n")
        longest = max(longest, unfinished + len(first), risk.longest_line(rest))
        unfinished = len(rest) - rest.rfind("\n") - 1 if newline else unfinished + len(first)
    return longest


def added(before: str, after: str, settings: RiskSettings) -> Report:
    """The report on what `after` has and `before` has not."""
    start, end = _difference(before, after)
    begin = max(0, start - AROUND)
    part = after[begin : end + AROUND]
    report = risk.scan(part, settings)
    if report.spans:
        tail = len(before) - (len(after) - end)
        old = before[begin : tail + AROUND]
        known = {(rule, old[a:b]) for a, b, rule in risk.scan(old, settings).spans}
        stays = [(a, b) for a, b, rule in report.spans if (rule, part[a:b]) in known]
        if stays:
            report = risk.scan(_blanked(part, stays), settings)
    return _moved(report, after.count("\n", 0, begin))


def after_difference(before: Iterator[bytes], after: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces of `after` from the first that differs on, with the end of the one before it."""
    last = b""
    for piece in after:
        if next(before, None) == piece:
            last = piece[-AROUND:]
            continue
        yield last + piece
        break
    yield from after


def told(report: Report) -> list[dict[str, Any]]:
    """The places as a caller sees them, masked."""
    places: list[dict[str, Any]] = [
        {
            "kind": one.kind,
            "pattern": one.rule,
            "match": one.masked or None,
            "line": one.line,
            "column": one.column,
        }
        for one in report.findings
    ]
    return places + [
        {
            "kind": "size",
            "pattern": one.rule,
            "match": None,
            "line": None,
            "column": None,
            "value": one.value,
            "threshold": one.threshold,
        }
        for one in report.excesses
    ]


def warnings(report: Report) -> list[str]:
    """What a write that goes through is still told."""
    if VERDICTS.index(report.verdict) < VERDICTS.index("medium"):
        return []
    places = [f"{one.kind} ({one.rule}) at line {one.line}" for one in report.findings[:5]]
    more = [f"{report.total - 5} more"] if report.total > 5 else []
    return [f"risk {report.verdict}: {', '.join(places + more)}"]


class _Window(NamedTuple):
    data: bytes
    overlap: int  # how many of its bytes the one before had
    lines: int  # how many line ends come before it


def _windows(pieces: Iterable[bytes]) -> Iterator[_Window]:
    held, overlap, lines = bytearray(), 0, 0
    for piece in pieces:
        held += piece
        while len(held) > WINDOW:
            yield _Window(bytes(held[:WINDOW]), overlap, lines)
            overlap = OVERLAP
            lines += held.count(b"\n", 0, WINDOW - OVERLAP)
            del held[: WINDOW - OVERLAP]
    yield _Window(bytes(held), overlap, lines)


def _joined(one: Report, more: Report, window: _Window) -> Report:
    """The report on what came so far and the next window."""
    seen = len(readable(window.data[: window.overlap]))
    news = tuple(_shifted(each, window.lines) for each in more.findings if each.end > seen)
    worse = max(one, more, key=lambda report: report.score)
    return Report(
        score=worse.score,
        verdict=worse.verdict,
        bytes=one.bytes + len(window.data) - window.overlap,
        line_count=window.lines + more.line_count,
        findings=(*one.findings, *news)[:FINDINGS_LISTED],
        total=one.total + more.total - (len(more.findings) - len(news)),
        excesses=worse.excesses,
        suggested_actions=worse.suggested_actions,
    )


def _moved(report: Report, lines: int) -> Report:
    if not lines or not report.findings:
        return report
    return msgspec.structs.replace(report, findings=tuple(_shifted(one, lines) for one in report.findings))


def _shifted(finding: risk.Finding, lines: int) -> risk.Finding:
    return msgspec.structs.replace(finding, line=finding.line + lines)


def _difference(before: str, after: str) -> tuple[int, int]:
    """Between which places of `after` it differs from `before`."""
    most = min(len(before), len(after))
    start = _agree(most, lambda n: before[:n] == after[:n])
    rest = most - start
    end = _agree(rest, lambda n: not n or before[-n:] == after[-n:])
    return start, len(after) - end


def _agree(most: int, holds: Callable[[int], bool]) -> int:
    """The greatest number up to `most` for which it holds; it holds for all smaller ones."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _blanked(part: str, spans: list[tuple[int, int]]) -> str:
    pieces, at = [], 0
    for start, end in spans:
        pieces += [part[at:start], "".join("\n" if c == "\n" else " " for c in part[start:end])]
        at = end
    return "".join((*pieces, part[at:]))

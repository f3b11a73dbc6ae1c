"""Hand-broken files: for each format an intact text and ten slips, each with the line where it was made.

    python -m harness.corpora.broken_files     how many slips `perdure.validate` notices, by format

A slip is an edit `old → new`; `old` occurs once in the text. The texts are in `broken_data` and `broken_code`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import msgspec

from harness.corpora.broken_code import CODE
from harness.corpora.broken_data import DATA
from perdure.validate import Report, check, regressions
from perdure.validate.report import LEVELS, Level

SAMPLES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {**DATA, **CODE}
# How far from the slip the first finding may be.
NEAR_LINES = {"exact": 1, "grammar": 5, "none": 5}


class Slip(msgspec.Struct, frozen=True):
    """One broken file."""

    form: str
    text: str
    line: int
    edit: tuple[str, str]


class Recall(msgspec.Struct):
    """How many slips of one format get a finding, are refused as a write, and have the first finding near."""

    noticed: int = 0
    refused: int = 0
    near: int = 0
    missed: list[Slip] = []


def intact(form: str) -> str:
    return SAMPLES[form][0]


def slips(form: str) -> Iterator[Slip]:
    text, edits = SAMPLES[form]
    for old, new in edits:
        assert text.count(old) == 1, f"{form}: {old!r} occurs {text.count(old)} times"
        same = next((i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), len(new))
        at = text.index(old)
        yield Slip(
            form, text[:at] + new + text[at + len(old) :], text.count("\n", 0, at + same) + 1, (old, new)
        )


def is_noticed(report: Report) -> bool:
    return report.errors != []


def is_near(slip: Slip, report: Report) -> bool:
    return is_noticed(report) and abs(report.errors[0].line - slip.line) <= NEAR_LINES[report.level]


def recall(form: str) -> Recall:
    before = check(intact(form), format_hint=form)
    counts = Recall()
    for slip in slips(form):
        report = check(slip.text, format_hint=form)
        counts.noticed += is_noticed(report)
        counts.refused += bool(regressions(before, report))
        counts.near += is_near(slip, report)
        if not is_noticed(report):
            counts.missed.append(slip)
    return counts


def main() -> int:
    totals: Counter[Level] = Counter()
    formats: Counter[Level] = Counter()
    for form in SAMPLES:
        counts = recall(form)
        level = LEVELS[form]
        totals[level] += counts.near
        formats[level] += 1
        print(
            f"{form:12} {level:7} {counts.noticed:2} noticed  {counts.refused:2} refused  {counts.near:2} near  of 10"
        )
        for slip in counts.missed:
            print(f"    line {slip.line} {slip.edit!r}")
    for level in formats:
        print(
            f"{level}: {totals[level]} of {10 * formats[level]} at most {NEAR_LINES[level]} lines from the slip"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Hand-broken files: for each format an intact text and ten slips, each with the line where it was made.

    python -m harness.corpora.broken_files     how many slips `perdure.validate` finds within one line, by format

A slip is an edit `old → new`; `old` occurs once in the text. The texts are in `broken_data` and `broken_code`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from harness.corpora.broken_code import CODE
from harness.corpora.broken_data import DATA
from perdure.validate import Report, check

SAMPLES: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {**DATA, **CODE}


class Slip(msgspec.Struct, frozen=True):
    """One broken file."""

    form: str
    text: str
    line: int
    edit: tuple[str, str]


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


def is_found(slip: Slip, report: Report) -> bool:
    """Whether the report calls the file wrong, with an error within one line of the slip."""
    near = (p for p in report.errors if p.severity == "error" and abs(p.line - slip.line) <= 1)
    return report.valid is False and any(near)


def main() -> int:
    missed = 0
    for form in SAMPLES:
        found = 0
        for slip in slips(form):
            report = check(slip.text, format_hint=form)
            if is_found(slip, report):
                found += 1
            else:
                missed += 1
                print(f"  {form}: line {slip.line} {slip.edit!r}: {report.summary}", file=sys.stderr)
        print(f"{form:12} {found:2} of {len(SAMPLES[form][1])}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutated files into the checker, and an account of what became of each.

    python -m harness.corpora.fuzz_validate --inputs 10000 [--format json] [--seed N]

Every input goes through `isolated.Checker`. A lost child (a crash), an answer for want of time (a hang), a report
with places outside of the text, or a child that grew beyond its limit is a failure; the input is written to
a file for each.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from harness.corpora.broken_files import SAMPLES, intact
from perdure.validate.report import Report
from perdure.validate.sandbox import Checker

LONGEST: Final = 20_000
WAIT_S: Final = 60.0
PROCESSOR_S: Final = 5
_NEST: Final = (
    "[",
    "(",
    "{",
    "<a>",
    "- ",
    '{"a":',
    "\\begin{a}",
    "if x; then ",
    "/*",
    "((",
    "$(",
    "`",
    "'",
    '"',
    "#if 1\n",
)
_ODD: Final = (
    "\0",
    "\ufeff",
    "\ud7ff",
    "€",
    "𝄞",
    "\t",
    "\r\n",
    "\x0b",
    "\u2028",
    "&lol;",
    "{{",
    "%",
    "\\",
    "\\\n",
    "---\n",
)


class Mutator:
    """Makes a different wrong file each time, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def mutated(self, text: str) -> str:
        for _ in range(self.random.choice((1, 1, 2, 3, 8))):
            text = self._once(text)[:LONGEST]
        return text

    def _once(self, text: str) -> str:
        pick = self.random
        start = pick.randrange(len(text) + 1)
        end = min(len(text), start + pick.choice((1, 1, 2, 5, 40)))
        match pick.randrange(8):
            case 0:
                return text[:start] + text[end:]
            case 1:
                return text[:start] + text[start:end] * pick.choice((2, 3, 50)) + text[end:]
            case 2:
                return text[:start] + pick.choice(_ODD) + text[start:]
            case 3:
                return text[:start] + pick.choice(_NEST) * pick.choice((1, 2, 30, 1500)) + text[start:]
            case 4:
                return text[:start] + chr(pick.choice((*range(1, 128), 0xE9, 0x1F600))) + text[end:]
            case 5:
                return text[start:] + text[:start]
            case 6:
                return text[:start]
            case _:
                rows = text.split("\n")
                pick.shuffle(rows)
                return "\n".join(rows)


def fault(report: Report, text: str) -> str | None:
    """What is wrong with a report, apart from what it says."""
    if report.valid is None and "took too long" in report.summary:
        return "hang"
    if report.valid is None and "parser failed" in report.summary:
        return "crash"
    if report.valid is None and "too much memory" in report.summary:
        return "memory"
    rows = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    if any(not 1 <= p.line <= rows or p.col < 1 for p in report.errors):
        return "place"
    if report.valid is False and not any(p.severity == "error" for p in report.errors):
        return "reason"
    return None


def run(form: str, inputs: int, seed: int, checker: Checker) -> Counter[str]:
    """Outcomes of so many inputs of one format; inputs that fail are kept in a file."""
    mutator = Mutator(seed)
    outcomes: Counter[str] = Counter()
    for number in range(inputs):
        text = mutator.mutated(intact(form))
        report = checker.check(text, format_hint=form)
        wrong = fault(report, text)
        outcomes[wrong or f"valid {report.valid}"] += 1
        if wrong:
            kept = Path(tempfile.gettempdir()) / f"fuzz-{form}-{seed}-{number}.txt"
            kept.write_text(text, encoding="utf-8", errors="replace")
            print(f"{form}: {wrong}: {kept} {report.errors[:2]}", file=sys.stderr)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutated files into the checker")
    parser.add_argument("--inputs", type=int, default=10_000, help="how many for each format")
    parser.add_argument("--format", choices=sorted(SAMPLES), help="one format instead of all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failures = 0
    # A hang is one by the time that the parser computes, not by that of a busy machine.
    with Checker(timeout_s=WAIT_S, processor_s=PROCESSOR_S) as checker:
        for form in [options.format] if options.format else SAMPLES:
            begun = time.monotonic()
            outcomes = run(form, options.inputs, options.seed, checker)
            failures += sum(n for word, n in outcomes.items() if not word.startswith("valid"))
            print(
                f"{form:12} {options.inputs} inputs, {time.monotonic() - begun:.0f} s: {dict(outcomes)}",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

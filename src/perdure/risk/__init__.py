"""L0: what in a text would get it rejected, found before it is written. Pure functions on text.

    report = scan(text)          score, verdict, places, measures, what to do
    redact(text, report)         the text with every secret replaced
    longest_line(text)           in characters

The rules are tables (`formats/`), compiled at the first scan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from perdure.risk.report import Action, Excess, Finding, Report
from perdure.risk.settings import DEFAULT, ExtraPattern, Limits, RiskSettings, Thresholds

__all__ = [
    "DEFAULT",
    "Action",
    "Excess",
    "ExtraPattern",
    "Finding",
    "Limits",
    "Report",
    "RiskSettings",
    "Thresholds",
    "check",
    "longest_line",
    "redact",
    "scan",
]


# What looks and what it knows is loaded at the first scan: an import of this package costs next to nothing.


def scan(text: str, settings: RiskSettings = DEFAULT) -> Report:
    """What would get this text rejected, and where."""
    return _examine()(text, settings)


@functools.cache
def _examine() -> Callable[[str, RiskSettings], Report]:
    from perdure.risk.examine import examine

    return examine


def redact(text: str, report: Report) -> str:
    """The text with every place of its report replaced by a marker that names the rule."""
    from perdure.risk.redaction import redacted

    return redacted(text, report)


def longest_line(text: str) -> int:
    """How many characters the longest line has. A scan only tells lines that are too long, which takes less time."""
    from perdure.risk.shape import longest_line

    return longest_line(text)


def check(settings: RiskSettings) -> None:
    """Compile the patterns of a policy now, so that a bad one is an error when the policy is read."""
    from perdure.risk.examine import extra_patterns
    from perdure.risk.extra import finder

    if settings.extend_patterns:
        finder(extra_patterns(settings))

"""L0: what in a text would get it rejected, found before it is written. Pure functions on text.

    report = scan(text)          score, verdict, places, measures, what to do
    redact(text, report)         the text with every secret replaced
    longest_line(text)           in characters

The rules are data (`formats/*.toml`), compiled at the first scan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from perdure.risk.report import Action, Excess, Finding, Report, redact
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


# Engine and rules are loaded at the first scan: importing this package costs next to nothing.


def scan(text: str, settings: RiskSettings = DEFAULT) -> Report:
    """What would get this text rejected, and where."""
    return _assess()(text, settings)


@functools.cache
def _assess() -> Callable[[str, RiskSettings], Report]:
    from perdure.risk.assessment import assess

    return assess


def longest_line(text: str) -> int:
    """How many characters the longest line has. A scan only tells lines that are too long, which takes less time."""
    from perdure.risk.text_shape import longest_line

    return longest_line(text)


def check(settings: RiskSettings) -> None:
    """Compile the patterns of a policy now, so that a bad one is an error when the policy is read."""
    from perdure.risk.assessment import extra_patterns
    from perdure.risk.custom_patterns import compile_custom

    if settings.extend_patterns:
        compile_custom(extra_patterns(settings))

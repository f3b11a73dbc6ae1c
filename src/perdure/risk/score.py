"""From findings to a number and a word.

A family counts its heaviest finding, and more of them up to half as much again. What only hints or warns is held
below `high`, whatever the weights: a verdict that blocks needs a rule that is sure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from perdure.risk.report import Action, Excess, Verdict
from perdure.risk.settings import GENERIC_WEIGHT, SECRET_WEIGHT, WEIGHTS, RiskSettings, Thresholds
from perdure.risk.text_shape import Shape

DIGITS: Final = 4
BELOW: Final = 0.0001
MORE: Final = 0.25
MOST: Final = 1.5
RULE_WEIGHTS: Final = {"phone": 0.2}


def weight(kind: str, rule: str, tier: str, settings: RiskSettings) -> float:
    """What one finding weighs. Some rules of a family are worth a share of it only."""
    default = SECRET_WEIGHT if tier == "precise" else WEIGHTS.get(kind, GENERIC_WEIGHT)
    return settings.weight(kind, default) * RULE_WEIGHTS.get(rule, 1.0)


def excesses(shape: Shape, settings: RiskSettings) -> tuple[Excess, ...]:
    """Each limit that the text is above."""
    if "size" in settings.disable_families:
        return ()
    limits = settings.limits
    short = not shape.too_long and shape.line_count <= limits.lines
    if short and shape.bytes <= limits.bytes and shape.bytes <= limits.many_bytes:
        return ()
    each = settings.weight("size", WEIGHTS["size"])
    measures = (
        ("big_100kb", shape.bytes, limits.bytes),
        ("big_500kb", shape.bytes, limits.many_bytes),
        ("long_line", shape.too_long, limits.line_length),
        ("many_lines", shape.line_count, limits.lines),
    )
    return tuple(Excess(rule, value, limit, each) for rule, value, limit in measures if value > limit)


def total(counts: dict[tuple[str, bool], tuple[float, int]], remarks: Iterable[Excess], high: float) -> float:
    """`counts`: for each family, sure or not, its heaviest weight and how many findings there are."""
    sure = sum(_family(*count) for (_, certain), count in counts.items() if certain)
    unsure = sum(_family(*count) for (_, certain), count in counts.items() if not certain)
    unsure += sum(remark.weight for remark in remarks)
    return round(min(1.0, sure + min(unsure, high - BELOW)), DIGITS)


def _family(heaviest: float, count: int) -> float:
    return heaviest * min(MOST, 1.0 + MORE * (count - 1))


def verdict(score: float, thresholds: Thresholds) -> Verdict:
    if score >= thresholds.high:
        return "high"
    if score >= thresholds.medium:
        return "medium"
    return "low" if score >= thresholds.low else "safe"


def actions(kinds: set[str], remarks: Sequence[Excess]) -> tuple[Action, ...]:
    """What to do about it: redact what can be redacted, split what is too much, escape what is not text."""
    redact = sorted(kinds - {"binary_hint", "encoding", "size"})
    found = [Action("redact", targets=tuple(redact))] if redact else []
    if "binary_hint" in kinds:
        found.append(Action("split", reason="binary_content_detected"))
    if "encoding" in kinds:
        found.append(Action("escape", reason="characters_lost_in_decoding"))
    for remark in remarks:
        reason = f"{remark.rule}_{remark.value}_exceeds_{remark.threshold}"
        found.append(Action("escape" if remark.rule == "long_line" else "split", reason=reason))
    return tuple(found)

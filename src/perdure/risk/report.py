"""What a scan says: the score, the verdict, and every place that led to them, with nothing secret in it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Tier = Literal["precise", "generic", "hint"]
Verdict = Literal["safe", "low", "medium", "high"]

FINDINGS_LISTED: Final = 200


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One place. Offsets, line (from 1) and column (from 1) count characters of the text."""

    kind: str
    rule: str
    start: int
    end: int
    line: int
    column: int
    masked: str
    tier: Tier
    weight: float


class Excess(msgspec.Struct, frozen=True, gc=False):
    """A measure of the whole text that is above its limit."""

    rule: str
    value: int
    threshold: int
    weight: float


class Action(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What would bring the score down."""

    action: Literal["redact", "split", "escape"]
    targets: tuple[str, ...] = ()
    reason: str = ""


class Report(msgspec.Struct, frozen=True, gc=False):
    """The whole answer. At most `FINDINGS_LISTED` findings are listed; `total` counts them all."""

    score: float
    verdict: Verdict
    bytes: int
    line_count: int
    findings: tuple[Finding, ...]
    total: int
    excesses: tuple[Excess, ...]
    suggested_actions: tuple[Action, ...]
    # Every place that `redact` replaces, listed or not: character offsets and the rule.
    spans: tuple[tuple[int, int, str], ...] = ()

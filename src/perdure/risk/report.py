"""What a scan says: the score, the verdict, and every place that led to them, with nothing secret in it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Tier = Literal["precise", "generic", "hint"]
Verdict = Literal["safe", "low", "medium", "high"]

FINDINGS_LISTED: Final = 200
SHOWN_CHARACTERS: Final = 4
LEAST_HIDDEN: Final = 12
# Of these even the first characters tell too much.
CLOSED_KINDS: Final = frozenset({"pem_block", "pii", "password", "connection_string"})


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


def mask(secret: str, kind: str, shown: int) -> str:
    """A match as it may be shown: the vendor's mark (`shown` characters), then four characters of a long one at most."""
    hidden = len(secret) - shown
    more = SHOWN_CHARACTERS if kind not in CLOSED_KINDS and hidden >= LEAST_HIDDEN + SHOWN_CHARACTERS else 0
    return f"{secret[: shown + more]}…"


def redact(text: str, report: Report) -> str:
    """The text with every place of the report, listed or only counted, as `[REDACTED:rule]`."""
    parts = []
    at = 0
    for start, end, rule in report.spans:
        parts += [text[at:start], f"[REDACTED:{rule}]"]
        at = end
    parts.append(text[at:])
    return "".join(parts)

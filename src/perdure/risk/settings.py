"""What a policy may change about the risk check. Every value is checked here, so that nonsense is an error.

The names follow the policy format of the write surface: `thresholds`, `disable_families`, `extend_patterns`;
`weights` and `limits` are honoured as well. An extra pattern is compiled by a linear-time engine only.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=1)]

# A real secret weighs 1: it alone is `high` under any thresholds.
WEIGHTS: Final[dict[str, float]] = {
    "password": 0.45,
    "generic_secret": 0.45,
    "pii": 0.15,
    "binary_hint": 0.05,
    "encoding": 0.03,
    "size": 0.02,
}
SECRET_WEIGHT: Final = 1.0
GENERIC_WEIGHT: Final = 0.45
EXTRA_WEIGHT: Final = 0.5
FAMILIES: Final = frozenset(
    {
        *WEIGHTS,
        "api_key",
        "aws_secret",
        "chat_token",
        "ci_token",
        "cloud_key",
        "connection_string",
        "crypto_key",
        "database_key",
        "github_pat",
        "jwt",
        "mail_key",
        "package_token",
        "payment_key",
        "pem_block",
        "vcs_token",
        "webhook",
    }
)


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which score on a text is called so."""

    high: Share = 0.70
    medium: Share = 0.40
    low: Share = 0.10

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.medium <= self.high:
            raise ValueError("thresholds must rise: 0 < low <= medium <= high")


class ExtraPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pattern of one's own. Without a weight it has its family's, or 0.5 in a family of its own."""

    name: Annotated[str, Meta(min_length=1, max_length=80)]
    regex: Annotated[str, Meta(min_length=1, max_length=2000)]
    weight: Share | None = None


class BadPattern(ValueError):
    """A pattern that the engine does not take: its family, and its number there."""

    def __init__(self, message: str, family: str, number: int) -> None:
        super().__init__(message)
        self.family = family
        self.number = number


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Above which measure a text gets a remark."""

    bytes: Count = 100_000
    many_bytes: Count = 500_000
    line_length: Count = 2_000
    lines: Count = 5_000


class RiskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of it; every part has a default."""

    thresholds: Thresholds = Thresholds()
    weights: dict[str, Share] = {}
    disable_families: frozenset[str] = frozenset()
    extend_patterns: dict[str, tuple[ExtraPattern, ...]] = {}
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        known = FAMILIES | set(self.extend_patterns)
        for key, names in (("weights", self.weights), ("disable_families", self.disable_families)):
            if unknown := sorted(set(names) - known):
                raise ValueError(
                    f"{key}: no family {', '.join(unknown)}; there are {', '.join(sorted(known))}"
                )

    def weight(self, family: str, default: float) -> float:
        return self.weights.get(family, default)


DEFAULT: Final = RiskSettings()

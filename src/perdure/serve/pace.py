"""How often somebody may ask: a token bucket for each, and no more buckets than a bound."""

from __future__ import annotations

from typing import Final

MOST: Final = 20_000


class Pace:
    """`rate` per second, and `burst` at once after a pause."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._known: dict[str, tuple[float, float]] = {}

    def wait(self, who: str, now: float) -> float:
        """0 where it may go on, and it is counted; else the seconds after which to try again."""
        left, at = self._known.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        allowed = left >= 1.0
        self._known[who] = (left - 1.0 if allowed else left, now)
        if len(self._known) > MOST:  # who was longest away has a full bucket, or nearly so
            del self._known[next(iter(self._known))]
        return 0.0 if allowed else (1.0 - left) / self._rate

"""What sessions counted, summed up: a session that is over still counts, or sums would fall."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from perdure.kernel.metrics import OTHER
from perdure.kernel.state import Counters
from perdure.serve.session import HttpSession

MOST_METHODS: Final = 256
MOST_NAME: Final = 100


def outcomes(counters: Counters) -> dict[str, int]:
    """How requests ended. Each has ended in one way, so that the sum is that of all that ended."""
    told_apart = counters.tool_errors + counters.response_errors + counters.recovery_errors
    return {
        "successes": counters.successes,
        "tool_errors": counters.tool_errors,
        "response_errors": counters.response_errors,
        "recovery_errors": counters.recovery_errors,
        "host_errors": counters.errors - told_apart,
    }


class Tallies:
    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()

    def add(self, session: HttpSession) -> None:
        for named, counters in session.kernel.state.metrics.methods.items():
            # Clients choose these names: beyond a bound they are not told apart.
            method = named[:MOST_NAME]
            if method not in self.counts and len(self.counts) >= MOST_METHODS:
                method = OTHER
            for outcome, count in outcomes(counters).items():
                self.outcomes[method, outcome] += count
            self.seconds[method] += counters.latency.total / 1000.0
            self.counts[method] += counters.latency.count

    def copy(self) -> Tallies:
        made = Tallies()
        made.outcomes.update(self.outcomes)
        made.seconds.update(self.seconds)
        made.counts.update(self.counts)
        return made

"""What sessions counted, summed up: a session that is over still counts, or sums would fall."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from perdure.kernel.metrics import OTHER
from perdure.serve.session import HttpSession

MOST_METHODS: Final = 256
OUTCOMES: Final = ("successes", "errors", "response_errors", "recovery_errors")


class Tallies:
    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()

    def add(self, session: HttpSession) -> None:
        for named, counters in session.kernel.state.metrics.methods.items():
            # Clients choose these names: beyond a bound they are not told apart.
            method = named if named in self.counts or len(self.counts) < MOST_METHODS else OTHER
            for outcome in OUTCOMES:
                self.outcomes[method, outcome] += getattr(counters, outcome)
            self.seconds[method] += counters.latency.total / 1000.0
            self.counts[method] += counters.latency.count

    def copy(self) -> Tallies:
        made = Tallies()
        made.outcomes.update(self.outcomes)
        made.seconds.update(self.seconds)
        made.counts.update(self.counts)
        return made

"""What sessions counted, summed up: a session that is over still counts, or sums would fall."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from perdure.kernel.metrics import OTHER, of_tool
from perdure.kernel.state import Counters, ToolCounters
from perdure.serve.http_session import HttpSession

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
        self.tools: dict[str, ToolCounters] = {}

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
        add_tools(self.tools, session.kernel.state.metrics.tools)

    def copy(self) -> Tallies:
        made = Tallies()
        made.outcomes.update(self.outcomes)
        made.seconds.update(self.seconds)
        made.counts.update(self.counts)
        add_tools(made.tools, self.tools)
        return made


def add_tools(sums: dict[str, ToolCounters], tools: dict[str, ToolCounters]) -> None:
    """Add the counters of each tool to the sums."""
    for name, counters in tools.items():
        total = of_tool(sums, name, counters.mount)
        for field in ("requests", "successes", "errors", "tool_errors", "response_errors", "recovery_errors"):
            setattr(total, field, getattr(total, field) + getattr(counters, field))
        total.latency.count += counters.latency.count
        total.latency.total += counters.latency.total
        total.latency.max = max(total.latency.max, counters.latency.max)
        for bucket, count in counters.latency.buckets.items():
            total.latency.buckets[bucket] = total.latency.buckets.get(bucket, 0) + count

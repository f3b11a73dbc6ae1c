"""`/metrics` in Prometheus' text format: sums over all sessions, ended ones included; never a content.

A counter must not fall, so the totals of a session are added to `RequestTotals` before it is unloaded.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Final

from perdure.kernel.metrics import OTHER, of_tool
from perdure.kernel.state import Counters, Open, Serving, ToolCounters
from perdure.serve.http_session import HttpSession

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
MOST_METHODS: Final = 256
MOST_NAME: Final = 100


def outcomes(counters: Counters) -> dict[str, int]:
    """How requests ended. Each request is in one of them, so that they add up to all that ended."""
    told_apart = counters.tool_errors + counters.response_errors + counters.recovery_errors
    return {
        "successes": counters.successes,
        "tool_errors": counters.tool_errors,
        "response_errors": counters.response_errors,
        "recovery_errors": counters.recovery_errors,
        "host_errors": counters.errors - told_apart,
    }


class RequestTotals:
    """Requests by method, of any number of sessions."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self.tools: dict[str, ToolCounters] = {}

    def add(self, session: HttpSession) -> None:
        for name, counters in session.kernel.state.metrics.methods.items():
            # Clients choose these names: beyond a bound they count as one.
            method = name[:MOST_NAME]
            if method not in self.counts and len(self.counts) >= MOST_METHODS:
                method = OTHER
            for outcome, count in outcomes(counters).items():
                self.outcomes[method, outcome] += count
            self.seconds[method] += counters.latency.total / 1000.0
            self.counts[method] += counters.latency.count
        add_tools(self.tools, session.kernel.state.metrics.tools)

    def copy(self) -> RequestTotals:
        totals = RequestTotals()
        totals.outcomes.update(self.outcomes)
        totals.seconds.update(self.seconds)
        totals.counts.update(self.counts)
        add_tools(totals.tools, self.tools)
        return totals


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


def render(
    sessions: Collection[HttpSession], ended: RequestTotals, *, processes: int, faults: int, started: float
) -> bytes:
    """`ended` are the totals of sessions that are no longer in memory."""
    sums = ended.copy()
    for session in sessions:
        sums.add(session)
    lines = [
        *_gauge("perdure_uptime_seconds", "Seconds since the start.", time.time() - started),
        *_gauge("perdure_sessions", "Sessions in memory.", len(sessions)),
        *_gauge("perdure_servers", "Processes behind them.", processes),
        *_gauge(
            "perdure_calls_in_flight",
            "Calls that wait for a server.",
            sum(len(s.kernel.state.calls) for s in sessions),
        ),
        *_gauge("perdure_circuits_open", "Servers whose circuit breaker is open.", _phases(sessions, Open)),
        *_gauge("perdure_mounts_serving", "Servers that are ready.", _phases(sessions, Serving)),
        "# HELP perdure_faults_total Processes that failed, however many sessions used them.",
        "# TYPE perdure_faults_total counter",
        f"perdure_faults_total {faults}",
        "# HELP perdure_requests_total Requests by method and outcome.",
        "# TYPE perdure_requests_total counter",
    ]
    for (method, outcome), count in sorted(sums.outcomes.items()):
        lines.append(f'perdure_requests_total{{method="{_label(method)}",outcome="{outcome}"}} {count}')
    lines += [
        "# HELP perdure_request_seconds Time from a request to its answer.",
        "# TYPE perdure_request_seconds summary",
    ]
    for method in sorted(sums.counts):
        lines.append(f'perdure_request_seconds_sum{{method="{_label(method)}"}} {sums.seconds[method]:.6f}')
        lines.append(f'perdure_request_seconds_count{{method="{_label(method)}"}} {sums.counts[method]}')
    return ("\n".join(lines) + "\n").encode()


def _gauge(name: str, help_text: str, value: float) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {value:g}"]


def _phases(sessions: Collection[HttpSession], kind: type) -> int:
    return sum(
        isinstance(mount.phase, kind)
        for session in sessions
        for mount in session.kernel.state.mounts.values()
    )


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

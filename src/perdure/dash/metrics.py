"""Rolling metrics of all sessions: calls, failed calls and latency for each second of the last five minutes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from perdure.kernel.metrics import quantile
from perdure.kernel.state import Counters, Latency
from perdure.serve.session_table import SessionTable

EVERY_S: Final = 1.0
KEPT: Final = 300
CALL: Final = "tools/call"


class Sample(msgspec.Struct, frozen=True):
    """One second: how many calls ended, how many of them failed, and how long they took in ms; None without a call."""

    calls: int = 0
    errors: int = 0
    p50: float | None = None
    p99: float | None = None


class _Seen(msgspec.Struct):
    calls: int = 0
    errors: int = 0
    tool_errors: int = 0
    buckets: dict[int, int] = {}


class CallMetrics:
    """Takes one sample each second. The dashboard's own calls do not count."""

    def __init__(self, sessions: SessionTable) -> None:
        self.samples: deque[Sample] = deque([Sample()] * KEPT, KEPT)
        self.calls = 0
        self.errors = 0
        self.tool_errors = 0
        self._sessions = sessions
        self._seen: dict[int, _Seen] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(EVERY_S, self._tick)

    def recent(self, seconds: int = 10) -> Sample:
        """The last seconds as one: calls per second, and the slowest quantiles among them."""
        last = [sample for sample in list(self.samples)[-seconds:] if sample.calls]
        return Sample(
            round(sum(sample.calls for sample in last) / seconds),
            sum(sample.errors for sample in last),
            max((sample.p50 for sample in last if sample.p50 is not None), default=None),
            max((sample.p99 for sample in last if sample.p99 is not None), default=None),
        )

    @property
    def window(self) -> tuple[int, int]:
        """Calls and failed calls of the last five minutes."""
        return sum(sample.calls for sample in self.samples), sum(sample.errors for sample in self.samples)

    def _tick(self) -> None:
        self._loop.call_later(EVERY_S, self._tick)
        self.take()

    def take(self) -> None:
        latency, calls, errors = Latency(), 0, 0
        seen: dict[int, _Seen] = {}
        for session in self._sessions.clients:
            counters = session.kernel.state.metrics.methods.get(CALL)
            if counters is None:
                continue
            known = self._seen.get(session.number, _Seen())
            seen[session.number] = known
            ended = counters.successes + counters.errors
            calls += ended - known.calls
            errors += counters.errors - known.errors
            self.tool_errors += counters.tool_errors - known.tool_errors
            known.calls, known.errors, known.tool_errors = ended, counters.errors, counters.tool_errors
            _add_new(latency, counters, known)
        self._seen = seen
        self.calls += calls
        self.errors += errors
        p50, p99 = (quantile(latency, share) if latency.count else None for share in (0.5, 0.99))
        self.samples.append(Sample(calls, errors, p50, p99))


def _add_new(latency: Latency, counters: Counters, known: _Seen) -> None:
    """What a session has more of than when it was last looked at."""
    if counters.latency.count == sum(known.buckets.values()):
        return
    for bucket, count in counters.latency.buckets.items():
        if new := count - known.buckets.get(bucket, 0):
            latency.buckets[bucket] = latency.buckets.get(bucket, 0) + new
            latency.count += new
    latency.max = max(latency.max, counters.latency.max)
    known.buckets = dict(counters.latency.buckets)

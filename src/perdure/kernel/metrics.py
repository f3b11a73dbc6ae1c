"""Counters and latencies per method, bounded in memory whatever the client sends.

| an ending counts as | |
|---|---|
| success | a result |
| tool_error | a result of a tool with `isError` |
| response_error | a JSON-RPC error of the server's |
| recovery_error | an error of the host's for a call that it could not settle |
| host_error | an error of the host's for a request that it refused |

All but the first are `errors`. The time of a tool that waits by intent (`state_wait`) is no latency.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import frexp
from typing import TYPE_CHECKING, Literal

from msgspec import Raw

from perdure.kernel.state import Counters, Latency, Pace
from perdure.model.faults import Fault
from perdure.model.frames import members_if_clear

if TYPE_CHECKING:
    from perdure.kernel.core import Kernel

MAX_METHODS = 64
MAX_NAME = 128
OTHER = "other"
WINDOW_S = 5.0
_STEPS = 8  # buckets per doubling: a quantile is within 1/8 of the truth

_IS_ERROR = re.compile(rb'"isError"\s*:\s*true')

Ending = Literal["success", "tool_error", "response_error", "recovery_error", "host_error"]


def of_method(k: Kernel, method: str) -> Counters:
    methods = k.state.metrics.methods
    method = method[:MAX_NAME]
    if method not in methods and len(methods) >= MAX_METHODS:
        method = OTHER
    return methods.setdefault(method, Counters())


def accepted(k: Kernel, method: str) -> None:
    known = k.state.metrics
    known.totals.requests += 1
    of_method(k, method).requests += 1
    current = known.pace
    if k.now - current.began >= WINDOW_S:
        current.before, current.counted = current.began, current.count
        current.began, current.count = k.now, 0
    current.count += 1


def pace(found: Pace, now: float) -> float:
    """Requests per second over the last two windows at most; it falls while none come."""
    if not found.count:
        return 0.0
    began, count = found.began, found.count
    if found.counted and began - found.before < 2 * WINDOW_S:
        began, count = found.before, count + found.counted
    return count / max(now - began, 1.0)


def result_ending(method: str, result: Raw | bytes) -> Ending:
    """Whether a result is one of a tool that failed. Most are not, and only looked through for the word."""
    if method != "tools/call" or not _IS_ERROR.search(memoryview(result)):
        return "success"
    failed = members_if_clear(Raw(result)).get("isError")
    return "tool_error" if failed is not None and bytes(failed) == b"true" else "success"


def ended(k: Kernel, method: str, accepted_at: float, ending: Ending, *, is_wait: bool = False) -> None:
    metrics = k.state.metrics
    elapsed = max(0.0, k.now - accepted_at) * 1000.0
    for counters in (metrics.totals, of_method(k, method)):
        if ending == "success":
            counters.successes += 1
        else:
            counters.errors += 1
            if ending == "tool_error":
                counters.tool_errors += 1
            elif ending == "response_error":
                counters.response_errors += 1
            elif ending == "recovery_error":
                counters.recovery_errors += 1
        if not is_wait:
            observe(counters.latency, elapsed)


def replayed(k: Kernel, method: str) -> None:
    k.state.metrics.totals.replays += 1
    of_method(k, method).replays += 1


def faulted(k: Kernel, fault: Fault, methods: list[str]) -> None:
    """A fault that made recovery necessary. It is not an error: nothing was answered with it."""
    metrics = k.state.metrics
    metrics.totals.recovery_faults += 1
    metrics.consecutive_failures += 1
    metrics.last_fault = fault
    for method in methods:
        of_method(k, method).recovery_faults += 1


def found_in_files(k: Kernel, source: str, faults: Sequence[Fault]) -> None:
    """What is wrong now with the files of one kind; what is new in it is noted."""
    known = k.state.file_faults.get(source, [])
    k.state.file_faults[source] = list(faults)
    note_file_faults(k, source, [fault for fault in faults if fault not in known])


def note_file_faults(k: Kernel, source: str, faults: Sequence[Fault]) -> None:
    for fault in faults:
        k.note("fault", source=source, code=fault.code, detail=fault.detail, **{"class": fault.fault_class})


def observe(latency: Latency, elapsed_ms: float) -> None:
    latency.count += 1
    latency.total += elapsed_ms
    latency.last = elapsed_ms
    latency.max = max(latency.max, elapsed_ms)
    mantissa, exponent = frexp(max(elapsed_ms, 0.001))
    bucket = exponent * _STEPS + int((mantissa - 0.5) * 2 * _STEPS)
    latency.buckets[bucket] = latency.buckets.get(bucket, 0) + 1


def quantile(latency: Latency, share: float) -> float:
    """The upper edge of the bucket in which the quantile lies, never above the largest value seen."""
    wanted = share * latency.count
    seen = 0
    for bucket in sorted(latency.buckets):
        seen += latency.buckets[bucket]
        if seen >= wanted:
            exponent, step = divmod(bucket, _STEPS)
            edge = (0.5 + (step + 1) / (2 * _STEPS)) * 2.0**exponent
            return float(min(edge, latency.max))
    return latency.max

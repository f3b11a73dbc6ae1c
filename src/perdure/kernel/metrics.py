"""Counters and latencies per method and per tool, and the newest calls, bounded in memory whatever the client sends.

| an ending counts as | |
|---|---|
| success | a result |
| tool_error | a result of a tool with `isError` |
| response_error | a JSON-RPC error of the server's |
| recovery_error | an error of the host's for a call that it could not settle |
| host_error | an error of the host's for a request that it refused |

All but the first are `errors`. The time of a tool that waits by intent (`state_wait`) is no latency. A tool call that
failed is noted as the event `call`, with the tool, the ending and the code of the failure: never an argument or a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import frexp
from typing import Literal

import msgspec
from msgspec import Raw

from perdure.kernel.context import Context
from perdure.kernel.state import Counters, EndedCall, Invocation, Latency, Pace, ToolCounters
from perdure.protocol.faults import Fault
from perdure.protocol.frames import members_if_clear

MAX_METHODS = 64
MAX_NAME = 128
MAX_TOOLS = 256
MAX_RECENT = 50
OTHER = "other"
WINDOW_S = 5.0
_STEPS = 8  # buckets per doubling: a quantile is within 1/8 of the truth

_IS_ERROR = re.compile(rb'"isError"\s*:\s*true')
# The last line of a failure in porcelain, at the end of its JSON string.
_LAST_LINE = re.compile(rb'\[([a-z_]{1,40})/([a-z_]{1,40})\]"')

Ending = Literal["success", "tool_error", "response_error", "recovery_error", "host_error"]


class _Context(msgspec.Struct, frozen=True):
    reason: str = ""


class _Failure(msgspec.Struct):
    error: str = ""
    status: str = ""
    context: _Context = _Context()


class _FailedResult(msgspec.Struct):
    structuredContent: _Failure | None = None


def of_method(k: Context, method: str) -> Counters:
    methods = k.state.metrics.methods
    method = method[:MAX_NAME]
    if method not in methods and len(methods) >= MAX_METHODS:
        method = OTHER
    return methods.setdefault(method, Counters())


def accepted(k: Context, method: str) -> None:
    metrics = k.state.metrics
    metrics.totals.requests += 1
    of_method(k, method).requests += 1
    current = metrics.pace
    if k.now - current.began >= WINDOW_S:
        current.before, current.counted = current.began, current.count
        current.began, current.count = k.now, 0
    current.count += 1


def pace(window: Pace, now: float) -> float:
    """Requests per second over the last two windows at most; it falls while none come."""
    if not window.count:
        return 0.0
    began, count = window.began, window.count
    if window.counted and began - window.before < 2 * WINDOW_S:
        began, count = window.before, count + window.counted
    return count / max(now - began, 1.0)


def result_ending(method: str, result: Raw | bytes) -> Ending:
    """Whether a result is one of a tool that failed. Most are not, and only looked through for the word."""
    if method != "tools/call" or not _IS_ERROR.search(memoryview(result)):
        return "success"
    failed = members_if_clear(Raw(result)).get("isError")
    return "tool_error" if failed is not None and bytes(failed) == b"true" else "success"


def failure_code(result: Raw | bytes) -> str:
    """`error/reason` of a built-in tool that failed, in either render; empty where the result does not tell."""
    if (line := _LAST_LINE.search(memoryview(result))) is not None:
        return b"/".join(line.groups()).decode()
    try:
        failure = msgspec.json.decode(result, type=_FailedResult).structuredContent or _Failure()
    except msgspec.MsgspecError:
        return ""
    return "/".join(filter(None, (failure.error or failure.status, failure.context.reason)))[:MAX_NAME]


def call_ended(k: Context, call: Invocation, ending: Ending, code: str = "") -> None:
    """Count a call under its method and, if it is one, under its tool."""
    ended(k, call.method, call.accepted_at, ending, is_wait=call.is_wait)
    if call.method != "tools/call":
        return
    metrics, elapsed = k.state.metrics, max(0.0, k.now - call.accepted_at) * 1000.0
    name = k.public.listed_name(k.specs[call.mount].prefix + call.name)
    name = name[:MAX_NAME] or f"unlisted tool of {call.mount}"  # what a client makes up goes into no log
    counters = of_tool(metrics.tools, name, call.mount)
    counters.requests += 1
    _count(counters, ending, None if call.is_wait else elapsed)
    if len(metrics.recent) >= MAX_RECENT:
        del metrics.recent[0]
    metrics.recent.append(EndedCall(name, call.mount, k.now, elapsed, ending, code))
    if ending != "success":
        k.note("call", tool=name, mount=call.mount, ending=ending, code=code)


def of_tool(tools: dict[str, ToolCounters], name: str, mount: str) -> ToolCounters:
    """Beyond a bound tools are not told apart."""
    if name not in tools and len(tools) >= MAX_TOOLS:
        name, mount = OTHER, ""
    return tools.setdefault(name, ToolCounters(mount=mount))


def ended(k: Context, method: str, accepted_at: float, ending: Ending, *, is_wait: bool = False) -> None:
    metrics = k.state.metrics
    elapsed = max(0.0, k.now - accepted_at) * 1000.0
    for counters in (metrics.totals, of_method(k, method)):
        _count(counters, ending, None if is_wait else elapsed)


def _count(counters: Counters, ending: Ending, elapsed_ms: float | None) -> None:
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
    if elapsed_ms is not None:
        observe(counters.latency, elapsed_ms)


def replayed(k: Context, method: str) -> None:
    k.state.metrics.totals.replays += 1
    of_method(k, method).replays += 1


def faulted(k: Context, fault: Fault, methods: list[str]) -> None:
    """A fault that made recovery necessary. It is not an error: nothing was answered with it."""
    metrics = k.state.metrics
    metrics.totals.recovery_faults += 1
    metrics.consecutive_failures += 1
    metrics.last_fault = fault
    for method in methods:
        of_method(k, method).recovery_faults += 1


def found_in_files(k: Context, source: str, faults: Sequence[Fault]) -> None:
    """What is wrong now with the files of one kind; what is new in it is noted."""
    before = k.state.file_faults.get(source, [])
    k.state.file_faults[source] = list(faults)
    note_file_faults(k, source, [fault for fault in faults if fault not in before])


def note_file_faults(k: Context, source: str, faults: Sequence[Fault]) -> None:
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

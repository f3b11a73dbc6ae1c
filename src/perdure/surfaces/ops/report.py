"""What a host says of itself to its owner's commands: health, telemetry, and the calls it holds, by age.

Names and numbers only. No argument, result or content of a call ever stands here.
"""

from __future__ import annotations

from typing import Any, Final

from perdure.kernel import metrics
from perdure.kernel.context import Context
from perdure.kernel.state import Invocation
from perdure.surfaces.ops.health import health, latency, telemetry

REPORT_VERSION: Final = 1
MOST_CALLS: Final = 64
MOST_NAME: Final = 200
CALLS: Final = "tools/call"


def report(k: Context, now: float) -> dict[str, Any]:
    """Bounded, whatever the session holds: the oldest calls are listed, all are counted."""
    session, metrics_now = k.state.session, k.state.metrics
    oldest = sorted(k.state.calls.values(), key=lambda call: call.accepted_at)[:MOST_CALLS]
    calls = metrics_now.methods.get(CALLS, metrics_now.totals)
    return {
        "v": REPORT_VERSION,
        "session": session.session_id,
        "client": session.client_name[:MOST_NAME],
        "calls_per_s": round(metrics.pace(metrics_now.pace, now), 2),
        "latency_ms": latency(calls),
        "in_flight": len(k.state.calls),
        "calls": [_call(call, now) for call in oldest],
        "health": {**health(k), "uptime_ms": int((now - session.started_at) * 1000)},
        "telemetry": telemetry(k),
    }


def _call(call: Invocation, now: float) -> dict[str, Any]:
    return {
        "method": call.method[:MOST_NAME],
        "name": call.name[:MOST_NAME],
        "mount": call.mount,
        "state": type(call.state).__name__.lower(),
        "attempts": call.attempts,
        "age_ms": int(max(0.0, now - call.accepted_at) * 1000),
    }

"""Announces the serving process, and answers status requests: `perdure status`, `top` and `reload` find it like any host.

The socket is for the owner only, as that of a host (`host/control.py`): a connection is a request, and nothing is read
from it. The answer is bounded, however many sessions there are.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import islice
from typing import Any, Final

import msgspec

from perdure import __version__
from perdure.dash.context import PageContext, ServerRow
from perdure.host import control, presence
from perdure.kernel import metrics
from perdure.platform.processes import start_time
from perdure.protocol.eras import LATEST_MODERN
from perdure.serve.http_session import HttpSession
from perdure.surfaces.ops.report import CALLS, MOST_CALLS, MOST_NAME, REPORT_VERSION

MOST_SESSIONS: Final = 100
MOST_EVENTS: Final = 20
SECONDS: Final = 10
FRESH_S: Final = 0.2


class StatusListener:
    """Lives as long as the process. Without a socket, `perdure status` shows no figures of it."""

    def __init__(self, context: PageContext, address: str) -> None:
        self._context = context
        self._address = address
        self._began = time.monotonic()
        self._answer = b""
        self._answered_at = float("-inf")
        self._askers = 0
        listener = control.listening()
        if listener is not None:
            import socket

            made = socket.socket(fileno=listener.detach())
            # Any server will do. The one for sockets of this kind looks for their names (Python 3.13), and this one was
            # bound by a way that is gone.
            self._listening = asyncio.ensure_future(asyncio.start_server(self._asked, sock=made))
        self._announce()

    def _announce(self) -> None:
        pid, workspaces = os.getpid(), self._context.sessions.settings.workspaces
        try:
            presence.announce(
                presence.Presence(
                    pid,
                    f"serve-{pid}",
                    __version__,
                    workspaces[0],
                    time.time(),
                    start_time(pid),
                    kind="serve",
                    workspaces=workspaces,
                )
            )
        except OSError:
            pass  # only our own commands look there

    async def _asked(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._askers += 1
        try:
            if self._askers <= control.MOST_ASKERS:
                writer.write(self._line())
                async with asyncio.timeout(control.PATIENCE_S):
                    await writer.drain()
        except (OSError, TimeoutError):
            pass  # who does not read is let go
        finally:
            self._askers -= 1
            writer.close()

    def _line(self) -> bytes:
        now = time.monotonic()
        if now - self._answered_at > FRESH_S:
            said = {"pid": os.getpid(), "version": __version__, "address": self._address}
            self._answer = msgspec.json.encode({**said, **report(self._context, now - self._began)}) + b"\n"
            self._answered_at = now
        return self._answer


def report(context: PageContext, uptime_s: float) -> dict[str, Any]:
    """In the form of a host's own report, for all sessions together and for each of those used last."""
    samples, recent = list(context.metrics.samples)[-SECONDS:], context.metrics.recent(SECONDS)
    sessions = sorted(context.clients, key=lambda one: -one.used_at)
    rows, calls = context.servers(), context.calls()
    totals = [one.kernel.state.metrics.totals for one in sessions]
    return {
        "v": REPORT_VERSION,
        "session": f"serve-{os.getpid()}",
        "client": f"{len(sessions)} {'session' if len(sessions) == 1 else 'sessions'}",
        "calls_per_s": round(sum(sample.calls for sample in samples) / SECONDS, 2),
        "latency_ms": {"p50": recent.p50 or 0.0, "p99": recent.p99 or 0.0},
        "in_flight": len(calls),
        "calls": [
            {
                "method": CALLS,
                "name": call.name[:MOST_NAME],
                "mount": call.mount,
                "age_ms": int(call.seconds * 1000),
            }
            for call in calls[:MOST_CALLS]
        ],
        "health": {
            "state": "degraded" if any(row.circuit != "closed" for row in rows) else "ready",
            "uptime_ms": int(uptime_s * 1000),
            "restart_count": sum(row.restarts for row in rows),
            "mounts": [_mount(row) for row in rows],
        },
        "telemetry": {
            "totals": {
                "requests": context.metrics.calls,
                "errors": context.metrics.errors,
                "tool_errors": context.metrics.tool_errors,
                "recovery_faults": context.sessions.server_pool.faults,
                "replays": sum(one.replays for one in totals),
            }
        },
        "events": [
            msgspec.to_builtins(event)
            for event in islice(context.sessions.server_pool.events.newest(), MOST_EVENTS)
        ],
        "session_count": len(sessions),
        "sessions": [_session(context, one) for one in sessions[:MOST_SESSIONS]],
    }


def _mount(row: ServerRow) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": row.name,
        "state": row.state,
        "circuit": row.circuit,
        "restarts": row.restarts,
        "tools": row.tools,
        "sessions": row.sessions,
        "pids": row.pids,
    }
    if row.last_fault:
        found["last_fault"] = {name: row.last_fault[name] for name in ("class", "code")}
    return found


def _session(context: PageContext, one: HttpSession) -> dict[str, Any]:
    state, known = one.kernel.state.session, one.kernel.state.metrics
    counters, now = known.methods.get(CALLS, known.totals), time.monotonic()
    return {
        "session": state.session_id,
        "client": state.client_name[:MOST_NAME],
        "workspace": one.workspace or context.sessions.settings.workspaces[0],
        "protocol": state.version or LATEST_MODERN,
        "idle_ms": int(max(0.0, now - one.used_at) * 1000),
        "calls_per_s": round(metrics.pace(known.pace, now), 2),
        "latency_ms": {
            name: round(metrics.quantile(counters.latency, share), 3)
            for name, share in (("p50", 0.5), ("p99", 0.99))
        },
        "in_flight": len(one.kernel.state.calls),
        "requests": known.totals.requests,
        "errors": known.totals.errors,
    }

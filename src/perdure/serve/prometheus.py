"""Metrics as Prometheus reads them: sums over all sessions, never a name or a content."""

from __future__ import annotations

import time
from typing import Final

from perdure.kernel.state import Open, Serving
from perdure.serve.session_table import SessionTable

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


def text(sessions: SessionTable, started: float) -> bytes:
    loaded = sessions.clients
    sums = sessions.past.copy()
    for session in loaded:
        sums.add(session)
    lines = [
        *_gauge("perdure_uptime_seconds", "Seconds since the start.", time.time() - started),
        *_gauge("perdure_sessions", "Sessions in memory.", len(loaded)),
        *_gauge("perdure_servers", "Processes behind them.", len(sessions.server_pool.running)),
        *_gauge(
            "perdure_calls_in_flight",
            "Calls that wait for a server.",
            sum(len(s.kernel.state.calls) for s in loaded),
        ),
        *_gauge("perdure_circuits_open", "Servers that are given a rest.", _phases(sessions, Open)),
        *_gauge("perdure_mounts_serving", "Servers that are ready.", _phases(sessions, Serving)),
        "# HELP perdure_faults_total Processes that failed, however many sessions used them.",
        "# TYPE perdure_faults_total counter",
        f"perdure_faults_total {sessions.server_pool.faults}",
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


def _phases(sessions: SessionTable, kind: type) -> int:
    return sum(
        isinstance(mount.phase, kind)
        for session in sessions.clients
        for mount in session.kernel.state.mounts.values()
    )


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

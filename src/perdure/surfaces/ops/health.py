"""The state of a session and of every server behind it, and its counters: the data of `health` and `telemetry`."""

from __future__ import annotations

from typing import Any

from perdure.kernel import metrics
from perdure.kernel.context import Context
from perdure.kernel.state import (
    Announced,
    Counters,
    Disabled,
    Idle,
    Modern,
    Mount,
    New,
    Open,
    Preparing,
    Serving,
    Settled,
    Starting,
    Stopped,
    Waiting,
)
from perdure.protocol.eras import LATEST_MODERN
from perdure.protocol.faults import Fault
from perdure.protocol.pending_trust import UntrustedFile, command_for


def health(k: Context) -> dict[str, Any]:
    state, session = k.state, k.state.session
    rows = [mount_row(k, mount) for mount in state.mounts.values()]
    newest = max((m.generation for m in state.mounts.values()), default=0)
    report: dict[str, Any] = {
        "state": _overall(k),
        **k.places(),
        "uptime_ms": int((k.now - session.started_at) * 1000),
        "protocol": session.version or (LATEST_MODERN if isinstance(session.phase, Modern) else ""),
        "generation": newest,
        "restart_count": sum(m.restarts for m in state.mounts.values()),
        "consecutive_failures": state.metrics.consecutive_failures,
        "rollout": _rollout(k),
        "pending": len(state.calls),
        "mounts": rows,
    }
    if state.metrics.last_fault is not None:
        report["last_fault"] = _fault(state.metrics.last_fault)
    if files := [_fault(fault) for faults in state.file_faults.values() for fault in faults]:
        report["file_faults"] = files
    if k.untrusted:
        report["untrusted"] = [_untrusted(file) for file in k.untrusted]
    if state.metrics.quarantined:
        report["quarantined"] = dict(sorted(state.metrics.quarantined.items()))
    return report


def _untrusted(file: UntrustedFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "changed": file.changed,
        "starts": [{"name": one.name, "runs": one.shown} for one in file.starts],
        "settings": list(file.settings),
        **({"problem": file.problem} if file.problem else {}),
        "todo": command_for(file.path),
        "waits": file.sentence,
    }


def _overall(k: Context) -> str:
    phases = [m.phase for m in k.state.mounts.values()]
    if any(isinstance(p, Open | Stopped) for p in phases) or any(k.state.file_faults.values()):
        return "degraded"
    for mount in k.state.mounts.values():
        if isinstance(mount.phase, Starting | Waiting):
            return "recovering" if mount.restarts else "starting"
    if isinstance(k.state.session.phase, New) and all(isinstance(p, Idle) for p in phases):
        return "cold"
    return "ready"


def _rollout(k: Context) -> str:
    kinds = {type(m.rollout) for m in k.state.mounts.values()}
    if Announced in kinds:
        return "announced"
    return "preparing" if Preparing in kinds else "settled"


def mount_row(k: Context, mount: Mount) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": mount.name,
        "state": "untrusted" if k.specs[mount.name].untrusted else _mount_state(mount),
        "generation": mount.generation,
        "restarts": mount.restarts,
        "circuit": _circuit(mount),
        "tools": k.public.count_tools(mount.name),
    }
    link = mount.serving_link()
    if link is None and isinstance(mount.phase, Starting):
        link = mount.links.get(mount.phase.generation)
    if link is not None and link.pid:
        row["pid"] = link.pid
        row["generation"] = link.generation
    if not isinstance(mount.rollout, Settled):
        row["rollout"] = type(mount.rollout).__name__.lower()
    if k.specs[mount.name].required:
        row["required"] = True
    if mount.changed:
        row["changed"] = list(mount.changed)
    if mount.held:
        row["held"] = sorted(mount.held)
    if mount.notices:
        row["notices"] = list(mount.notices)
    if sentence := k.specs[mount.name].untrusted:
        row["untrusted"] = sentence
    if reason := _trouble(k, mount):
        row["reason"] = reason
    if mount.last_fault is not None:
        row["last_fault"] = _fault(mount.last_fault)
        if mount.exit_code is not None:
            row["exit_code"] = mount.exit_code
        if mount.stderr:
            row["stderr"] = mount.stderr
    return row


def _mount_state(mount: Mount) -> str:
    match mount.phase:
        case Serving():
            return "ready"
        case Starting():
            return "recovering" if mount.restarts else "starting"
        case Waiting():
            return "recovering"
        case Open() | Stopped():
            return "degraded"
        case Disabled():
            return "disabled"
        case Idle():
            return "cold"


def _trouble(k: Context, mount: Mount) -> str:
    """Why a server does not serve, in words; empty for one that does, or that was disabled on request."""
    if k.specs[mount.name].untrusted:
        return k.specs[mount.name].untrusted
    fault = mount.last_fault
    if fault is None or not isinstance(mount.phase, Open | Stopped | Waiting | Starting):
        return ""
    reason = fault.detail or fault.code.replace("_", " ")
    return f"{reason}; {fault.hint}" if fault.hint else reason


def _circuit(mount: Mount) -> str:
    if isinstance(mount.phase, Open | Stopped):
        return "open"
    return "half_open" if mount.opened and isinstance(mount.phase, Starting) else "closed"


def _fault(fault: Fault) -> dict[str, Any]:
    fields = {
        "class": fault.fault_class,
        "code": fault.code,
        "generation": fault.generation,
        "detail": fault.detail,
        "hint": fault.hint,
    }
    return {key: value for key, value in fields.items() if value != ""}


# --- telemetry -----------------------------------------------------------------------------------------------


def telemetry(k: Context) -> dict[str, Any]:
    metrics_now = k.state.metrics
    return {
        "totals": _counters(metrics_now.totals),
        "methods": [
            {
                "method": method,
                **_counters(metrics_now.methods[method]),
                "latency_ms": latency(metrics_now.methods[method]),
            }
            for method in sorted(metrics_now.methods)
        ],
    }


def _counters(counters: Counters) -> dict[str, int]:
    return {
        "requests": counters.requests,
        "successes": counters.successes,
        "errors": counters.errors,
        "tool_errors": counters.tool_errors,
        "response_errors": counters.response_errors,
        "recovery_errors": counters.recovery_errors,
        "recovery_faults": counters.recovery_faults,
        "replays": counters.replays,
    }


def latency(found: Counters) -> dict[str, float]:
    latency_now = found.latency
    mean = latency_now.total / latency_now.count if latency_now.count else 0.0
    values = {
        "last": latency_now.last,
        "mean": mean,
        "p50": metrics.quantile(latency_now, 0.5),
        "p99": metrics.quantile(latency_now, 0.99),
        "max": latency_now.max,
    }
    return {name: round(value, 3) for name, value in values.items()}

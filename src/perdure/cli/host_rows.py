"""Hosts in numbers for a person: one row each, the same in `perdure status` and in `perdure top`."""

from __future__ import annotations

import time
from os.path import basename
from typing import Any

from perdure.cli.output import clean, count, duration, milliseconds, truncate

NO_HOSTS = "no host is running: a client starts one (perdure install CLIENT), or perdure serve"
SILENCES = {
    "no_answer": "does not answer",
    "no_socket": "cannot be asked (older, or no socket)",
    "not_understood": "answers something else",
}


class HostRow:
    """One host as it is shown. `trouble` is what a person should look at, empty where all is well."""

    __slots__ = ("calls", "client", "in_flight", "p50", "p99", "pid", "state", "trouble", "up", "workspace")

    def __init__(self, host: dict[str, Any]) -> None:
        report = host.get("report")
        self.pid = str(host["pid"])
        self.workspace = clean(host["workspace"])
        if report is None:
            self.client, self.state = "?", SILENCES.get(host["silence"], host["silence"])
            self.up = duration(time.time() - host["started"])
            self.calls = self.p50 = self.p99 = self.in_flight = "-"
            self.trouble = self.state
            return
        health, latency = report["health"], report["latency_ms"]
        self.client = clean(report["client"])
        self.state = health["state"]
        self.up = duration(health["uptime_ms"] / 1000)
        self.calls = f"{report['calls_per_s']:.1f}"
        self.p50 = milliseconds(latency["p50"])
        self.p99 = milliseconds(latency["p99"])
        self.in_flight = str(report["in_flight"])
        self.trouble = _trouble(report)


class SessionRow:
    """One session of a serving process."""

    __slots__ = ("calls", "client", "idle", "in_flight", "name", "p50", "p99", "protocol", "workspace")

    def __init__(self, session: dict[str, Any]) -> None:
        self.client = clean(session["client"]) or "?"
        self.name = clean(session["session"])[:10]
        self.workspace = clean(basename(session["workspace"]))
        self.protocol = clean(session["protocol"])
        self.idle = duration(session["idle_ms"] / 1000)
        self.calls = f"{session['calls_per_s']:.1f}"
        self.p50 = milliseconds(session["latency_ms"]["p50"])
        self.p99 = milliseconds(session["latency_ms"]["p99"])
        self.in_flight = str(session["in_flight"])


def sessions_of(host: dict[str, Any], most: int) -> tuple[list[SessionRow], int]:
    """The sessions of a serving process that were used last, and how many more there are."""
    report = host.get("report", {})
    rows = [SessionRow(one) for one in report.get("sessions", ())[:most]]
    return rows, report.get("session_count", 0) - len(rows)


def _trouble(report: dict[str, Any]) -> str:
    health, totals = report["health"], report["telemetry"]["totals"]
    opened = [clean(m["name"]) for m in health["mounts"] if m["circuit"] != "closed"]
    disabled = [clean(m["name"]) for m in health["mounts"] if m["state"] == "disabled"]
    untrusted = [clean(m["name"]) for m in health["mounts"] if m["state"] == "untrusted"]
    parts = [
        f"untrusted: {', '.join(untrusted)} (perdure trust)" if untrusted else "",
        f"circuit open: {', '.join(opened)}" if opened else "",
        f"disabled: {', '.join(disabled)}" if disabled else "",
        count(totals["recovery_faults"], "fault") if totals["recovery_faults"] else "",
        count(health["restart_count"], "restart") if health["restart_count"] else "",
        count(totals["errors"], "error") if totals["errors"] else "",
    ]
    return "  ".join(part for part in parts if part)


def last_fault(mount: dict[str, Any]) -> str:
    """Class and code only: a detail may hold what a server said."""
    fault = mount.get("last_fault")
    return f"{clean(fault.get('class', '?'))}/{clean(fault.get('code', '?'))}" if fault else ""


def summary(sample: dict[str, Any]) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(sample["ts"]))
    return (
        f"{when}  {count(sample['sessions'], 'session')}  {sample['calls_per_s']:.1f} calls/s  "
        f"{sample['in_flight']:,} in flight"
    )


def pids(mount: dict[str, Any]) -> str:
    """Of a server that runs; a serving process may have several of one."""
    found = mount.get("pids") or ([mount["pid"]] if mount.get("pid") else [])
    return f"pid {found[0]}" + (f" +{len(found) - 1}" if len(found) > 1 else "") if found else ""


def mount_style(mount: dict[str, Any]) -> str:
    if mount["circuit"] != "closed":
        return "red"
    return "dim" if mount["state"] == "ready" else "yellow"


def in_flight(host: dict[str, Any], most: int = 5) -> list[str]:
    """The oldest calls that a host holds."""
    calls = host.get("report", {}).get("calls", ())
    return [
        f"in flight {call['age_ms'] / 1000:.1f} s  {clean(call['mount'])}  {truncate(clean(call['name']), 30)}"
        for call in calls[:most]
    ]

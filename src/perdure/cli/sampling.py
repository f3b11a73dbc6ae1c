"""What `perdure top` shows, sampled: every host's report, and the rates between this one and the one before."""

from __future__ import annotations

import os
import time
from typing import Any

from perdure.cli.asking import ask_all
from perdure.host import presence


class Sampler:
    """`workspace` limits it to the hosts of one; None means all."""

    def __init__(self, workspace: str | None = None) -> None:
        self._workspace = os.path.realpath(workspace) if workspace is not None else None
        self._before: dict[tuple[int, str], tuple[float, int]] = {}

    def sample(self) -> dict[str, Any]:
        known = [host for host in presence.running() if self._workspace in (None, *host.workspaces)]
        hosts = [one.fields() for one in ask_all(known)]
        now, seen = time.monotonic(), {}
        for host in hosts:
            if "report" in host:
                key = (host["pid"], host["report"]["session"])
                asked = host["report"]["telemetry"]["totals"]["requests"]
                seen[key] = (now, asked)
                host["report"]["calls_per_s"] = self._rate(key, now, asked, host["report"]["calls_per_s"])
        self._before = seen
        reports = [host["report"] for host in hosts if "report" in host]
        return {
            "ts": round(time.time(), 3),
            "sessions": sum(host.get("report", {}).get("session_count", 1) for host in hosts),
            "calls_per_s": round(sum(report["calls_per_s"] for report in reports), 2),
            "in_flight": sum(report["in_flight"] for report in reports),
            "hosts": hosts,
        }

    def _rate(self, key: tuple[int, str], now: float, asked: int, told: float) -> float:
        """Since the sample before; where there is none, what the host itself counts."""
        if key not in self._before:
            return told
        then, had = self._before[key]
        return round(max(asked - had, 0) / max(now - then, 0.001), 2)

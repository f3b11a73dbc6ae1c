"""`perdure top`: what every session does, as it happens."""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec
from json import dumps
from typing import Any

from perdure.cli.host_client import query_hosts
from perdure.cli.host_rows import (
    NO_HOSTS,
    HostRow,
    in_flight,
    last_fault,
    mount_style,
    pids,
    sessions_of,
    summary,
)
from perdure.cli.output import Screen, clean, count, home, truncate, truncate_left
from perdure.cli.parser import new_parser
from perdure.host import presence

SHORTEST_S = 0.1
LONGEST_S = 3600.0
INTERRUPTED = 130
EVERY_S = 1.0
MOST_SESSIONS = 12  # so that one of them fits a screen


def parser() -> argparse.ArgumentParser:
    found = new_parser(
        "top",
        "What every session does, live: calls per second, latency, calls in flight, and the servers behind it. "
        "On a terminal with `rich` installed it is a screen that q or Ctrl-C ends; else it prints lines.",
    )
    found.add_argument("--workspace", metavar="DIR", help="only hosts of this workspace (default: all)")
    found.add_argument(
        "--interval",
        type=seconds,
        metavar="SECONDS",
        default=EVERY_S,
        help="seconds between two updates (default: 1)",
    )
    found.add_argument("--once", action="store_true", help="print the screen once and exit")
    found.add_argument(
        "--json", action="store_true", help="print one JSON object per update, each on one line"
    )
    return found


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not SHORTEST_S <= value <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text}: expected seconds from {SHORTEST_S:g} to {LONGEST_S:g}")
    return value


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    sampler = Sampler(options.workspace)
    try:
        if not (options.once or options.json) and sys.stdout.isatty() and _has_rich():
            from perdure.cli.top_live import live

            return live(sampler.sample, options.interval)
        return _lines(sampler, options)
    except KeyboardInterrupt:
        return 0 if not options.once else INTERRUPTED


def _has_rich() -> bool:
    return find_spec("rich") is not None


def _lines(sampler: Sampler, options: argparse.Namespace) -> int:
    screen = Screen()
    while True:
        sample = sampler.sample()
        if options.json:
            print(dumps(sample))
        else:
            show(sample, screen)
        sys.stdout.flush()
        if options.once:
            return 0
        time.sleep(options.interval)


class Sampler:
    """Reports of running hosts, with the call rate since the sample before. `workspace` limits it to the hosts of one."""

    def __init__(self, workspace: str | None = None) -> None:
        self._workspace = os.path.realpath(workspace) if workspace is not None else None
        self._before: dict[tuple[int, str], tuple[float, int]] = {}

    def sample(self) -> dict[str, Any]:
        known = [host for host in presence.running() if self._workspace in (None, *host.workspaces)]
        hosts = [one.fields() for one in query_hosts(known)]
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


def show(sample: dict[str, Any], screen: Screen) -> None:
    screen.line(summary(sample), "bold")
    if not sample["hosts"]:
        screen.line(NO_HOSTS, "dim")
    for host in sample["hosts"]:
        row = HostRow(host)
        screen.line(
            f"{row.pid:<8} {truncate(row.client, 14):<14} {truncate(row.state, 22):<10} up {row.up:<7} {row.calls:>6}/s "
            f"p50 {row.p50} p99 {row.p99}"
        )
        screen.line(f"         {truncate_left(home(row.workspace), screen.width - 9)}", "dim")
        if row.trouble and "report" in host:
            screen.line(f"         {row.trouble}", "yellow")
        for mount in host.get("report", {}).get("health", {}).get("mounts", ()):
            screen.line(f"         {mount_line(mount)}", mount_style(mount))
        for text in session_lines(host):
            screen.line(f"         {text}")
        for text in in_flight(host):
            screen.line(f"         {text}", "cyan")


def session_lines(host: dict[str, Any]) -> list[str]:
    """The sessions of a serving process, those used last first."""
    rows, more = sessions_of(host, MOST_SESSIONS)
    lines = [
        f"{row.name:<10} {truncate(row.client, 13):<13} {row.idle:<7} {row.calls:>5}/s {row.p50:>7} {row.p99:>7}  "
        f"{row.workspace}"
        for row in rows
    ]
    if not lines:
        return []
    head = f"{'session':<10} {'client':<13} {'idle':<7} {'calls':>7} {'p50':>7} {'p99':>7}  workspace"
    return [head, *lines, *([f"and {more:,} more sessions"] if more else [])]


def mount_line(mount: dict[str, Any]) -> str:
    fault = last_fault(mount)
    return (
        f"{truncate(clean(mount['name']), 20):<20} {mount['state']:<10} {pids(mount):<11} "
        + count(mount["restarts"], "restart")
        + (f"  circuit {mount['circuit']}" if mount["circuit"] != "closed" else "")
        + (f"  last fault {fault}" if fault else "")
    )

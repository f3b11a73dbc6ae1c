"""The live screen of `perdure top`, drawn with rich; q or Ctrl-C ends it and leaves the terminal as it was."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

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
from perdure.cli.output import clean, home
from perdure.platform.polling import READABLE, wait
from perdure.platform.terminal import single_keys

MOST_SESSIONS = 12  # so that one of them fits a screen
END = b"q\x03\x04"
OTHERS = 14  # lines that are not sessions


def live(sample: Callable[[], dict[str, Any]], interval: float) -> int:
    console = Console(highlight=False, markup=False, emoji=False)
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(drawn(sample(), max(console.height - OTHERS, 3)), refresh=True)
            if keys.ended_within(interval):
                return 0


def drawn(sample: dict[str, Any], room: int = MOST_SESSIONS) -> Group:
    """`room` is how many sessions of a serving process fit."""
    parts: list[Any] = [Text(f"perdure top  {summary(sample)}", "bold"), _sessions(sample["hosts"])]
    for host in sample["hosts"]:
        if "report" in host:
            if trouble := HostRow(host).trouble:
                parts.append(Text(f"  {trouble}", "yellow"))
            parts.append(_mounts(host))
            if "sessions" in host["report"]:
                parts.append(_served(host, room))
            parts += [Text(f"  {text}", "cyan") for text in in_flight(host)]
    if not sample["hosts"]:
        parts.append(Text(NO_HOSTS, "dim"))
    parts.append(Text("q ends", "dim"))
    return Group(*parts)


def _sessions(hosts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in ("pid", "client", "state", "up"):
        table.add_column(name, no_wrap=True)
    for name in ("calls/s", "p50", "p99", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("workspace", overflow="ellipsis", no_wrap=True, ratio=1)
    for host in hosts:
        row = HostRow(host)
        numbers = (row.up, row.calls, row.p50, row.p99, row.in_flight)
        cells = (row.pid, row.client, row.state, *numbers, home(row.workspace))
        table.add_row(*(Text(cell) for cell in cells), style="yellow" if row.trouble else "")
    return table


def _mounts(host: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left")
    for name in (
        f"servers of {host['pid']}",
        "state",
        "process",
        "restarts",
        "circuit",
        "tools",
        "last fault",
    ):
        table.add_column(name, no_wrap=True)
    for mount in host["report"]["health"]["mounts"]:
        cells = (
            f"  {clean(mount['name'])}",
            mount["state"],
            pids(mount),
            str(mount["restarts"]),
            mount["circuit"],
            str(mount["tools"]),
            last_fault(mount),
        )
        table.add_row(*(Text(cell) for cell in cells), style=mount_style(mount))
    return table


def _served(host: dict[str, Any], room: int) -> Group:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    rows, more = sessions_of(host, room)
    for name in (f"sessions of {host['pid']}", "client", "idle"):
        table.add_column(name, no_wrap=True)
    for name in ("calls/s", "p50", "p99", "busy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("workspace", overflow="ellipsis", no_wrap=True, ratio=1)
    for row in rows:
        cells = (
            row.name,
            row.client,
            row.idle,
            row.calls,
            row.p50,
            row.p99,
            row.in_flight,
            home(row.workspace),
        )
        table.add_row(*(Text(f"  {cell}" if not number else cell) for number, cell in enumerate(cells)))
    return Group(table, *([Text(f"  and {more:,} more", "dim")] if more else []))


class Keys:
    """Single keys from a terminal, without their echo. Where there is none, only the time passes."""

    def __init__(self) -> None:
        self._mode = ExitStack()

    def __enter__(self) -> Keys:
        self._fd = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
        if self._fd >= 0:
            self._mode.enter_context(single_keys(self._fd))
        return self

    def __exit__(self, *_: object) -> None:
        self._mode.close()

    def ended_within(self, seconds: float) -> bool:
        if self._fd < 0:
            time.sleep(seconds)
            return False
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if wait(self._fd, READABLE, left):
                typed = os.read(self._fd, 64)
                if not typed or any(key in END for key in typed):
                    return True
        return False

"""What the operating system knows of processes, for tests that ask who is left, what is open and how large.

A process and all its descendants are found by a mark in their environment, which an orphan keeps when it has
lost its parent. Linux only: it reads /proc.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

MARK: Final = "PERDURE_TEST_MARK"


def marked(mark: str) -> list[int]:
    """Every live process that was started with `MARK=mark` in its environment, or descends from one."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted in _environ(name) and state_of(int(name)) != "Z":
            found.append(int(name))
    return sorted(found)


def _environ(name: str) -> list[bytes]:
    try:
        with open(f"/proc/{name}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def state_of(pid: int) -> str:
    """The state letter of a process; empty where there is none, Z where it waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def rss_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise ProcessLookupError(pid)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time. For facts of which the operating system sends no event."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= until:
            return condition()
        time.sleep(0.005)
    return True

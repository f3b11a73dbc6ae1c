"""Events on standard error: plain lines, and the same trouble of a server once until it is ready again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.host.console import Console
from perdure.host.event_lines import describe_event

NO_COMMAND: dict[str, Any] = {
    "mount": "foo",
    "code": "spawn_failed",
    "class": "process",
    "detail": "nosuchcmd: No such file or directory",
    "starting": True,
}


class Heard:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def lines(self) -> list[str]:
        os.set_blocking(self._fd, False)
        try:
            return os.read(self._fd, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def stderr() -> Iterator[tuple[int, Heard]]:
    reader, writer = os.pipe()
    yield writer, Heard(reader)
    os.close(reader)
    os.close(writer)


def test_a_server_that_cannot_start_is_told_once_with_the_reason(stderr: tuple[int, Heard]) -> None:
    console, heard = Console(fd=stderr[0]), stderr[1]
    for attempt in range(1, 6):
        console.note("s", "fault", {**NO_COMMAND, "attempt": attempt, "attempts": 5})
    for seconds in (5.0, 10.0):
        console.note("s", "circuit", {"mount": "foo", "state": "open", "for_s": seconds})
    assert heard.lines() == [
        "perdure: foo did not start: nosuchcmd: No such file or directory (try 1 of 5)",
        "perdure: foo failed too often: the next try is in 5 s, later ones after longer waits",
    ]


def test_a_fault_of_another_kind_server_or_life_is_told_again(stderr: tuple[int, Heard]) -> None:
    console, heard = Console(fd=stderr[0]), stderr[1]
    killed = {"mount": "foo", "code": "killed", "class": "process", "detail": "ended by SIGKILL", "calls": 2}
    for fields in (
        killed,
        killed,
        {**killed, "mount": "bar", "calls": 0},
        {**killed, "detail": "ended by SIGTERM"},
    ):
        console.note("s", "fault", fields)
    console.note("s", "lifecycle", {"mount": "foo", "generation": 2, "phase": "serving"})
    console.note("s", "fault", {**killed, "calls": 1})
    assert heard.lines() == [
        "perdure: foo was ended by SIGKILL; 2 calls were running",
        "perdure: bar was ended by SIGKILL",
        "perdure: foo was ended by SIGTERM; 2 calls were running",
        "perdure: foo was ended by SIGKILL; 1 call was running",
    ]


@pytest.mark.parametrize(
    ("event", "fields", "line"),
    [
        ("lifecycle", {"mount": "a", "generation": 2, "phase": "serving"}, "a is ready (generation 2)"),
        ("session", {"phase": "closing"}, "the session is closing"),
        ("fault", {"mount": "a", "code": "exited", "detail": "exit code 3"}, "a ended with exit code 3"),
        (
            "fault",
            {"source": "settings", "code": "bad", "detail": "x.toml line 3: no key y"},
            "x.toml line 3: no key y",
        ),
        (
            "tools_changed",
            {"mount": "a", "tools": "x,y", "held": True},
            "the tools of a changed: x, y; they are held back until you run: perdure registry approve a",
        ),
        ("dispatch", {"mount": "a", "call": 4, "method": "tools/call"}, "call 4 (tools/call) was sent to a"),
        ("log", {"logger": "x", "message": "slow"}, "slow"),
        ("brand_new", {"n": 1, "session": "s"}, "brand new n=1"),
        ("lifecycle", {"phase": "serving"}, "lifecycle phase=serving"),
    ],
)
def test_an_event_is_a_plain_line(event: str, fields: dict[str, Any], line: str) -> None:
    assert describe_event(event, fields) == line

"""Which hosts are running: only live ones, never another process that took an old number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perdure.host import presence
from perdure.host.presence import Presence
from perdure.platform.processes import start_time


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    return tmp_path / "hosts"


def of(pid: int, ticks: int | None = None) -> Presence:
    known = start_time(pid) if ticks is None else ticks
    return Presence(pid, "session", "0.1.0", "/work", 1.0, known, ("fake",))


def test_a_host_that_announced_itself_is_found_until_it_withdraws(hosts: Path) -> None:
    mine = of(os.getpid())

    presence.announce(mine)

    assert presence.running() == [mine]
    assert (hosts / f"{os.getpid()}.json").stat().st_mode & 0o777 == 0o600
    presence.withdraw()
    assert presence.running() == []
    presence.withdraw()


def test_what_a_dead_host_left_behind_is_removed(hosts: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        ticks = start_time(process.pid)
    presence.announce(of(process.pid, ticks or 1))

    assert presence.running() == []
    assert list(hosts.iterdir()) == []


def test_another_process_with_the_same_number_is_not_taken_for_it(hosts: Path) -> None:
    presence.announce(of(os.getpid(), start_time(os.getpid()) - 1))

    assert presence.running() == []


def test_a_file_that_cannot_be_read_is_left_alone(hosts: Path) -> None:
    presence.announce(of(os.getpid()))
    (hosts / "1.json").write_bytes(b"not json")
    (hosts / f"{os.getpid()}.json.99").write_bytes(msgspec.json.encode(of(os.getpid()).fields()))

    assert presence.running() == [of(os.getpid())]
    assert (hosts / "1.json").exists()


def test_no_process_began_at_zero() -> None:
    assert start_time(os.getpid()) > 0
    assert start_time(2**22 + 1) == 0

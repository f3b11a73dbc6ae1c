"""A running host says how it is, to its owner alone, and whoever asks costs the session nothing."""

from __future__ import annotations

import os
import signal
import socket
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from harness.processes import wait_for
from perdure.cli.host_client import HostStatus, query_hosts
from perdure.host import presence
from testbed import Bed, Client


@pytest.fixture(autouse=True)
def at_home(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands' functions look where the bed's hosts are."""
    monkeypatch.setenv("PERDURE_HOME", bed.environ["PERDURE_HOME"])


def address(client: Client) -> Path:
    return Path(presence.folder()) / presence.socket_name(client.pid)


def ask(seconds: float = 5) -> HostStatus:
    (one,) = query_hosts(presence.running(), seconds)
    return one


def connected(path: Path) -> socket.socket:
    """However long the path is."""
    made = socket.socket(socket.AF_UNIX)
    fd = os.open(path.parent, os.O_RDONLY)
    try:
        made.connect(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)
    return made


@pytest.mark.thorough
def test_a_host_tells_its_health_its_telemetry_and_the_calls_it_holds(bed: Bed) -> None:
    client = bed.run(bed.fake())
    client.use("fake__echo", {"text": "before"})
    call = client.begin_use("fake__slow", {"ms": 1500, "secret": "never shown"})
    client.use("health")

    report = ask().report

    assert report is not None
    assert (report["v"], report["pid"], report["client"]) == (1, client.pid, "raw-client")
    assert report["health"]["mounts"][1]["name"] == "fake"
    assert report["telemetry"]["totals"]["requests"] >= 3
    (held,) = [one for one in report["calls"] if one["name"] == "slow"]
    assert (held["mount"], held["state"], held["attempts"]) == ("fake", "inflight", 1)
    assert held["age_ms"] >= 0
    assert "never shown" not in str(report)
    assert report["calls_per_s"] > 0
    assert report["latency_ms"]["p50"] > 0
    client.wait(call)


def test_only_its_owner_can_reach_it_and_it_goes_with_the_host(bed: Bed) -> None:
    client = bed.run(bed.fake())
    path = address(client)

    facts = path.lstat()

    assert stat.S_ISSOCK(facts.st_mode)
    assert stat.S_IMODE(facts.st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert client.close() == 0
    assert list(path.parent.iterdir()) == []


def test_a_killed_host_leaves_a_socket_that_the_next_look_removes(bed: Bed) -> None:
    client = bed.run(bed.fake())
    path = address(client)
    client.is_checked = False
    client.kill()
    assert path.exists()

    assert presence.running() == []

    assert not path.exists()


@pytest.mark.thorough
def test_it_answers_again_after_the_host_replaced_itself(bed: Bed) -> None:
    client = bed.run(bed.fake())
    before = ask().report
    os.kill(client.pid, signal.SIGUSR2)

    log = bed.root / "home" / "log" / "events.jsonl"
    assert wait_for(lambda: b"host_replaced" in log.read_bytes(), 15)
    assert wait_for(lambda: ask().report is not None, 5)
    after = ask().report
    assert after is not None
    assert after["session"] == before["session"]  # type: ignore[index]


def test_a_host_that_hangs_is_not_waited_for(bed: Bed) -> None:
    client = bed.run(bed.fake())
    os.kill(client.pid, signal.SIGSTOP)
    try:
        asked = ask(0.3)
    finally:
        os.kill(client.pid, signal.SIGCONT)

    assert (asked.report, asked.no_answer_reason) == (None, "no_answer")
    assert asked.presence.pid == client.pid


def test_those_who_ask_and_never_read_do_not_keep_others_from_asking_nor_the_session_from_working(
    bed: Bed,
) -> None:
    client = bed.run(bed.fake())
    deaf = [connected(address(client)) for _ in range(40)]
    try:
        assert client.use_text("fake__echo", {"text": "working"}) == "working"
        assert wait_for(lambda: ask().report is not None, 10)
        for one in deaf:
            one.close()
        assert client.use_text("fake__echo", {"text": "still"}) == "still"
    finally:
        for one in deaf:
            one.close()


def test_whatever_is_sent_to_it_is_not_read(bed: Bed) -> None:
    client = bed.run(bed.fake())
    with connected(address(client)) as rude, suppress(OSError):
        rude.sendall(b"x" * 10_000_000)

    assert client.use_text("fake__echo", {"text": "untouched"}) == "untouched"
    assert ask().report is not None


def test_a_home_whose_name_is_too_long_for_a_socket_works_too(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = bed.root / ("long" * 30)
    bed.environ["PERDURE_HOME"] = str(home)
    monkeypatch.setenv("PERDURE_HOME", str(home))

    client = bed.run(bed.fake())

    report = ask().report
    assert report is not None
    assert report["pid"] == client.pid


def test_where_no_socket_can_be_opened_the_host_serves_all_the_same(bed: Bed) -> None:
    home = bed.root / "home"
    home.mkdir()
    (home / "hosts").write_text("not a folder")

    client = bed.run(bed.fake())

    assert client.use_text("fake__echo", {"text": "served"}) == "served"

"""`perdure top`: live on a terminal, lines and JSON elsewhere, and gone without a trace when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from commands import SCRIPT, Terminal, perdure, told

from harness.processes import wait_for
from testbed import Bed


@pytest.mark.thorough
def test_one_look_shows_sessions_servers_and_the_calls_they_hold(bed: Bed) -> None:
    client = bed.run(bed.fake())
    client.wait_row("fake", state="ready")
    call = client.begin_use("fake__slow", {"ms": 5000})
    client.use("health")

    done = perdure(bed, "top", "--once")

    assert done.returncode == 0, done.stderr
    for word in ("1 session", "raw-client", "fake", "ready", "0 restarts", "slow", "in flight"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    client.wait(call)


def test_a_server_that_died_is_shown_with_its_restarts_and_its_fault(bed: Bed) -> None:
    client = bed.run(bed.fake())
    client.kill_mount("fake")

    (host,) = told(bed, "top", "--once")["hosts"]

    row = next(m for m in host["report"]["health"]["mounts"] if m["name"] == "fake")
    assert (row["restarts"], row["last_fault"]["code"]) == (1, "killed")
    assert "1 restart  last fault process/killed" in perdure(bed, "top", "--once").stdout


@pytest.mark.thorough
def test_looks_follow_each_other_with_the_rate_between_them(bed: Bed) -> None:
    client = bed.run(bed.fake())
    top = subprocess.Popen(
        [*SCRIPT, "top", "--json", "--interval", "0.3"],
        env=bed.environ,
        cwd=bed.workspace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert top.stdout is not None
        first = json.loads(top.stdout.readline())
        for number in range(20):
            client.use("fake__echo", {"text": str(number)})
        looks = [first] + [json.loads(top.stdout.readline()) for _ in range(3)]
        asked = [look["hosts"][0]["report"]["telemetry"]["totals"]["requests"] for look in looks]
        rates = [look["calls_per_s"] for look in looks]
        assert all(
            (more > before) == (rate > 0)
            for before, more, rate in zip(asked, asked[1:], rates[1:], strict=False)
        )
        assert asked[-1] - asked[0] >= 20
        top.send_signal(signal.SIGINT)
        assert top.wait(10) == 0
        assert top.stderr is not None
        assert top.stderr.read() == ""
    finally:
        top.kill()
        top.wait()
        for pipe in (top.stdout, top.stderr):
            if pipe is not None:
                pipe.close()


def test_the_live_screen_follows_what_happens_and_q_ends_it(bed: Bed) -> None:
    client = bed.run(bed.fake())
    screen = Terminal(bed, "top", "--interval", "0.2", columns=110)
    screen.wait_for("raw-client")
    screen.wait_for("servers of")
    client.kill_mount("fake")
    screen.wait_for("process/killed")

    screen.type("q")

    assert screen.end() == 0
    assert "\x1b[?1049h" in screen.shown  # a screen of its own
    assert screen.shown.rstrip().endswith(("\x1b[?1049l", "\x1b[?25h"))  # and the old one back


def test_ctrl_c_ends_the_live_screen_as_cleanly(bed: Bed) -> None:
    screen = Terminal(bed, "top", "--interval", "0.2")
    screen.wait_for("no host is running")
    screen.type("\x03")
    assert screen.end() == 0
    assert "Traceback" not in screen.shown
    assert "\x1b[?1049l" in screen.shown


def test_without_rich_a_terminal_gets_lines(bed: Bed) -> None:
    (bed.root / "without").mkdir()
    (bed.root / "without" / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\n")
    bed.run(bed.fake())
    shown = Terminal(bed, "top", "--interval", "0.2", PYTHONPATH=str(bed.root / "without"))
    shown.wait_for("raw-client")
    shown.type("\x03")
    assert shown.end() == 0
    assert "\x1b[?1049h" not in shown.shown


def test_a_session_that_ends_leaves_the_screen(bed: Bed) -> None:
    client = bed.run(bed.fake())
    assert told(bed, "top", "--once")["sessions"] == 1
    assert client.close() == 0
    assert wait_for(lambda: told(bed, "top", "--once")["sessions"] == 0, 5)


def test_hosts_of_another_workspace_can_be_left_out(bed: Bed) -> None:
    bed.run(bed.fake())
    assert told(bed, "top", "--once", "--workspace", str(bed.workspace))["sessions"] == 1
    assert told(bed, "top", "--once", "--workspace", str(bed.root))["sessions"] == 0


def test_an_interval_that_cannot_be_meant_is_refused(bed: Bed) -> None:
    for text in ("0", "-1", "often", "nan"):
        done = perdure(bed, "top", "--interval", text)
        assert done.returncode == 2
        assert "--interval" in done.stderr


def test_a_reader_who_leaves_ends_it(bed: Bed) -> None:
    reading, writing = os.pipe()
    top = subprocess.Popen(
        [sys.executable, "-P", "-m", "perdure", "top", "--interval", "0.1"],
        env=bed.environ,
        cwd=bed.workspace,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    try:
        assert top.wait(15) == 1
        assert top.stderr is not None
        assert top.stderr.read() == b""
    finally:
        top.kill()
        top.wait()
        if top.stderr is not None:
            top.stderr.close()

"""A bug of the kernel's own costs the frame that met it, and no more: the kernels here trip over one word."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from hosts import SOON, notes

from harness.processes import is_running, wait_for
from testbed import Bed


def trip(installed: Path, file: str, function: str, frame: str) -> None:
    """Make a function of the installed kernel raise where its frame says `boom`."""
    source = (installed / file).read_text()
    assert source.count(function) == 1
    guard = f'    if b"boom" in {frame}:\n        raise KeyError("a bug")\n'
    (installed / file).write_text(source.replace(function, function + guard))


@pytest.mark.thorough
def test_a_frame_of_the_client_that_the_kernel_trips_over_is_answered(bed: Bed, installed: Path) -> None:
    trip(
        installed,
        "kernel/client_frames.py",
        "def on_frame(k: Context, event: ClientFrame) -> None:\n",
        "event.frame",
    )
    client = bed.run(bed.fake())
    running = client.begin_use("fake__slow", {"ms": 300})

    answer = client.use("fake__echo", {"text": "boom"})

    assert answer["error"]["data"]["class"] == "invariant"
    assert "result" in client.wait(running)
    assert client.use_text("fake__echo", {"text": "and on"}) == "and on"
    assert client.health()["quarantined"]["invariant"] == 1
    assert "KeyError" in client.stderr


def test_a_frame_of_a_server_that_the_kernel_trips_over_costs_that_server(bed: Bed, installed: Path) -> None:
    trip(
        installed,
        "kernel/child_frames.py",
        "def on_frame(k: Context, event: ChildFrame) -> None:\n",
        "event.frame",
    )
    client = bed.run(bed.fake(), bed.fake(name="other"))
    before = client.use_data("fake__whoami")["pid"]
    other = client.use_data("other__whoami")["pid"]

    answer = client.use("fake__effect", {"key": "boom"})

    assert answer["error"]["data"]["outcome"] == "unknown"
    assert client.use_data("fake__whoami")["pid"] != before
    assert client.use_data("other__whoami")["pid"] == other
    assert wait_for(lambda: not is_running(before), SOON)
    assert client.row("fake")["last_fault"]["code"] == "unhandled_frame"


def test_a_bug_is_told_by_its_place_without_content_and_without_waiting_for_a_reader(
    bed: Bed, installed: Path
) -> None:
    trip(
        installed,
        "kernel/client_frames.py",
        "def on_frame(k: Context, event: ClientFrame) -> None:\n",
        "event.frame",
    )
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, b"nobody reads this\n" * 100):
            pass
    os.set_blocking(writing, True)
    host = subprocess.Popen(
        bed.command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writing,
        env=bed.environ,
        cwd=bed.workspace,
    )
    assert host.stdin is not None
    assert host.stdout is not None
    try:
        for number in range(20):
            host.stdin.write(b'{"jsonrpc":"2.0","id":%d,"method":"boom secret"}\n' % number)
            host.stdin.flush()
            assert json.loads(host.stdout.readline())["id"] == number
        host.stdin.close()
        assert host.wait(SOON) == 0
    finally:
        host.kill()
        host.wait()
        host.stdout.close()
        os.close(reading)
        os.close(writing)
    faults = notes(bed, "fault", code="unhandled_frame")
    assert len(faults) == 20
    assert faults[0]["where"].startswith("client_frames.py:")
    assert "secret" not in str(faults)
    assert "a bug" not in str(faults)

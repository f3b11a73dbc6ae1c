"""A bug of the kernel's own costs the frame that met it, and no more: the kernels here trip over one word."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import SOON

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
        "kernel/session.py",
        "def on_frame(k: Kernel, event: ClientFrame) -> None:\n",
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
        installed, "kernel/mounts.py", "def on_frame(k: Kernel, event: ChildFrame) -> None:\n", "event.frame"
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

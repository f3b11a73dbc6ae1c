"""How children end, and that the end of one is never taken for, or done to, another."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hosts import SOON, pids, wait_note

from harness.processes import is_running, wait_for
from testbed import Bed, Server

# Answers the first request, in whichever era it is, says some last words and leaves, so often; then it is the
# fake server.
LEAVER = """
import os, sys, json
path, times, words, *fake = sys.argv[1:]
with open(path, "ab") as file:
    file.write(b".")
if os.path.getsize(path) <= int(times):
    asked = json.loads(sys.stdin.buffer.readline())
    result = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
              "serverInfo": {"name": "leaver", "version": "1"}}
    answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    os.write(1, answer.encode() + b"\\n" + words.encode())
    os._exit(7)
os.execv(fake[0], fake)
"""
PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


def leaver(bed: Bed, times: int, words: str) -> Server:
    fake = bed.fake()
    count = str(bed.root / "count")
    return Server("fake", (sys.executable, "-c", LEAVER, count, str(times), words, *fake.argv), fake.ledgers)


@pytest.mark.thorough
@pytest.mark.parametrize("words", ["", PING * 3, "half a line"], ids=["silent", "asking", "cut off"])
def test_a_server_that_leaves_with_an_answer_on_its_lips_is_started_again(bed: Bed, words: str) -> None:
    client = bed.run(leaver(bed, 3, words), bed.fake(name="other"))

    assert client.use_text("fake__echo", {"text": "at last"}) == "at last"

    row = client.row("fake")
    assert (row["restarts"], row["last_fault"]["detail"]) == (3, "exit code 7")
    assert client.use_text("other__echo", {"text": "x" * 500_000}) == "x" * 500_000


@pytest.mark.thorough
def test_the_late_end_of_one_server_is_not_done_to_another(bed: Bed) -> None:
    """A descriptor is closed when a server is stopped; by the time it ends, its number may be another's."""
    client = bed.run(bed.fake("--stubborn", name="stays"), bed.fake(name="other"))
    before = pids(client)
    os.kill(client.pid, signal.SIGHUP)
    wait_note(bed, "rollout", phase="fenced", mount="stays")
    wait_note(bed, "rollout", phase="fenced", mount="other")
    for _ in range(3):
        client.kill_mount("other")
        client.use_text("other__echo", {"text": "anew"})

    assert is_running(before["stays"])
    assert wait_for(lambda: not is_running(before["stays"]), SOON)

    text = "x" * 3_000_000
    assert client.use_text("other__echo", {"text": text}) == text
    assert client.use_text("stays__echo", {"text": text}) == text


@pytest.mark.thorough
def test_a_stopped_server_may_take_its_time_to_tidy_up(bed: Bed, tmp_path: Path) -> None:
    """It closed its pipes and still writes something down: only one that was not told to go is cut short."""
    done = tmp_path / "done"
    script = (
        "import os, sys, time, threading\n"
        "from perdure.testing import fake_server\n"
        "def leave(code):\n"
        "    os.close(1)\n"
        "    time.sleep(0.8)\n"
        f"    open({str(done)!r}, 'w').close()\n"
        "    os.kill(os.getpid(), 9)\n"
        "os._exit = leave\n"
        "fake_server.main([])\n"
    )
    client = bed.run(Server("tidy", (sys.executable, "-c", script), tmp_path))
    client.use("tidy__echo", {"text": "up"})
    os.kill(client.pid, signal.SIGHUP)
    wait_note(bed, "rollout", phase="fenced", mount="tidy")

    assert wait_for(done.exists, SOON)
    assert client.use_text("tidy__echo", {"text": "next"}) == "next"

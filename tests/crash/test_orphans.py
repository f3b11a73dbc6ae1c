"""However a host ends, nothing it started goes on without it; and what its children leave it clears away."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hosts import SOON, alive, are_alive, mark, none_left, pids

from harness.processes import is_running, wait_for
from testbed import Bed


@pytest.fixture(autouse=True)
def _marked(bed: Bed) -> None:
    mark(bed)


@pytest.mark.parametrize("options", [(), ("--stubborn",)], ids=["tame", "stubborn"])
def test_a_killed_host_takes_its_children_and_theirs_along(bed: Bed, options: tuple[str, ...]) -> None:
    client = bed.run(bed.fake(*options))
    client.use("fake__grandchild", {"seconds": 300})
    client.begin_use("fake__hang")
    assert are_alive(bed, 5), alive(bed)  # the host, its guardian, the worker, the fake and its child

    client.kill()

    assert none_left(bed), alive(bed)


def test_a_host_killed_while_it_starts_leaves_nothing(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake("--start-delay", "60")))
    assert wait_for(lambda: len(alive(bed)) >= 3, SOON)

    client.kill()

    assert none_left(bed), alive(bed)


@pytest.mark.thorough
def test_a_killed_guardian_is_replaced_and_knows_everyone(bed: Bed) -> None:
    client = bed.run(bed.fake())
    known = {client.pid, *pids(client).values()}
    assert are_alive(bed, 4), alive(bed)
    (guardian,) = set(alive(bed)) - known

    os.kill(guardian, signal.SIGKILL)
    assert wait_for(lambda: len(set(alive(bed)) - known - {guardian}) == 1, SOON)
    assert client.use_text("fake__echo", {"text": "still here"}) == "still here"
    client.kill()

    assert none_left(bed), alive(bed)


@pytest.mark.thorough
@pytest.mark.parametrize("options", [(), ("--stubborn",)], ids=["tame", "stubborn"])
def test_a_client_that_closes_its_end_ends_everything(bed: Bed, options: tuple[str, ...]) -> None:
    client = bed.run(bed.fake(*options))
    client.use("fake__grandchild", {"seconds": 300})

    assert client.close() == 0

    assert none_left(bed), alive(bed)


def test_a_client_that_closes_its_end_still_gets_its_answers(bed: Bed) -> None:
    server = bed.fake()
    client = bed.run(server)
    client.use("fake__echo", {"text": "up"})
    call = client.begin_use("fake__effect", {"key": "k", "delay_ms": 300})

    client.close_stdin()

    assert "result" in client.wait(call)
    assert client.wait_end() == 0
    assert server.effects == ["effect k"]
    assert none_left(bed), alive(bed)


def test_the_end_of_the_input_ends_its_last_line(bed: Bed) -> None:
    client = bed.run(bed.fake())

    client.send_bytes(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
    client.asked.append(("last", "ping", False))
    client.close_stdin()

    assert client.wait("last")["result"] == {}
    assert client.wait_end() == 0


@pytest.mark.thorough
def test_a_host_told_to_terminate_finishes_and_leaves_nothing(bed: Bed) -> None:
    client = bed.run(bed.fake("--stubborn"))
    client.use("fake__echo", {"text": "up"})
    call = client.begin_use("fake__slow", {"ms": 300})
    client.use("health")

    client.process.terminate()

    assert "result" in client.wait(call)
    assert client.wait_end() == 0
    assert none_left(bed), alive(bed)


def test_a_dead_child_is_noticed_although_its_own_child_holds_the_pipe(bed: Bed) -> None:
    client = bed.run(bed.fake())
    grandchild = client.use_data("fake__grandchild", {"seconds": 300})["pid"]

    lost = client.use("fake__die")

    assert lost["error"]["data"]["code"] == "killed"
    assert client.use_text("fake__echo", {"text": "anew"}) == "anew"
    assert wait_for(lambda: not is_running(grandchild), SOON)


def test_a_child_of_a_child_in_a_session_of_its_own_delays_no_recovery(bed: Bed) -> None:
    client = bed.run(bed.fake())
    escaped = client.use_data("fake__grandchild", {"seconds": 300, "session": True})["pid"]
    try:
        client.use("fake__die")

        assert client.use_text("fake__echo", {"text": "anew"}) == "anew"
        assert client.close() == 0
    finally:
        os.kill(escaped, signal.SIGKILL)
    assert none_left(bed), alive(bed)


@pytest.mark.thorough
def test_a_restarted_stubborn_child_is_gone_when_its_successor_serves(bed: Bed) -> None:
    client = bed.run(bed.fake("--stubborn"))
    before = pids(client)["fake"]

    client.use("mounts", {"action": "restart", "name": "fake"})

    assert client.use_data("fake__whoami")["pid"] != before
    assert wait_for(lambda: not is_running(before), SOON)


def test_a_command_that_cannot_be_run_is_named_with_its_reason(bed: Bed) -> None:
    client = bed.start([*bed.command(bed.fake()), "--mount", "missing=/no/such/command --flag"])
    client.initialize()

    row = client.wait_row("missing", circuit="open")

    assert row["last_fault"]["code"] == "spawn_failed"
    assert row["last_fault"]["detail"] == "command: No such file or directory"
    assert client.use_text("fake__echo", {"text": "undisturbed"}) == "undisturbed"


def test_a_folder_that_is_missing_is_named_instead_of_the_command(bed: Bed) -> None:
    text = f"## away\ncommand: {sys.executable}\nargs: -c, pass\ncwd: gone\n## Allowed commands\n"
    bed.trusted("mcp.md", text + os.path.basename(sys.executable) + "\n")
    client = bed.run()
    client.names()

    fault = client.wait_row("away", state="degraded")["last_fault"]

    assert fault["code"] == "spawn_failed"
    assert str(bed.workspace / "gone") in fault["detail"]
    assert "cwd" in fault["hint"]

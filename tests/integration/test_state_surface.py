"""The state surface through the whole host: real processes, a real store, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.platform.fault_points import names
from testbed import Bed, Client

FULL = {"render": "json", "detail": "full"}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.thorough)])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").new_database())
    return str(tmp_path / "store" / "state.db")


def run(bed: Bed, state: str, **env: str) -> Client:
    bed.environ |= {"PERDURE_STATE": state, **env}
    return bed.run()


def use(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    return client.use_data(tool, {**arguments, **FULL}, timeout=40)


def test_two_hosts_share_a_store(bed: Bed, state: str) -> None:
    one, other = run(bed, state), run(bed, state)

    made = use(one, "set_state", key="plan", value='{"step":1}', expected_version=0)
    waiting = other.begin_use("state_wait", {"key": "plan", "after": made["revision"], **FULL})
    seen = use(other, "get_state", key="plan")
    use(one, "state_patch", key="plan", op="merge", value='{"step":2}')
    woken = other.wait(waiting, 30)["result"]["structuredContent"]

    assert seen["value"] == '{"step":1}'
    assert (woken["status"], woken["changes"][0]["version"]) == ("changed", 2)
    audit = use(other, "state_history", key="plan")["versions"]
    assert [(row["client"], row["tool"]) for row in audit] == [
        ("raw-client", "state_patch"),
        ("raw-client", "set_state"),
    ]
    assert all(row["session"] for row in audit)


def test_porcelain_is_the_default_and_says_what_happened(bed: Bed, tmp_path: Path) -> None:
    client = run(bed, str(tmp_path / "state.db"))

    made = client.use_text("set_state", {"key": "a", "value": "1"})
    read = client.use_text("get_state", {"key": "a"})
    listed = client.use_text("list_state", {})

    assert made.splitlines()[0] == "ok a  version 1  revision 1"
    assert read.splitlines()[0] == "ok a  version 1  revision 1"
    assert "value: 1" in read.splitlines()[1:]
    assert listed.splitlines()[0] == "1 key  revision 1"
    client.use("set_state", {"key": "b", "value": '{"n": 1.50}'})
    first = client.use_text("list_state", {"limit": 1}).splitlines()
    assert first[-1].startswith("more keys: give cursor=")
    second = client.use_text("list_state", {"limit": 1, "cursor": first[-1].partition("=")[2].strip("'")})
    assert [line.split(" | ")[0] for line in (first[2], second.splitlines()[2])] == ["a", "b"]
    history = client.use_text("state_history", {"key": "b"}).splitlines()
    assert history[0] == "b  1 version"
    assert history[2].split(" | ")[:3] == ["1", "2", '{"n":1.50}']
    assert client.use_text("delete_state", {"key": "none"}).startswith("none was not there  ")
    assert client.use_text("delete_state", {"key": "b"}) == "deleted b  version 2  revision 3"


def test_the_guides_can_be_read(bed: Bed, tmp_path: Path) -> None:
    client = run(bed, str(tmp_path / "state.db"))

    for name in ("usage", "coordination", "keys"):
        (found,) = client.get("resources/read", {"uri": f"checkpoint://docs/{name}"})["contents"]
        assert found["mimeType"] == "text/markdown"
        assert found["text"].startswith("# ")


POINTS = [name for name in names() if name.startswith("state.")]


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_in_a_commit_leaves_exactly_one_effect(
    bed: Bed, state: str, point: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    client = run(bed, state)
    assert use(client, "state_patch", key="n", op="increment", value="1")["value"] == "1"
    client.close()
    armed = run(bed, state, PERDURE_FAULT=f"{point}=pause:{gate}")

    asked = armed.begin_use("state_patch", {"key": "n", "op": "increment", "value": "1", **FULL})
    while not gate.exists() or not gate.read_text():
        time.sleep(0.005)
    os.kill(int(gate.read_text()), signal.SIGKILL)
    for answered in _letting_through(armed, asked, gate):
        found = answered

    assert (found["status"], found["value"], found["version"]) == ("ok", "2", 2)
    assert use_through(armed, gate, "get_state", key="n")["value"] == "2"


def _letting_through(client: Client, asked: Any, gate: Path) -> Iterator[dict[str, Any]]:
    """The successor pauses there as well: let it go on until the answer is there."""
    until = time.monotonic() + 40
    while not client.answers.get(asked):
        gate.unlink(missing_ok=True)
        time.sleep(0.01)
        assert time.monotonic() < until
    gate.unlink(missing_ok=True)
    yield client.answers[asked][0]["result"]["structuredContent"]


def use_through(client: Client, gate: Path, tool: str, **arguments: Any) -> dict[str, Any]:
    asked = client.begin_use(tool, {**arguments, **FULL})
    return next(_letting_through(client, asked, gate))


@pytest.mark.thorough
def test_a_wait_misses_nothing_where_its_worker_dies_unawares(bed: Bed, tmp_path: Path) -> None:
    """No `after` was given: what counts is when the call was made, not when another worker got it."""
    one, other = (run(bed, str(tmp_path / "state.db")) for _ in range(2))
    use(one, "set_state", key="plan", value="1")
    waiting = one.begin_use("state_wait", {"key": "plan", "timeout_s": 20, **FULL})
    use(one, "get_state", key="plan")  # a later call was answered: the wait is under way
    worker = one.wait_row("perdure", state="ready")["pid"]
    os.kill(worker, signal.SIGSTOP)
    changed = use(other, "set_state", key="plan", value="2")
    os.kill(worker, signal.SIGKILL)

    woken = one.wait(waiting, 15)["result"]["structuredContent"]

    assert [one["revision"] for one in woken["changes"]] == [changed["revision"]]


@pytest.mark.thorough
def test_a_locked_database_freezes_nothing(bed: Bed, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    client = run(bed, str(path))
    use(client, "set_state", key="a", value="1")
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"

        asked = client.begin_use("set_state", {"key": "a", "value": "2", **FULL})
        client.get("ping")
        read = use(client, "get_state", key="a")
        written = use(client, "safe_write", path="note.txt", content="x")
        was_first = asked not in client.answers
        refused = client.wait(asked, 30)["result"]

        other.stdin.close()
    assert was_first
    assert (read["value"], written["ok"]) == ("1", True)
    assert refused["isError"]
    assert refused["structuredContent"]["context"]["fault"]["code"] == "state_locked"
    assert use(client, "set_state", key="a", value="3")["version"] == 2


@pytest.mark.thorough
def test_a_server_that_is_not_there_is_a_typed_fault_and_the_rest_works(bed: Bed) -> None:
    client = run(bed, "postgresql://nobody@127.0.0.1:9/none?connect_timeout=1")

    refused = client.use("get_state", {"key": "a", **FULL}, timeout=40)["result"]

    assert refused["isError"]
    assert refused["structuredContent"]["context"]["fault"]["class"] == "transport"
    assert use(client, "safe_write", path="note.txt", content="x")["ok"]


def test_a_cancelled_wait_frees_its_place(bed: Bed, tmp_path: Path) -> None:
    client = run(bed, str(tmp_path / "state.db"))
    for _ in range(40):
        asked = client.begin_use("state_wait", {"key": "a", "timeout_s": 600})
        client.notify("notifications/cancelled", {"requestId": asked})
        client.get("ping")
    until = time.monotonic() + 20
    while use(client, "state_wait", key="a", timeout_s=0).get("status") != "timeout":
        assert time.monotonic() < until
    client.is_checked = False


def test_limits_are_settings(bed: Bed, tmp_path: Path) -> None:
    bed.settings("[state-limits]\nvalue-bytes = 8\n")
    client = run(bed, str(tmp_path / "state.db"))

    refused = client.use("set_state", {"key": "a", "value": '"12345678"', **FULL})["result"]

    assert refused["structuredContent"]["context"]["limit"] == 8
    assert use(client, "set_state", key="a", value='"123456"')["status"] == "ok"


@pytest.mark.thorough
def test_the_password_of_a_store_is_on_no_command_line(bed: Bed) -> None:
    client = run(bed, "postgresql://nobody:hunter2@127.0.0.1:9/none?connect_timeout=1")
    pid = client.wait_row("perdure", state="ready")["pid"]

    assert b"hunter2" not in Path(f"/proc/{pid}/cmdline").read_bytes()

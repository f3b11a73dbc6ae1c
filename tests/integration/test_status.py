"""`perdure status`: one screen that is true, whatever is running, missing or broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import apsw
import pytest
from commands import SCRIPT, Terminal, perdure, told

from perdure import __version__
from testbed import Bed


def test_with_nothing_there_it_says_so_and_makes_nothing(bed: Bed) -> None:
    done = perdure(bed, "status")

    assert done.returncode == 0
    assert done.stderr == ""
    assert "none running" in done.stdout
    assert "nothing was written" in done.stdout
    assert list(bed.workspace.iterdir()) == []
    assert not (bed.root / "home").exists()


def test_a_running_host_is_shown_with_its_client_and_what_it_does(bed: Bed) -> None:
    client = bed.run(bed.fake())
    client.use("safe_write", {"path": "notes.txt", "content": "one\n"})
    client.use("lease", {"action": "acquire", "name": "deploy", "owner": "alice"})
    client.use("set_state", {"key": "k", "value": "1"})
    waiting = client.begin_use("state_wait", {"key": "other", "timeout_s": 20})
    client.use("health")

    found = told(bed, "status")

    (host,) = found["hosts"]
    assert (host["pid"], host["version"], host["workspace"]) == (client.pid, __version__, str(bed.workspace))
    assert host["report"]["client"] == "raw-client"
    assert (found["journal"]["writes"], found["journal"]["writes_today"]) == (1, 1)
    assert found["journal"]["last"][0]["path"] == "notes.txt"
    assert (found["journal"]["open_drafts"], found["journal"]["undo_in_reach"]) == (0, 1)
    assert (found["state"]["keys"], found["state"]["waiters"]) == (1, 1)
    assert [(one["name"], one["owner"]) for one in found["state"]["leases"]] == [("deploy", "alice")]
    shown = perdure(bed, "status").stdout
    for word in (str(client.pid), "raw-client", "notes.txt", "deploy", "alice", "1 write", "1 lease held"):
        assert word in shown
    client.use("set_state", {"key": "other", "value": "1"})
    client.wait(waiting)


@pytest.mark.thorough
def test_what_was_undone_and_redone_is_counted_as_it_is_now(bed: Bed) -> None:
    client = bed.run()
    for text in ("one\n", "two\n", "three\n"):
        client.use(
            "safe_write", {"path": "a", "content": text, "mode": "create" if text == "one\n" else "overwrite"}
        )
    in_reach = []
    for arguments in ({}, {"redo": True}, {"n": 2}):
        client.use("undo", arguments)
        in_reach.append(told(bed, "status")["journal"]["undo_in_reach"])

    assert in_reach == [2, 3, 1]


@pytest.mark.thorough
def test_a_host_that_hangs_is_shown_and_not_waited_for(bed: Bed) -> None:
    client = bed.run(bed.fake())
    os.kill(client.pid, signal.SIGSTOP)
    try:
        done = perdure(bed, "status")
    finally:
        os.kill(client.pid, signal.SIGCONT)

    assert done.returncode == 0
    assert "does not answer" in done.stdout


@pytest.mark.thorough
def test_a_broken_mount_is_in_sight(bed: Bed) -> None:
    bed.settings("[mounts]\nbad = ['/no/such/program']\n")
    client = bed.run()
    client.wait_row("bad", state="degraded")

    assert "circuit open: bad" in perdure(bed, "status").stdout


def test_a_broken_journal_and_a_broken_state_store_are_told_with_exit_code_1(bed: Bed) -> None:
    bed.store.mkdir(parents=True)
    (bed.store / "journal.db").write_bytes(b"not a database at all" * 100)
    state = bed.root / "state.db"
    apsw.Connection(str(state)).execute("CREATE TABLE somebody_elses (x)")

    done = perdure(bed, "status", "--state", str(state))

    assert done.returncode == 1
    assert "it is not a database" in done.stdout
    assert "it is not such a store" in done.stdout
    found = told(bed, "status", "--state", str(state), code=1)
    assert found["ok"] is False


def test_a_workspace_that_is_not_there_is_a_usage_error(bed: Bed) -> None:
    done = perdure(bed, "status", "--workspace", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere is not a directory" in done.stderr


def test_a_settings_file_says_where_the_workspace_and_the_store_are(bed: Bed) -> None:
    (bed.workspace / "other").mkdir()
    bed.settings("workspace = 'other'\nstate = 'shared.db'\n")

    found = told(bed, "status")

    assert found["workspace"] == str(bed.workspace / "other")
    assert found["state"]["path"].endswith("shared.db")


@pytest.mark.thorough
def test_a_password_in_the_address_of_a_store_is_not_shown(bed: Bed) -> None:
    done = perdure(bed, "status", "--state", "postgresql://me:hunter2@127.0.0.1:9/x?password=hunter2")
    assert done.returncode == 1
    assert "hunter2" not in done.stdout + done.stderr
    assert "cannot be read" in done.stdout


def test_the_registry_of_the_workspace_is_found(bed: Bed) -> None:
    bed.trusted("mcp.md", "# MCP servers\n")
    assert told(bed, "status")["registry"]["path"] == str(bed.workspace / "mcp.md")


def test_colour_is_for_terminals_that_want_it(bed: Bed) -> None:
    plain = perdure(bed, "status").stdout
    coloured, asked_not_to = Terminal(bed, "status"), Terminal(bed, "status", NO_COLOR="1")
    assert coloured.end() == asked_not_to.end() == 0
    assert "\x1b[" not in plain
    assert "\x1b[1m" in coloured.shown
    assert "\x1b[" not in asked_not_to.shown


@pytest.mark.thorough
def test_a_narrow_and_an_ascii_terminal_get_lines_that_fit(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "a-rather-long-name/" * 5 + "ünïcödé.txt", "content": "x\n"})
    shown = Terminal(bed, "status", COLUMNS="60", PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert shown.end() == 0
    assert shown.shown.isascii()
    assert max(map(len, shown.shown.splitlines())) <= 60


@pytest.mark.thorough
def test_a_name_that_would_move_the_cursor_does_not(bed: Bed) -> None:
    client = bed.run()
    client.use("lease", {"action": "acquire", "name": "evil\x1b[2Jname", "owner": "o\x1b]0;x\x07"})
    shown = perdure(bed, "status").stdout
    assert "\x1b" not in shown
    assert "evil?[2Jname" in shown


def test_a_reader_who_has_seen_enough_is_no_error(bed: Bed) -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$@" | true', "-", *SCRIPT, "status"],
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_a_journal_in_a_folder_that_cannot_be_written_is_read_all_the_same(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "a", "content": "x\n"})
    assert client.close() == 0
    folder = bed.store
    before = sorted(path.name for path in folder.iterdir())
    folder.chmod(0o500)
    try:
        found = told(bed, "status")
    finally:
        folder.chmod(0o700)
    assert found["journal"]["writes"] == 1
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.thorough
def test_reading_does_not_wait_for_whoever_holds_the_write_lock(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "a", "content": "x\n"})
    holder = apsw.Connection(str(bed.store / "journal.db"))
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert json.loads(perdure(bed, "status", "--json").stdout)["journal"]["writes"] == 1
    finally:
        holder.execute("ROLLBACK")
        holder.close()

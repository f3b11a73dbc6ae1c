"""`perdure state` as people run it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import apsw
import pytest

from command_line import run_command
from perdure.cli.main import main

Done = subprocess.CompletedProcess[str]


class Shell:
    def __init__(self, root: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "CHECKPOINT_"))}
        self.environ = {**kept, "PERDURE_HOME": str(root / "home"), "HOME": str(root)}
        self.root = root

    def __call__(self, *words: str, stdin: str = "") -> Done:
        if not stdin:
            return run_command("state", *words, env=self.environ, cwd=self.root)
        return subprocess.run(
            [sys.executable, "-P", "-m", "perdure", "state", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=self.root,
            timeout=60,
        )


@pytest.fixture
def state(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


Run = Callable[..., tuple[int, str, str]]
VALUES = {
    "plain": "1234567",
    "text": '"some words"',
    "object": '{"a": [1, 2], "b": "c|d"}',
    "ünï": "1",
    "with space": "1",
    "bar|key": "1",
    "back": '"a\\\\b…"',
}
READING = [("get", "plain"), ("list",), ("history", "plain"), ("export",)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same in this process."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def go(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["state", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return go


@pytest.fixture
def filled(run: Run, tmp_path: Path) -> Path:
    """A store with odd keys, many keys, a key that expires and a second namespace; its file."""
    lines = [{"key": key, "value": value} for key, value in VALUES.items()]
    lines += [{"key": f"many/{number:03}", "value": "1"} for number in range(120)]
    lines.append({"key": "other", "value": "2", "namespace": "n"})
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert run("import", str(tmp_path / "lines"))[0] == 0
    assert run("set", "kept a while", "1", "--ttl-s", "3600")[0] == 0
    return tmp_path / "home" / "state.db"


def test_a_key_is_set_read_listed_and_deleted(state: Shell) -> None:
    made = state("set", "a:1", '{"x":1}', "--expected-version", "0", "--json")
    read = state("get", "a:1", "--json")
    taken = state("set", "a:1", "2", "--expected-version", "0")
    listed = state("list", "--prefix", "a:", "--json")
    history = state("history", "a:1", "--json")
    gone = state("delete", "a:1")
    missing = state("get", "a:1")
    bad = state("set", "a:1", "{")

    assert (made.returncode, json.loads(made.stdout)["version"]) == (0, 1)
    assert json.loads(read.stdout)["value"] == {"x": 1}
    assert (taken.returncode, "Key already exists" in taken.stderr) == (3, True)
    assert [row["key"] for row in json.loads(listed.stdout)["keys"]] == ["a:1"]
    assert json.loads(history.stdout)["versions"][0]["client"] == "perdure-cli"
    assert (gone.returncode, missing.returncode, bad.returncode) == (0, 1, 2)
    assert (state.root / "home" / "state.db").exists()


def test_a_wait_sees_what_another_process_writes(state: Shell) -> None:
    state("set", "a", "1")
    command = [sys.executable, "-P", "-m", "perdure", "state", "wait", "a", "--after", "1", "--json"]
    with subprocess.Popen(command, env=state.environ, cwd=state.root, stdout=subprocess.PIPE) as waiting:
        state("set", "a", "2")
        out, _ = waiting.communicate(timeout=60)

    assert json.loads(out)["changes"] == [{"key": "a", "version": 2, "revision": 2, "deleted": False}]
    assert state("wait", "a", "--timeout-s", "0").returncode == 1


def test_options_stand_before_or_after_the_command(state: Shell) -> None:
    state("--state", "here.db", "--namespace", "n", "set", "a", "1")

    found = state("--json", "get", "a", "--state", "here.db", "--namespace", "n")

    assert json.loads(found.stdout)["value"] == 1
    assert state("get", "a", "--state", "here.db").returncode == 1


def test_an_export_can_be_imported_elsewhere(state: Shell) -> None:
    state("set", "a", '{"x": "é\\n"}')
    state("set", "a", '{"x": "é"}')
    state("set", "b", "1", "--namespace", "other")
    exported = state("export").stdout
    lines = [*exported.splitlines(), "not json", json.dumps({"key": "bad", "value": "NaN"})]

    done = state("import", "-", "--state", "new.db", "--json", stdin="\n".join(lines))

    assert len(exported.splitlines()) == 2
    found = json.loads(done.stdout)
    assert (found["imported"], [one["row"] for one in found["skipped"]]) == (2, [3, 4])
    assert "row 4 (bad)" in done.stderr
    assert state("export", "--state", "new.db").stdout.count('"version":2') == 1
    again = state("import", "-", "--state", "new.db", "--json", stdin=exported)
    assert [one["key"] for one in json.loads(again.stdout)["skipped"]] == ["a", "b"]


def test_every_row_that_is_not_imported_is_named_by_its_line(state: Shell) -> None:
    rows = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}, {"key": "", "value": "3"}]
    text = "\n\n".join(map(json.dumps, rows))

    done = state("import", "-", "--json", stdin=text)

    found = json.loads(done.stdout)
    assert (found["imported"], [one["row"] for one in found["skipped"]]) == (1, [3, 5])
    assert state("get", "a").stdout == "1\n"
    again = json.loads(state("import", "-", "--overwrite", "--json", stdin=text).stdout)
    assert (again["imported"], [one["row"] for one in again["skipped"]]) == (1, [1, 5])
    assert state("get", "a").stdout == "2\n"


def test_a_file_of_agentcheckpoint_is_imported_and_left_as_it_is(state: Shell) -> None:
    path = state.root / "checkpoints.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE checkpoints (key TEXT PRIMARY KEY, value TEXT NOT NULL, "
            "version INTEGER NOT NULL DEFAULT 1, updated_at TEXT NOT NULL DEFAULT (datetime('now')))"
        )
        rows = [("plan", '{"a":1}', 7), ("nan", "NaN", 1), ("", "1", 1)]
        connection.executemany("INSERT INTO checkpoints (key, value, version) VALUES (?,?,?)", rows)
        connection.commit()
    before = path.read_bytes()

    done = state("import", str(path), "--json")

    found = json.loads(done.stdout)
    assert (done.returncode, found["imported"], len(found["skipped"])) == (0, 1, 2)
    assert json.loads(state("get", "plan", "--json").stdout)["version"] == 7
    assert path.read_bytes() == before


@pytest.mark.thorough
def test_a_store_that_cannot_be_used_is_exit_code_4(state: Shell) -> None:
    (state.root / "text.db").write_text("no database at all, but long enough to be sure\n" * 40)

    done = state("get", "a", "--state", "text.db")

    assert done.returncode == 4
    assert "no database at all" in done.stderr
    assert state("get", "a", "--state", "postgresql://127.0.0.1:9/x?connect_timeout=1").returncode == 4


@pytest.mark.parametrize(("key", "value"), VALUES.items())
def test_a_key_is_shown_with_its_value_and_its_history(run: Run, filled: Path, key: str, value: str) -> None:
    code, text, _ = run("get", key, "--json")
    meant = json.loads(value)
    assert (code, json.loads(text)["key"], json.loads(text)["value"]) == (0, key, meant)
    code, text, _ = run("history", key, "--json")
    versions = json.loads(text)["versions"]
    assert (code, [(v["version"], v["value"], v["deleted"]) for v in versions]) == (0, [(1, meant, False)])
    assert run("get", key) == (0, f"{value}\n", "")
    head, row = run("history", key)[1].splitlines()
    assert head.split() == ["version", "updated", "client", "value"]
    assert row.endswith(f"perdure-cli  {value}")


def test_verbose_shows_a_line_for_each_field_and_then_the_value(run: Run, filled: Path) -> None:
    _, text, _ = run("get", "plain", "-v")
    *fields, value = text.splitlines()
    assert [line.partition(":")[0] for line in fields] == ["key", "version", "revision", "updated_at"]
    assert value == "1234567"
    assert "expires_at: " in run("get", "kept a while", "--verbose")[1]


def test_a_value_that_is_not_json_is_explained_and_raw_takes_it(run: Run) -> None:
    code, text, error = run("set", "plan", "hello")
    assert (code, text) == (2, "")
    assert error.startswith("perdure state set: not JSON: hello (")
    assert "--raw" in error
    assert run("set", "plan", "hello", "--raw") == (0, "set plan  version 1  revision 1\n", "")
    assert run("get", "plan") == (0, '"hello"\n', "")


def test_deleting_a_key_that_is_not_there_is_exit_code_1(run: Run) -> None:
    run("set", "a", "1")
    assert run("delete", "a") == (0, "deleted a\n", "")
    assert run("delete", "a") == (1, "", "perdure state delete: no key a\n")
    code, text, _ = run("delete", "a", "--json")
    assert (code, json.loads(text)["deleted"]) == (1, False)


def test_a_wait_prints_the_value(run: Run) -> None:
    run("set", "a", '{"x": 1}')
    assert run("wait", "a", "--after", "0") == (0, '{"x": 1}\n', "")
    assert run("wait", "--prefix", "a", "--after", "0") == (0, "a\n", "")
    assert run("wait", "a", "--timeout-s", "0") == (1, "", "perdure state wait: no change of a in time\n")


def test_keys_are_listed_by_prefix_and_namespace_a_page_at_a_time(run: Run, filled: Path) -> None:
    first = json.loads(run("list", "--prefix", "many/", "--json")[1])
    rest = json.loads(run("list", "--prefix", "many/", "--cursor", first["next_cursor"], "--json")[1])
    names = [row["key"] for row in (*first["keys"], *rest["keys"])]
    assert (len(first["keys"]), names) == (100, [f"many/{number:03}" for number in range(120)])
    assert "next_cursor" not in rest
    shown = run("list", "--prefix", "many/11")[1].splitlines()
    assert shown[0].split() == ["key", "version", "updated"]
    assert [line.split()[0] for line in shown[1:]] == [f"many/11{number}" for number in range(10)]
    assert run("list", "--prefix", "nothing")[1] == "No key in namespace default matches.\n"
    assert run("list", "--namespace", "empty")[1].startswith("No keys in namespace empty. ")
    assert [row["key"] for row in json.loads(run("list", "--namespace", "n", "--json")[1])["keys"]] == [
        "other"
    ]
    assert run("get", "other", "--namespace", "n")[1] == "2\n"
    assert (run("get", "other")[0], run("history", "other")[0]) == (1, 1)


def test_an_export_has_every_key_of_every_namespace(run: Run, filled: Path) -> None:
    lines = [json.loads(line) for line in run("export")[1].splitlines()]
    assert {line["key"]: line["value"] for line in lines if line["key"] in VALUES} == VALUES
    assert len(lines) == len(VALUES) + 122
    assert [json.loads(line)["key"] for line in run("export", "--namespace", "n")[1].splitlines()] == [
        "other"
    ]
    assert run("export", "--namespace", "nobody's") == (0, "", "")


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_makes_no_store(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, _, error = run(*words)
    assert (code, error) == (
        (1, f"perdure state {words[0]}: no key plain\n") if "plain" in words else (0, "")
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_waits_for_no_lock_and_changes_no_file(
    run: Run, filled: Path, words: tuple[str, ...]
) -> None:
    before = run(*words)
    holder = apsw.Connection(str(filled))
    holder.execute("BEGIN IMMEDIATE")
    lock = os.open(f"{filled}-lock", os.O_RDWR)
    flock(lock, LOCK_EX | LOCK_NB)
    files = {path.name: path.stat().st_mtime_ns for path in filled.parent.iterdir()}
    try:
        assert run(*words) == before
        assert {path.name: path.stat().st_mtime_ns for path in filled.parent.iterdir()} == files
    finally:
        os.close(lock)
        holder.close()


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_store_that_may_not_be_written_can_be_read(
    run: Run, filled: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(*words)
    for name in ("lock", "wal", "shm"):  # the last two are what SQLite makes, and leaves, to read
        os.unlink(f"{filled}-{name}")
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK and may(path, mode, **more))
    filled.parent.chmod(0o500)
    try:
        assert run(*words) == before
    finally:
        filled.parent.chmod(0o700)
    assert [path.name for path in filled.parent.iterdir()] == ["state.db"]


def test_a_file_of_agentcheckpoint_is_adopted_by_the_first_who_reads_it(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute(
            "CREATE TABLE checkpoints (key TEXT PRIMARY KEY, value TEXT, version INTEGER, updated_at TEXT)"
        )
        connection.execute("INSERT INTO checkpoints VALUES ('plan', '1', 7, '2026-01-01 00:00:00')")
        connection.commit()
    code, text, _ = run("get", "plan", "--state", "theirs.db", "--json")
    assert (code, json.loads(text)["version"]) == (0, 7)

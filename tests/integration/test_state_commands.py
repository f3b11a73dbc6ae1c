"""`perdure state` as people run it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

Done = subprocess.CompletedProcess[str]


class Shell:
    def __init__(self, root: Path) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "CHECKPOINT_"))}
        self.environ = {**kept, "PERDURE_HOME": str(root / "home"), "HOME": str(root)}
        self.root = root

    def __call__(self, *words: str, stdin: str = "") -> Done:
        command = [sys.executable, "-P", "-m", "perdure", "state", *words]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self.environ, cwd=self.root, timeout=60
        )


@pytest.fixture
def state(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


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
    assert json.loads(read.stdout)["value"] == '{"x":1}'
    assert (taken.returncode, "Key already exists" in taken.stdout) == (3, True)
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

    assert json.loads(found.stdout)["value"] == "1"
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
    assert json.loads(state("get", "a", "--json").stdout)["value"] == "1"
    again = json.loads(state("import", "-", "--overwrite", "--json", stdin=text).stdout)
    assert (again["imported"], [one["row"] for one in again["skipped"]]) == (1, [1, 5])
    assert json.loads(state("get", "a", "--json").stdout)["value"] == "2"


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


def test_a_store_that_cannot_be_used_is_exit_code_4(state: Shell) -> None:
    (state.root / "text.db").write_text("no database at all, but long enough to be sure\n" * 40)

    done = state("get", "a", "--state", "text.db")

    assert done.returncode == 4
    assert "no database at all" in done.stderr
    assert state("get", "a", "--state", "postgresql://127.0.0.1:9/x?connect_timeout=1").returncode == 4

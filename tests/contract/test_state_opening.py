"""Opening a store: new, old, from the future, somebody else's, by many at once, locked, unreachable."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest
from state_tools import Store

from harness.state.postgres import Postgres
from perdure.present.tool_errors import tool_error
from perdure.storage.errors import LockTimeout, StateError
from perdure.storage.postgres import migrate as postgres_opening
from perdure.storage.postgres import pool
from perdure.storage.postgres.state import PostgresState
from perdure.storage.process_lock import ProcessLock, open_lock_file
from perdure.storage.sqlite.database import migrations
from perdure.storage.sqlite.state import SqliteState
from perdure.storage.state import Loaded, Wanted
from perdure.worker.compose import open_backend

SPAWN = multiprocessing.get_context("spawn")


def fault(error: StateError) -> tuple[str, str, str]:
    found = tool_error(error).envelope.context["fault"]
    return found["class"], found["code"], found["retry"]


# --- SQLite -------------------------------------------------------------------------------------------------------


def opened_and_written(path: str, worker: int, results: multiprocessing.Queue[str]) -> None:
    store = Store(SqliteState(path))
    results.put(str(store.use("set_state", key=f"w{worker}", value="1")["status"]))
    store.service.close()


def test_every_folder_that_leads_to_a_new_store_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.chdir(tmp_path)
    SqliteState("deep/er/state.db").close()

    assert {str(tmp_path), str(tmp_path / "deep")} <= set(synced)


@pytest.mark.parametrize("path", ["", "file/state.db", "n" * 300, "/proc/none/state.db"])
def test_a_path_at_which_no_store_can_be_is_a_fault_and_no_missing_key(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(StateError) as refused:
        SqliteState(os.path.join(tmp_path, path))

    assert fault(refused.value) == ("resource", "state_misplaced", "never")
    assert tool_error(refused.value).envelope.error == "blocked"


def test_a_url_of_another_database_is_refused_and_no_folder_of_that_name_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StateError) as refused:
        open_backend("mysql://somewhere/else")

    assert fault(refused.value) == ("resource", "state_url", "never")
    assert os.listdir(tmp_path) == []


@pytest.mark.thorough
def test_of_many_that_open_a_new_file_at_once_none_fails(tmp_path: Path) -> None:
    path = str(tmp_path / "not" / "there" / "state.db")
    results: multiprocessing.Queue[str] = SPAWN.Queue()
    workers = [SPAWN.Process(target=opened_and_written, args=(path, i, results)) for i in range(6)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(30)

    assert found == ["ok"] * 6
    with closing(SqliteState(path)) as backend:
        assert backend.revision() == 6


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize("version", [number for number, _ in migrations("state")])
def test_a_file_of_every_earlier_version_is_brought_up_to_date(
    tmp_path: Path, version: int, is_marked: bool
) -> None:
    path = str(tmp_path / "state.db")
    with closing(apsw.Connection(path)) as connection:
        for number, text in migrations("state"):
            if number <= version:
                connection.execute(text)
        connection.execute("INSERT INTO entries VALUES ('key','default','a',3,7,0,NULL,'1')")
        connection.execute("UPDATE store SET revision = 7")
        connection.execute(f"PRAGMA user_version = {version}")
        if is_marked:
            connection.execute(f"PRAGMA application_id = {0x50645374}")

    store = Store(SqliteState(path))

    assert store.use("get_state", key="a")["version"] == 3
    assert store.use("set_state", key="a", value="2", expected_version=3)["revision"] == 8
    store.service.close()


def test_a_file_from_the_future_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    SqliteState(str(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.commit()

    with pytest.raises(StateError) as refused:
        SqliteState(str(path))

    assert "newer version" in tool_error(refused.value).envelope.context["message"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)


@pytest.mark.parametrize("kind", ["database", "text"])
def test_another_programs_file_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other.db"
    if kind == "text":
        path.write_text("this is no database, and long enough to be sure of it\n" * 40)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE theirs (x)")
            connection.commit()
    before = path.read_bytes()

    with pytest.raises(StateError) as refused:
        SqliteState(str(path))

    assert "not a state store" in tool_error(refused.value).envelope.context["message"]
    assert str(tmp_path) not in str(tool_error(refused.value).envelope)
    assert path.read_bytes() == before


def test_a_file_of_agentcheckpoint_is_adopted_and_its_table_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(
            "CREATE TABLE checkpoints (key TEXT PRIMARY KEY, value TEXT NOT NULL, "
            "version INTEGER NOT NULL DEFAULT 1, updated_at TEXT NOT NULL DEFAULT (datetime('now')))"
        )
        rows = [
            ("plan", '{"a": 1}', 4, "2026-01-02 03:04:05"),
            ("bad", "NaN", 1, "2026-01-02 03:04:05"),
        ]
        connection.executemany("INSERT INTO checkpoints VALUES (?,?,?,?)", rows)
        connection.commit()

    store = Store(SqliteState(str(path)))
    found = store.use("get_state", key="plan")
    changed = store.use("set_state", key="plan", value="2", expected_version=4)
    store.service.close()

    assert (found["value"], found["version"], found["updated_at"]) == (
        '{"a": 1}',
        4,
        "2026-01-02T03:04:05.000000Z",
    )
    assert changed["version"] == 5
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM checkpoints ORDER BY key DESC").fetchall() == rows
    again = Store(SqliteState(str(path)))
    assert again.use("get_state", key="plan")["version"] == 5
    assert again.use("get_state", key="bad")["status"] == "not_found"
    again.service.close()


@pytest.mark.thorough
def test_a_database_locked_elsewhere_is_a_typed_fault_and_reads_go_on(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = Store(SqliteState(str(path)))
    store.use("set_state", key="a", value="1")
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"

        found = store.refused("set_state", key="a", value="2")
        read = store.use("get_state", key="a")

        other.stdin.close()
    assert found["context"]["fault"] == {
        "class": "resource",
        "code": "state_locked",
        "retry": "later",
        "outcome": "not_started",
    }
    assert found["suggested_action"] == "retry_later"
    assert read["value"] == "1"
    assert store.use("set_state", key="a", value="3")["version"] == 2
    store.service.close()


def test_reading_a_key_leaves_no_snapshot_behind(tmp_path: Path) -> None:
    """Else what others write could never be taken out of the log again."""
    path = str(tmp_path / "state.db")
    store, other = Store(SqliteState(path)), Store(SqliteState(path))
    store.use("set_state", key="a", value="1")
    assert store.use("get_state", key="a")["value"] == "1"

    other.use("force_set_state", key="a", value="2")
    with closing(apsw.Connection(path)) as connection:
        [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    assert busy == 0
    assert store.use("get_state", key="a")["value"] == "2"
    store.service.close()
    other.service.close()


def test_a_key_is_read_while_a_round_is_being_decided(tmp_path: Path) -> None:
    backend = SqliteState(str(tmp_path / "state.db"))
    store = Store(backend)
    store.use("set_state", key="a", value="1")
    name = ("state", "default", "a")
    found = []

    def decide(loaded: Loaded) -> None:
        reading = threading.Thread(target=lambda: found.append(backend.find(name)))
        reading.start()
        reading.join()

    backend.round(Wanted(frozenset({name}), frozenset(), frozenset()), decide)
    assert len(found) == 1
    store.service.close()


def test_a_turn_that_does_not_come_is_refused_and_not_kept_when_it_comes_late(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    one, other = (ProcessLock(lambda: open_lock_file(path)) for _ in range(2))
    one.take(0)

    with pytest.raises(LockTimeout):
        other.take(0.05)

    one.give()
    one.take(20)
    one.give()
    other.take(20)
    done = threading.Event()

    def third() -> None:
        one.take(20)
        done.set()

    waiting = threading.Thread(target=third)
    waiting.start()
    assert not done.wait(0.05)
    other.give()
    assert done.wait(20)
    waiting.join()


@pytest.mark.parametrize("how", ["removed", "removed with its lock", "replaced"])
def test_a_store_removed_or_replaced_beneath_its_users_is_one_store_again(tmp_path: Path, how: str) -> None:
    """Not two: one that each process believes in, and both with the same lease."""
    path = tmp_path / "state.db"
    one, other = Store(SqliteState(str(path))), Store(SqliteState(str(path)))
    one.use("set_state", key="a", value="1")
    assert other.use("get_state", key="a")["value"] == "1"
    names = ["state.db", "state.db-wal", "state.db-shm"] + ["state.db-lock"] * (
        how == "removed with its lock"
    )
    for name in names:
        (tmp_path / name).unlink()
    if how == "replaced":
        fresh = Store(SqliteState(str(path)))
        fresh.use("set_state", key="b", value="2")
        fresh.service.close()

    assert one.use("lease", action="acquire", name="l", owner="one", ttl_s=60)["status"] == "ok"
    assert (
        other.raw("lease", action="acquire", name="l", owner="other", ttl_s=60)["structuredContent"]["status"]
        == "held"
    )
    assert other.use("get_state", key="a")["status"] == "not_found"
    one.use("set_state", key="c", value="3")
    assert other.use("get_state", key="c")["value"] == "3"
    for store in (one, other):
        store.service.close()

    again = Store(SqliteState(str(path)))
    assert again.use("get_state", key="c")["value"] == "3"
    assert again.use("get_state", key="b")["status"] == ("ok" if how == "replaced" else "not_found")
    again.service.close()


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def test_a_postgres_store_from_the_future_is_refused(postgres: Postgres) -> None:
    dsn = postgres.new_database()
    PostgresState(dsn).close()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE perdure.store SET format = 99")

    with pytest.raises(StateError) as refused:
        PostgresState(dsn)

    assert "newer version" in tool_error(refused.value).envelope.context["message"]


@pytest.mark.parametrize("version", [number for number, _ in postgres_opening.migrations()])
def test_a_postgres_store_of_every_earlier_version_is_brought_up_to_date(
    postgres: Postgres, version: int
) -> None:
    dsn = postgres.new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA perdure")
        for number, text in postgres_opening.migrations():
            if number <= version:
                connection.execute(text.encode())
        connection.execute("UPDATE perdure.store SET revision = 7, format = %s", (version,))
        connection.execute("INSERT INTO perdure.entries VALUES ('key','default','a',3,7,0,NULL,'1')")

    store = Store(PostgresState(dsn))

    assert store.use("set_state", key="a", value="2", expected_version=3)["revision"] == 8
    store.service.close()


def test_many_open_a_new_postgres_store_at_once(postgres: Postgres) -> None:
    dsn = postgres.new_database()
    failures: list[BaseException] = []

    def open_one() -> None:
        try:
            PostgresState(dsn).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


@pytest.mark.thorough
def test_a_server_that_is_not_there_is_a_typed_fault() -> None:
    with pytest.raises(StateError) as refused:
        PostgresState("postgresql://nobody@127.0.0.1:9/none?connect_timeout=2")

    assert fault(refused.value) == ("transport", "state_unreachable", "later")


def test_a_restarted_server_is_found_again_and_meanwhile_faults_are_typed(postgres: Postgres) -> None:
    if not postgres.is_ours:
        pytest.skip("the server is not ours to stop")
    store = Store(PostgresState(postgres.new_database()))
    store.use("set_state", key="a", value="1")
    postgres.stop()
    try:
        found = store.refused("set_state", key="a", value="2")
        read = store.refused("get_state", key="a")
    finally:
        postgres.start()

    assert found["context"]["fault"]["class"] == read["context"]["fault"]["class"] == "transport"
    assert found["reason_hint"] == "network"
    assert store.use("set_state", key="a", value="3", expected_version=1)["version"] == 2
    store.service.close()


def test_a_server_that_hangs_without_dying_is_cut(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not postgres.is_ours:
        pytest.skip("the server is not ours to stop")
    monkeypatch.setattr(pool, "OVERDUE_S", 1.0)
    dsn = postgres.new_database()
    store = Store(PostgresState(dsn))
    store.use("set_state", key="a", value="1")
    with psycopg.connect(dsn, autocommit=True) as admin:
        rows = admin.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'perdure'").fetchall()
    calls: list[tuple[str, dict[str, str]]] = [("get_state", {}), ("set_state", {"value": "2"})]
    for (pid,) in rows:
        os.kill(pid, signal.SIGSTOP)
    try:
        found = [store.raw(tool, key="a", **more)["structuredContent"] for tool, more in calls]
    finally:
        for (pid,) in rows:
            os.kill(pid, signal.SIGCONT)

    for one in found:
        assert one.get("status") == "ok" or one["context"]["fault"]["class"] == "transport"
    assert store.use("get_state", key="a")["status"] == "ok"
    store.service.close()


def test_a_row_locked_elsewhere_is_a_typed_fault_and_reads_go_on(postgres: Postgres) -> None:
    dsn = postgres.new_database()
    store = Store(PostgresState(dsn))
    store.use("set_state", key="a", value="1")
    with psycopg.connect(dsn) as other:
        other.execute("SELECT * FROM perdure.store FOR UPDATE")

        found = store.refused("set_state", key="a", value="2")
        read = store.use("get_state", key="a")

    assert found["context"]["fault"]["code"] == "state_locked"
    assert read["value"] == "1"
    assert store.use("set_state", key="a", value="3")["version"] == 2
    store.service.close()

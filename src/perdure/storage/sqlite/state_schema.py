"""Opens the state store's file: creates it if missing, migrates it, and refuses another program's database."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any, Final

import apsw

from perdure.storage.errors import UnusableStore
from perdure.storage.sqlite import read_only
from perdure.storage.sqlite.database import check_library, migrate, sync_fully
from perdure.storage.state_values import value_problem
from perdure.storage.user_dirs import make_private

APPLICATION_ID: Final = 0x50645374  # "PdSt"
BUSY_MS: Final = 3_000
FOREIGN: Final = "checkpoints"
OURS: Final = frozenset({"store", "entries", "changes", "namespaces", "answers"})


def open_state(path: str) -> apsw.Connection:
    """A connection for writing. The caller holds the store's lock: of several that come first, one makes it."""
    check_library()
    make_private(os.path.realpath(path))
    connection = apsw.Connection(path)
    try:
        _configure(connection)
        is_ours = connection.pragma("application_id") == APPLICATION_ID
        adopts = False if is_ours else _adopts(connection, path)
        connection.pragma("journal_mode", "wal")
        migrate(connection, "state", path)
        if not is_ours:
            _claim(connection, adopts)
    except apsw.NotADBError:
        connection.close()
        raise UnusableStore(
            f"{os.path.basename(path)} is not a state store: it is no database at all"
        ) from None
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: str) -> apsw.Connection:
    """A connection for reading."""
    connection = apsw.Connection(path)
    _configure(connection)
    connection.pragma("query_only", True)
    return connection


def open_read_only(path: str) -> apsw.Connection | None:
    """A connection that cannot write; None where the store has to be made, adopted or migrated first."""
    if not os.path.exists(path):
        return None
    connection = read_only.connect(path, follow=True)
    try:
        mark = (connection.pragma("application_id"), connection.pragma("user_version"))
        if mark == (APPLICATION_ID, read_only.newest_format("state")):
            _configure(connection)
            return connection
    except apsw.Error:
        pass  # opening it for writing gives the reason
    connection.close()
    return None


def _configure(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_MS)
    connection.pragma("synchronous", "full")
    sync_fully(connection)
    connection.pragma("temp_store", "memory")
    connection.pragma("case_sensitive_like", True)


def _adopts(connection: apsw.Connection, path: str) -> bool:
    """Whether the file is an agentcheckpoint's. One that is neither empty nor that is left alone."""
    tables = {
        str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    # Our tables without our mark: the process that created them was killed before it set the mark.
    if (tables - {FOREIGN, "sqlite_sequence"}) not in (set(), OURS):
        raise UnusableStore(f"{os.path.basename(path)} is another program's database, not a state store")
    return FOREIGN in tables


def _claim(connection: apsw.Connection, adopts: bool) -> None:
    """The mark comes last: an adoption that did not finish is done again, whole."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if adopts:
            _adopt(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _adopt(connection: apsw.Connection) -> None:
    """Take over every checkpoint, with its version; their own table is only read. What cannot be kept stays there."""
    revision = 0
    rows: list[tuple[Any, ...]] = connection.execute(
        f"SELECT key, value, version, updated_at FROM {FOREIGN} ORDER BY key"
    ).fetchall()
    for key, value, version, updated_at in rows:
        if value_problem(key, value) is not None:
            continue
        revision += 1
        row = ("key", "default", key, version, revision, _microseconds(updated_at))
        connection.execute("INSERT INTO entries VALUES (?,?,?,?,?,?,NULL,?)", (*row, value))
        connection.execute(
            "INSERT INTO changes (space, namespace, key, version, revision, updated, value, client, session, tool) "
            "VALUES (?,?,?,?,?,?,?,'agentcheckpoint','','adopt')",
            (*row, value),
        )
        connection.execute(
            "INSERT INTO namespaces VALUES ('default', 1, ?) ON CONFLICT DO UPDATE SET "
            "keys = keys + 1, bytes = bytes + excluded.bytes",
            (len(key.encode()) + len(value.encode()),),
        )
    connection.execute("UPDATE store SET revision = ?", (revision,))


def _microseconds(text: Any) -> int:
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)
    except (TypeError, ValueError):
        return 0

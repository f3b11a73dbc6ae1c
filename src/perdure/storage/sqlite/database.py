"""One SQLite file opened the way we trust: version checked, WAL, FULL, migrated, never from the future."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

import apsw

from perdure.storage.errors import UnusableStore
from perdure.storage.user_dirs import make_private

# Older libraries can lose committed writes in WAL mode when a checkpoint and a reset coincide.
OLDEST_SQLITE: Final = (3, 51, 3)
BUSY_MS: Final = 10_000
_FLAGS: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW


def check_library() -> None:
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise UnusableStore(
            f"SQLite {apsw.sqlite_lib_version()} can lose writes; {wanted} or newer is needed"
        )


def open_database(path: str, family: str) -> apsw.Connection:
    """A connection for writing. `family` names the folder of its migrations."""
    check_library()
    make_private(path)
    connection = _connect(path)
    migrate(connection, family, path)
    return connection


def close_detached(connection: apsw.Connection) -> None:
    """Close a connection to a file that was removed or replaced. An ordinary close of the last connection writes the
    log back and removes it by its name, which now may be that of another database."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()


def sync_fully(connection: apsw.Connection) -> None:
    """Where fsync leaves data in the cache of the device (macOS), have SQLite ask for more. Elsewhere it is nothing."""
    connection.pragma("fullfsync", True)
    connection.pragma("checkpoint_fullfsync", True)


def open_reader(path: str) -> apsw.Connection:
    connection = _connect(path)
    connection.pragma("query_only", True)
    return connection


def _connect(path: str) -> apsw.Connection:
    """No part of the path may be a link."""
    connection = apsw.Connection(path, flags=_FLAGS)
    connection.set_busy_timeout(BUSY_MS)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    sync_fully(connection)
    connection.pragma("foreign_keys", True)
    connection.pragma("temp_store", "memory")
    return connection


def migrate(connection: apsw.Connection, family: str, path: str) -> None:
    """Bring a store up to date, one numbered file at a time, all or nothing."""
    steps = list(migrations(family))
    newest = steps[-1][0]
    if _version(connection) == newest:
        return
    # Under the write lock: of several processes that open a new store at once, one does the work.
    with _immediate(connection):
        version = _version(connection)
        if version > newest:
            raise UnusableStore(
                f"{os.path.basename(path)} was written by a newer version (format {version}, this one knows {newest})"
            )
        for number, text in steps:
            if number > version:
                for _ in connection.execute(text):
                    pass
        connection.pragma("user_version", newest)


class _immediate:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK where anything is raised."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def migrations(family: str) -> Iterator[tuple[int, str]]:
    """Each migration's number and text, in order."""
    folder = os.path.join(os.path.dirname(__file__), "migrations", family)
    for name in sorted(os.listdir(folder)):
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", name):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield int(match.group(1)), file.read()

"""The SQLite file behind a catalog's copy: its tables, one record put in, and what the index says of a server."""

from __future__ import annotations

import os
from typing import Final

import apsw
import msgspec

from perdure.platform import directories
from perdure.registry.official.records import Record, read_record
from perdure.registry.official.versions import order
from perdure.registry.runnable.aliases import short_name

FORMAT: Final = 2
BUSY_MS: Final = 10_000
_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, status TEXT NOT NULL,
    published TEXT NOT NULL, is_latest INTEGER NOT NULL, seen INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (name, version)
);
CREATE TABLE servers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, short TEXT NOT NULL, record INTEGER NOT NULL
);
CREATE INDEX servers_by_short ON servers (short);
CREATE VIRTUAL TABLE words USING fts5 (
    name, title, description, packages,
    content='', contentless_delete=1, tokenize="unicode61 remove_diacritics 2", prefix='2 3'
);
"""


def opened(path: str) -> apsw.Connection:
    os.close(directories.open(path, os.O_RDWR | os.O_CREAT | directories.NOFOLLOW, 0o600))
    db = apsw.Connection(path)
    db.set_busy_timeout(BUSY_MS)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "normal")  # a cache: after a power cut the last pages are fetched again
    if db.pragma("user_version") != FORMAT:
        db.execute("BEGIN IMMEDIATE")
        if db.pragma("user_version") != FORMAT:
            for table in ("meta", "records", "servers", "words"):
                db.execute(f"DROP TABLE IF EXISTS {table}")
            db.execute(_SCHEMA)
            db.pragma("user_version", FORMAT)
        db.execute("COMMIT")
    return db


def put(db: apsw.Connection, record: Record, data: bytes, run: int) -> None:
    db.execute(
        "INSERT INTO records (name, version, status, published, is_latest, seen, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name, version) DO UPDATE SET status = excluded.status, published = excluded.published,"
        " is_latest = excluded.is_latest, seen = max(seen, excluded.seen), data = excluded.data",
        (record.name, record.version, record.status, record.published_at, record.is_latest, run, data),
    )


def index(db: apsw.Connection, name: str) -> None:
    """Make the index speak of the newest version of a server that is not deleted, or of none."""
    known = db.execute("SELECT id FROM servers WHERE name = ?", (name,)).fetchone()
    if known is not None:
        db.execute("DELETE FROM words WHERE rowid = ?", known)
        db.execute("DELETE FROM servers WHERE id = ?", known)
    rows = list(
        db.execute(
            "SELECT is_latest, version, published, id, data FROM records WHERE name = ? AND status != 'deleted'",
            (name,),
        )
    )
    if not rows:
        return
    best = max(rows, key=lambda row: (row[0], order(row[1], row[2])))
    record = read_record(msgspec.json.decode(best[4]))
    db.execute(
        "INSERT INTO servers (name, short, record) VALUES (?, ?, ?)", (name, short_name(name), best[3])
    )
    packages = " ".join(one.identifier for one in record.packages)
    db.execute(
        "INSERT INTO words (rowid, name, title, description, packages) VALUES (?, ?, ?, ?, ?)",
        # Where somebody's code is hosted is in most names and tells nothing.
        (db.last_insert_rowid(), name.removeprefix("io.github."), record.title, record.description, packages),
    )


def set_meta(db: apsw.Connection, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

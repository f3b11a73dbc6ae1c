"""A catalog's copy on disk: the versions that were seen of every server, and an index for searching them.

A page of records, the place to go on from, and what the index says of them are one transaction: a kill at any
moment leaves the copy as it was before that page or after it. It is a cache: one that is damaged, or written by
another version of Perdure, is made again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from perdure.protocol.msgspec_types import prepare_type
from perdure.registry.official.copy_file import index, opened, put, set_meta
from perdure.registry.official.records import BadRecord, read_record
from perdure.registry.official.versions import moment
from perdure.storage.user_dirs import private_dir


class Progress(msgspec.Struct, frozen=True):
    """Where a copying stands. A run with a `since` brings what changed, one without brings everything."""

    run: int
    cursor: str = ""
    since: str = ""
    newest: str = ""


class Row(msgspec.Struct, frozen=True):
    """One hit of the index: the newest version of a server."""

    name: str
    short: str
    status: str
    rank: float


class CatalogStore:
    """The copy of one catalog. `key` tells catalogs apart, and readers with different credentials."""

    def __init__(self, key: str, directory: str | None = None) -> None:
        self._path = os.path.join(
            directory or private_dir("cache"), f"catalog-{hashlib.sha256(key.encode()).hexdigest()[:32]}.db"
        )
        self._open: apsw.Connection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # What is known of the copy

    @property
    def synced_at(self) -> float | None:
        """When the copy was last known to be whole; None before."""
        found = self._meta("synced_at")
        return float(found) if found else None

    @property
    def newest(self) -> str:
        """The latest change that the copy holds, in the catalog's own time."""
        return self._meta("newest")

    @property
    def etag(self) -> str:
        return self._meta("etag")

    @property
    def progress(self) -> Progress | None:
        found = self._meta("progress")
        return msgspec.json.decode(found, type=prepare_type(Progress)) if found else None

    def count(self) -> int:
        return int(self._one("SELECT count(*) FROM records") or 0)

    # Taking pages

    def begin(self, since: str = "") -> Progress:
        with self._writing() as db:
            run = int(self._meta("run") or 0) + 1
            progress = Progress(run, since=since, newest=self._meta("newest") if since else "")
            set_meta(db, "run", str(run))
            set_meta(db, "progress", msgspec.json.encode(progress).decode())
        return progress

    def take(self, progress: Progress, records: Iterable[dict[str, Any]], cursor: str) -> Progress:
        """Keep a page and the place behind it. Records that name nothing are left out."""
        with self._writing() as db:
            names: set[str] = set()
            newest = progress.newest
            for raw in records:
                try:
                    record = read_record(raw)
                except BadRecord:
                    continue
                names.add(record.name)
                newest = max(newest, record.updated_at, key=moment)
                put(db, record, msgspec.json.encode(raw), progress.run)
            for name in names:
                index(db, name)
            progress = msgspec.structs.replace(progress, cursor=cursor, newest=newest)
            set_meta(db, "progress", msgspec.json.encode(progress).decode())
        return progress

    def finish(self, progress: Progress, etag: str = "") -> None:
        """The copy is whole: what a full run did not see is gone from the catalog."""
        with self._writing() as db:
            if not progress.since:
                gone = [
                    str(name)
                    for (name,) in db.execute(
                        "SELECT DISTINCT name FROM records WHERE seen < ?", (progress.run,)
                    )
                ]
                db.execute("DELETE FROM records WHERE seen < ?", (progress.run,))
                for name in gone:
                    index(db, name)
            set_meta(db, "newest", progress.newest)
            set_meta(db, "synced_at", repr(time.time()))
            set_meta(db, "etag", etag)
            set_meta(db, "progress", "")

    def unchanged(self) -> None:
        """The catalog said that nothing is new."""
        with self._writing() as db:
            set_meta(db, "synced_at", repr(time.time()))

    def keep(self, raw: dict[str, Any]) -> None:
        """One record, outside of any run; one that names nothing is left out."""
        try:
            record = read_record(raw)
        except BadRecord:
            return
        with self._writing() as db:
            put(db, record, msgspec.json.encode(raw), int(self._meta("run") or 0))
            index(db, record.name)

    # Reading

    def version(self, name: str, version: str = "") -> bytes | None:
        """A record as it came; without a version, the newest one."""
        if version:
            return self._blob("SELECT data FROM records WHERE name = ? AND version = ?", (name, version))
        return self._blob(
            "SELECT data FROM records JOIN servers ON servers.record = records.id WHERE servers.name = ?",
            (name,),
        )

    def full_names(self, short: str) -> list[str]:
        """The servers that go by this short name, or whose last word it is."""
        rows = self._rows(
            "SELECT name FROM servers WHERE short = ? COLLATE NOCASE OR name LIKE ? ESCAPE '\\' ORDER BY name",
            (short, f"%/{_like(short)}"),
        )
        return [row[0] for row in rows]

    def matching(self, query: str, limit: int) -> list[Row]:
        """What the index gives for a query in its own language, the best first."""
        rows = self._rows(
            "SELECT servers.name, short, status, found.rank FROM"
            " (SELECT rowid, bm25(words, 10.0, 5.0, 2.0, 4.0) AS rank FROM words WHERE words MATCH ?"
            "  ORDER BY rank LIMIT ?) AS found"
            " JOIN servers ON servers.id = found.rowid JOIN records ON records.id = servers.record"
            " ORDER BY found.rank",
            (query, limit),
        )
        return [Row(*row) for row in rows]

    def containing(self, words: list[str], limit: int) -> list[Row]:
        """Names with all of these words anywhere in them."""
        rows = self._rows(
            "SELECT servers.name, short, status, 0.0 FROM servers"
            " JOIN records ON records.id = servers.record WHERE"
            + " AND".join([" servers.name LIKE ? ESCAPE '\\'"] * len(words))
            + " ORDER BY length(servers.name), servers.name LIMIT ?",
            (*(f"%{_like(word)}%" for word in words), limit),
        )
        return [Row(*row) for row in rows]

    # The file

    def _meta(self, key: str) -> str:
        return str(self._one("SELECT value FROM meta WHERE key = ?", (key,)) or "")

    def _one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        rows = self._rows(sql, values)
        return rows[0][0] if rows else None

    def _blob(self, sql: str, values: tuple[Any, ...]) -> bytes | None:
        found = self._one(sql, values)
        return bytes(found) if found is not None else None

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return list(self._connection().execute(sql, values))
        except (apsw.CorruptError, apsw.NotADBError):
            self._discard()
            return list(self._connection().execute(sql, values))

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        db = self._connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _connection(self) -> apsw.Connection:
        if self._open is None:
            try:
                self._open = opened(self._path)
            except (apsw.CorruptError, apsw.NotADBError):
                self._discard()
                self._open = opened(self._path)
        return self._open

    def _discard(self) -> None:
        self.close()
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(self._path + ending):
                os.unlink(self._path + ending)


def _like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")

"""The mirror of an official registry on disk: its records in SQLite, a full-text index, and the updates.

A page of records, the cursor of the next page and the index entries are one transaction: a crash leaves the mirror as it was
before that page or after it. It is a cache: one that is damaged, or of another version of Perdure, is created again.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
import msgspec

from perdure.platform import directories
from perdure.protocol.msgspec_types import prepare_type
from perdure.registry.catalog.official_api import OfficialApi, StaleCursor
from perdure.registry.catalog.records import BadRecord, Record, read_record
from perdure.registry.catalog.semver import moment, order
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.packages.aliases import short_name
from perdure.storage.user_dirs import private_dir


class Progress(msgspec.Struct, frozen=True):
    """The state of an update. A run with a `since` fetches what changed, one without fetches everything."""

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
    """The mirror of one catalog. `key` differs by catalog and by credentials."""

    def __init__(self, key: str, directory: str | None = None) -> None:
        self._path = os.path.join(
            directory or private_dir("cache"), f"catalog-{hashlib.sha256(key.encode()).hexdigest()[:32]}.db"
        )
        self._open: apsw.Connection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # State of the mirror

    @property
    def synced_at(self) -> float | None:
        """When the mirror was last complete; None before the first time."""
        value = self._meta("synced_at")
        return float(value) if value else None

    @property
    def newest(self) -> str:
        """The latest change in the mirror, by the catalog's clock."""
        return self._meta("newest")

    @property
    def etag(self) -> str:
        return self._meta("etag")

    @property
    def progress(self) -> Progress | None:
        value = self._meta("progress")
        return msgspec.json.decode(value, type=prepare_type(Progress)) if value else None

    def count(self) -> int:
        return int(self._value("SELECT count(*) FROM records") or 0)

    # Updates

    def begin(self, since: str = "") -> Progress:
        with self._transaction() as db:
            run = int(self._meta("run") or 0) + 1
            progress = Progress(run, since=since, newest=self._meta("newest") if since else "")
            _set_meta(db, "run", str(run))
            _set_meta(db, "progress", msgspec.json.encode(progress).decode())
        return progress

    def add_page(self, progress: Progress, records: Iterable[dict[str, Any]], cursor: str) -> Progress:
        """Store a page and the cursor of the next one. Records without a usable name are left out."""
        with self._transaction() as db:
            names: set[str] = set()
            newest = progress.newest
            for raw in records:
                try:
                    record = read_record(raw)
                except BadRecord:
                    continue
                names.add(record.name)
                newest = max(newest, record.updated_at, key=moment)
                _put(db, record, msgspec.json.encode(raw), progress.run)
            for name in names:
                _index(db, name)
            progress = msgspec.structs.replace(progress, cursor=cursor, newest=newest)
            _set_meta(db, "progress", msgspec.json.encode(progress).decode())
        return progress

    def finish(self, progress: Progress, etag: str = "") -> None:
        """The mirror is complete: what a full run did not see is gone from the catalog."""
        with self._transaction() as db:
            if not progress.since:
                removed = [
                    str(name)
                    for (name,) in db.execute(
                        "SELECT DISTINCT name FROM records WHERE seen < ?", (progress.run,)
                    )
                ]
                db.execute("DELETE FROM records WHERE seen < ?", (progress.run,))
                for name in removed:
                    _index(db, name)
            _set_meta(db, "newest", progress.newest)
            _set_meta(db, "synced_at", repr(time.time()))
            _set_meta(db, "etag", etag)
            _set_meta(db, "progress", "")

    def mark_unchanged(self) -> None:
        """Record that the catalog has not changed."""
        with self._transaction() as db:
            _set_meta(db, "synced_at", repr(time.time()))

    def add(self, raw: dict[str, Any]) -> None:
        """Store one record outside of a run, if it has a usable name."""
        try:
            record = read_record(raw)
        except BadRecord:
            return
        with self._transaction() as db:
            _put(db, record, msgspec.json.encode(raw), int(self._meta("run") or 0))
            _index(db, record.name)

    # Reading

    def version(self, name: str, version: str = "") -> bytes | None:
        """The JSON of a record; without a version, of the newest one."""
        if version:
            return self._blob("SELECT data FROM records WHERE name = ? AND version = ?", (name, version))
        return self._blob(
            "SELECT data FROM records JOIN servers ON servers.record = records.id WHERE servers.name = ?",
            (name,),
        )

    def full_names(self, short: str) -> list[str]:
        """The servers with this short name, or whose name ends in it."""
        rows = self._rows(
            "SELECT name FROM servers WHERE short = ? COLLATE NOCASE OR name LIKE ? ESCAPE '\\' ORDER BY name",
            (short, f"%/{_like(short)}"),
        )
        return [row[0] for row in rows]

    def match(self, query: str, limit: int) -> list[Row]:
        """The hits of an FTS5 query, the best first."""
        rows = self._rows(
            "SELECT servers.name, short, status, found.rank FROM"
            " (SELECT rowid, bm25(words, 10.0, 5.0, 2.0, 4.0) AS rank FROM words WHERE words MATCH ?"
            "  ORDER BY rank LIMIT ?) AS found"
            " JOIN servers ON servers.id = found.rowid JOIN records ON records.id = servers.record"
            " ORDER BY found.rank",
            (query, limit),
        )
        return [Row(*row) for row in rows]

    def match_names(self, words: list[str], limit: int) -> list[Row]:
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
        return str(self._value("SELECT value FROM meta WHERE key = ?", (key,)) or "")

    def _value(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        rows = self._rows(sql, values)
        return rows[0][0] if rows else None

    def _blob(self, sql: str, values: tuple[Any, ...]) -> bytes | None:
        value = self._value(sql, values)
        return bytes(value) if value is not None else None

    def _rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return list(self._connection().execute(sql, values))
        except (apsw.CorruptError, apsw.NotADBError):
            self._discard()
            return list(self._connection().execute(sql, values))

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
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
                self._open = _open(self._path)
            except (apsw.CorruptError, apsw.NotADBError):
                self._discard()
                self._open = _open(self._path)
        return self._open

    def _discard(self) -> None:
        self.close()
        for ending in ("", "-wal", "-shm"):
            if os.path.exists(self._path + ending):
                os.unlink(self._path + ending)


def _like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


# --- The SQLite file ---


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


def _open(path: str) -> apsw.Connection:
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


def _put(db: apsw.Connection, record: Record, data: bytes, run: int) -> None:
    db.execute(
        "INSERT INTO records (name, version, status, published, is_latest, seen, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name, version) DO UPDATE SET status = excluded.status, published = excluded.published,"
        " is_latest = excluded.is_latest, seen = max(seen, excluded.seen), data = excluded.data",
        (record.name, record.version, record.status, record.published_at, record.is_latest, run, data),
    )


def _index(db: apsw.Connection, name: str) -> None:
    """Index the newest version of a server that is not deleted; none if there is none."""
    row_id = db.execute("SELECT id FROM servers WHERE name = ?", (name,)).fetchone()
    if row_id is not None:
        db.execute("DELETE FROM words WHERE rowid = ?", row_id)
        db.execute("DELETE FROM servers WHERE id = ?", row_id)
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
    packages = " ".join(package.identifier for package in record.packages)
    db.execute(
        "INSERT INTO words (rowid, name, title, description, packages) VALUES (?, ?, ?, ?, ?)",
        # The prefix of the code host is in most names and does not help a search.
        (db.last_insert_rowid(), name.removeprefix("io.github."), record.title, record.description, packages),
    )


def _set_meta(db: apsw.Connection, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


# --- Updates: everything once, then what changed ---


SMALL: Final = 300
# Within this time a large catalog is not requested again.
FRESH_S: Final = 60.0
MAX_PAGES: Final = 20_000


def sync(store: CatalogStore, api: OfficialApi, budget_s: float) -> bool:
    """Update the mirror. False if it is still incomplete after `budget_s`. Raises what the API raises."""
    age = time.time() - (store.synced_at or 0)
    count = store.count()
    is_large = count > SMALL
    if store.synced_at is not None and is_large and 0 <= age < FRESH_S:
        return True
    progress = store.progress
    if progress is None:
        progress = store.begin(store.newest if store.synced_at is not None and is_large else "")
    until = time.monotonic() + budget_s
    try:
        return _update(store, api, progress, until, store.etag if store.synced_at is not None else "")
    except StaleCursor:
        return _update(store, api, store.begin(), until, "")


def _update(store: CatalogStore, api: OfficialApi, progress: Progress, until: float, etag: str) -> bool:
    seen: set[str] = set()
    is_first = not progress.cursor
    for _ in range(MAX_PAGES):
        is_whole = is_first and not progress.since
        page = api.page(progress.cursor, since=progress.since, etag=etag if is_whole else "")
        if page.is_unchanged:
            store.mark_unchanged()
            return True
        progress = store.add_page(progress, page.records, page.cursor)
        if not page.cursor:
            # An ETag belongs to one page, so it is kept for a catalog of one page only.
            store.finish(progress, page.etag if is_whole else "")
            return True
        if page.cursor in seen:
            raise RegistryUnavailable("the catalog has a list without an end")
        seen.add(page.cursor)
        is_first = False
        if time.monotonic() > until:
            return False
    raise RegistryUnavailable(f"the catalog has more than {MAX_PAGES} pages")


# --- Search: every word as the beginning of a word, the name before the description ---


CANDIDATES: Final = 200
MAX_WORDS: Final = 16
_WORD: Final = re.compile(r"[^\W_]+")
# In most names: beside other words they only affect the ranking.
_COMMON_WORDS: Final = frozenset({"mcp", "server", "servers", "io", "com"})


def search(store: CatalogStore, query: str, limit: int) -> list[Row]:
    text = query.strip().lower()
    words = _WORD.findall(text.removeprefix("io.github."))[:MAX_WORDS]
    if not words:
        return []
    pool = max(CANDIDATES, limit * 2)
    terms = [word for word in words if word not in _COMMON_WORDS] or words
    rows = store.match(" ".join(f'"{word}"*' for word in terms), pool)
    if not rows and len(terms) > 1:
        rows = store.match(" OR ".join(f'"{word}"*' for word in terms), pool)
    ranked = sorted(rows, key=lambda row: _rank(row, words, text))
    if len(ranked) < limit:
        names = {row.name for row in ranked}
        ranked += [row for row in store.match_names(words, pool) if row.name not in names]
    return ranked[:limit]


def _rank(row: Row, words: list[str], query: str) -> tuple[float, int, str]:
    """Smaller is better, as in the rank of FTS5."""
    name = row.name.lower()
    owner, _, last = name.rpartition("/")
    last_words = _WORD.findall(last)
    rank = row.rank
    if query in (name, row.short.lower()):
        rank -= 100
    if words == [word for word in last_words if word not in _COMMON_WORDS] or words == last_words:
        rank -= 40
    elif set(words) <= set(last_words):
        rank -= 20
    elif set(words) <= {*last_words, *_WORD.findall(owner)}:
        rank -= 12
    elif all(word in name for word in words):
        rank -= 6
    if row.status == "deprecated":
        rank += 60
    return rank, len(name), name

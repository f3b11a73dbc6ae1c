"""A catalog's copy on disk: the versions that were seen of every server, and an index for searching them.

A page of records, the place to go on from, and what the index says of them are one transaction: a kill at any
moment leaves the copy as it was before that page or after it. It is a cache: one that is damaged, or written by
another version of Perdure, is made again.
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


# --- The SQLite file behind a catalog's copy: its tables, one record put in, and what the index says of a server ---


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


# --- Keeping the copy of a catalog up to date: all of it once, then what changed ---


SMALL: Final = 300
# Within this time a large catalog is not asked again.
FRESH_S: Final = 60.0
MAX_PAGES: Final = 20_000


def sync(store: CatalogStore, api: OfficialApi, budget_s: float) -> bool:
    """Whether the copy is whole now; False where the time was up before. Raises what the API raises."""
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
        return _copy(store, api, progress, until, store.etag if store.synced_at is not None else "")
    except StaleCursor:
        return _copy(store, api, store.begin(), until, "")


def _copy(store: CatalogStore, api: OfficialApi, progress: Progress, until: float, etag: str) -> bool:
    seen: set[str] = set()
    is_first = not progress.cursor
    for _ in range(MAX_PAGES):
        asked = etag if is_first and not progress.since else ""
        page = api.page(progress.cursor, since=progress.since, etag=asked)
        if page.is_unchanged:
            store.unchanged()
            return True
        progress = store.take(progress, page.records, page.cursor)
        if not page.cursor:
            # An ETag vouches for the page it came with, so only for a catalog of one page.
            store.finish(progress, page.etag if is_first and not progress.since else "")
            return True
        if page.cursor in seen:
            raise RegistryUnavailable("the catalog leads in circles: a page names itself as the next")
        seen.add(page.cursor)
        is_first = False
        if time.monotonic() > until:
            return False
    raise RegistryUnavailable(f"the catalog has more than {MAX_PAGES} pages")


# --- Searching a catalog's copy: every word as the beginning of a word, the name before the description ---


CANDIDATES: Final = 200
MAX_WORDS: Final = 16
_WORD: Final = re.compile(r"[^\W_]+")
# In most names; asked for beside other words, they only say which of several comes first.
_SAYS_NOTHING: Final = frozenset({"mcp", "server", "servers", "io", "com"})


def search(store: CatalogStore, asked: str, limit: int) -> list[Row]:
    text = asked.strip().lower()
    words = _WORD.findall(text.removeprefix("io.github."))[:MAX_WORDS]
    if not words:
        return []
    pool = max(CANDIDATES, limit * 2)
    telling = [word for word in words if word not in _SAYS_NOTHING] or words
    found = store.matching(" ".join(f'"{word}"*' for word in telling), pool)
    if not found and len(telling) > 1:
        found = store.matching(" OR ".join(f'"{word}"*' for word in telling), pool)
    ranked = sorted(found, key=lambda row: _standing(row, words, text))
    if len(ranked) < limit:
        known = {row.name for row in ranked}
        ranked += [row for row in store.containing(words, pool) if row.name not in known]
    return ranked[:limit]


def _standing(row: Row, words: list[str], asked: str) -> tuple[float, int, str]:
    """Smaller is better, as it is with the index's own rank."""
    name = row.name.lower()
    owner, _, last = name.rpartition("/")
    last_words = _WORD.findall(last)
    standing = row.rank
    if asked in (name, row.short.lower()):
        standing -= 100
    if words == [word for word in last_words if word not in _SAYS_NOTHING] or words == last_words:
        standing -= 40
    elif set(words) <= set(last_words):
        standing -= 20
    elif set(words) <= {*last_words, *_WORD.findall(owner)}:
        standing -= 12
    elif all(word in name for word in words):
        standing -= 6
    if row.status == "deprecated":
        standing += 60
    return standing, len(name), name

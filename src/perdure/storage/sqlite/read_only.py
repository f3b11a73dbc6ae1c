"""Read-only connections to the stores, and the summaries that `status`, `doctor` and the dashboard show.

Nothing is created, migrated or locked. A summary reports an unreadable store as `error` instead of raising.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from json import loads
from typing import Any, Final

import apsw

from perdure.storage.sqlite.database import migrate, migrations
from perdure.storage.sqlite.drafts import EXPIRED
from perdure.storage.sqlite.retention import TRACKED_BYTES

BUSY_MS: Final = 1_000
_FLAGS: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
UNDO_REACH: Final = 1_000
LAST_ROWS: Final = 5
MAX_LEASES: Final = 20
MAX_ROWS: Final = 200
_COMMITTED: Final = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = {row}.seq)"
_LAST_ROWS: Final = (
    "SELECT seq, ts, path, op, mode, nullif(lower(hex(new_sha)), ''), nullif(lower(hex(old_sha)), ''), bytes, client, "
    f"session, txn FROM journal WHERE {_COMMITTED.format(row='journal')} ORDER BY seq DESC LIMIT ?"
)
# Changes that are not undone, or whose undo was itself undone; only the newest, since undo reaches no further.
_UNDOABLE: Final = (
    "SELECT count(*) FROM (SELECT seq, op FROM journal WHERE seq > ? "
    f"AND {_COMMITTED.format(row='journal')} ORDER BY seq DESC LIMIT ?) AS j "
    "WHERE j.op NOT IN ('undo', 'redo') AND NOT EXISTS (SELECT 1 FROM journal AS u WHERE u.undoes = j.seq "
    f"AND {_COMMITTED.format(row='u')} AND NOT EXISTS (SELECT 1 FROM journal AS r WHERE r.undoes = u.seq "
    f"AND {_COMMITTED.format(row='r')}))"
)
_KEPT: Final = "SELECT last_seq, bytes FROM retention, kept"
_WRITES_SINCE: Final = (
    "SELECT (SELECT coalesce(sum(writes), 0) FROM cached_minutes WHERE minute >= ?1 / 60000000) + "
    "(SELECT count(*) FROM journal WHERE seq > (SELECT last_seq FROM cached_sums) AND ts >= ?1 "
    f"AND {_COMMITTED.format(row='journal')})"
)
# The same for a journal that is not migrated yet.
_FIRST_WITH_CACHED_SUMS: Final = 4
_FIRST_WITH_TIMELINE: Final = 5
_KEPT_BEFORE: Final = "SELECT retired, stored FROM sums"
_WRITES_SINCE_BEFORE: Final = "SELECT coalesce(sum(writes), 0) FROM minutes WHERE minute >= ?1 / 60000000"
_LEASES: Final = (
    "SELECT namespace, key, value, expires FROM entries WHERE space = 'lease' AND value IS NOT NULL "
    "AND (expires IS NULL OR expires > ?) ORDER BY expires LIMIT ?"
)


# --- connections --------------------------------------------------------------------------------------------


def connect(path: str, *, follow: bool = False) -> apsw.Connection:
    """A connection that cannot write. A store in a read-only folder can be read too. Only with `follow` its path may
    lead through links."""
    path = os.path.realpath(path) if follow else path
    # SQLite needs a shared-memory file beside a WAL database. Where it cannot be created and no WAL file exists, no
    # process can be writing, so the database file alone holds everything.
    is_writable = os.access(os.path.dirname(path) or ".", os.W_OK) and os.access(path, os.W_OK)
    immutable = "" if is_writable or os.path.exists(f"{path}-wal") else "&immutable=1"
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = apsw.Connection(f"file:{quoted}?mode=ro{immutable}", flags=_FLAGS)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def connect_or_empty(path: str, family: str) -> apsw.Connection:
    """The same; where there is no file, an empty store of that family in memory."""
    if os.path.lexists(path):
        return connect(path)
    connection = apsw.Connection(":memory:")
    migrate(connection, family, path)
    return connection


def newest_format(family: str) -> int:
    return max(number for number, _ in migrations(family))


def user_version(path: str) -> int | None:
    """The format of a store; None where it cannot be read."""
    return summarize(path, lambda connection: {"format": _format(connection)}, follow=True).get("format")


def summarize(
    path: str, query: Callable[[apsw.Connection], dict[str, Any]], *, follow: bool = False
) -> dict[str, Any]:
    """The result of a query, with `found` and `path`; with `error` where the store cannot be read."""
    if not os.path.lexists(path):
        return {"found": False, "path": path}
    try:
        connection = connect(path, follow=follow)
        try:
            return {"found": True, "path": path, **query(connection)}
        finally:
            connection.close()
    except apsw.Error as error:
        return {"found": True, "path": path, "error": _message(error)}


# --- the journal --------------------------------------------------------------------------------------------


def journal_summary(path: str, since_us: int, last: int = LAST_ROWS) -> dict[str, Any]:
    """Totals, the last rows and how many changes can be undone. `since_us` is the start of today."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        rows: list[Any] = connection.execute(_LAST_ROWS, (last,)).fetchall()
        names = ("journal_id", "ts", "path", "op", "mode", "sha256", "prev_sha256", "bytes", "client", "session",
                 "transaction_id")  # fmt: skip
        has_cache = _format(connection) >= _FIRST_WITH_CACHED_SUMS
        kept: list[Any] = connection.execute(_KEPT if has_cache else _KEPT_BEFORE).fetchall()
        retired_seq, stored_bytes = kept[0]
        # Rows are numbered from 1 and never deleted.
        writes = "SELECT coalesce((SELECT max(seq) FROM journal), 0) - (SELECT count(*) FROM outcomes)"
        return {
            "format": _format(connection),
            "writes": _value(connection, writes),
            "writes_today": _value(
                connection, _WRITES_SINCE if has_cache else _WRITES_SINCE_BEFORE, since_us
            ),
            "stored_bytes": stored_bytes,
            "open_drafts": _value(connection, "SELECT count(*) FROM drafts"),
            "unsettled": _value(connection, "SELECT count(*) FROM intents"),
            "undo_in_reach": _value(connection, _UNDOABLE, retired_seq, UNDO_REACH),
            "last": [dict(zip(names, (str(row[0]), *row[1:]), strict=True)) for row in rows],
        }

    return summarize(path, query)


def journal_condition(path: str) -> dict[str, Any]:
    """`is_current`: the format is this version's. `has_intents`: some rows are not settled yet."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        return {
            "is_current": _format(connection) == newest_format("journal"),
            "has_intents": bool(_value(connection, "SELECT count(*) FROM intents")),
        }

    return summarize(path, query)


def journal_usage(path: str) -> dict[str, Any]:
    """What takes room in a journal: bytes of all contents, then drafts and shelf with their numbers and sizes, the free
    pages of the file, and the time of the newest row (microseconds)."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        has_cache = _format(connection) >= _FIRST_WITH_CACHED_SUMS
        kept: list[Any] = connection.execute(_KEPT if has_cache else _KEPT_BEFORE).fetchall()
        drafts: list[Any] = connection.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM drafts"
        ).fetchall()
        shelf = connection.execute("SELECT kind, count(*), coalesce(sum(size), 0) FROM shelf GROUP BY kind")
        free = int(connection.pragma("freelist_count")) * int(connection.pragma("page_size"))
        return {
            "contents_bytes": kept[0][1],
            "drafts": {"count": drafts[0][0], "bytes": drafts[0][1]},
            "shelf": {kind: {"count": n, "bytes": size} for kind, n, size in shelf},
            "tracked": _tracked_usage(connection),
            "free_bytes": free,
            "newest": _value(connection, "SELECT max(ts) FROM journal"),
        }

    return summarize(path, query)


def _tracked_usage(connection: apsw.Connection) -> dict[str, int]:
    """The covered files of the time machine, and the bytes of their contents as they are kept."""
    if _format(connection) < _FIRST_WITH_TIMELINE:
        return {"count": 0, "bytes": 0}
    return {
        "count": _value(connection, "SELECT count(*) FROM tracked_files WHERE kind = 'file'"),
        "bytes": _value(connection, TRACKED_BYTES),
    }


def drafts(path: str) -> dict[str, Any]:
    """Rejected payloads that were kept, newest first, without their contents."""
    names = ("draft", "path", "reason", "size", "client", "session", "ts")

    def query(connection: apsw.Connection) -> dict[str, Any]:
        text = (
            "SELECT id, path, reason, size, client, session, ts FROM drafts WHERE ts > "
            f"{EXPIRED} ORDER BY ts DESC LIMIT {MAX_ROWS}"
        )
        return {"drafts": [dict(zip(names, row, strict=True)) for row in connection.execute(text)]}

    return summarize(path, query)


def undos(path: str) -> dict[str, Any]:
    """The newest changes that took something back, newest first; no further than undo reaches."""
    names = ("journal_id", "ts", "path", "op", "client", "session")

    def query(connection: apsw.Connection) -> dict[str, Any]:
        text = (
            "SELECT seq, ts, path, op, client, session FROM journal WHERE op IN ('undo', 'redo', 'restore') "
            f"AND seq > (SELECT coalesce(max(seq), 0) - ? FROM journal) AND {_COMMITTED.format(row='journal')} "
            "ORDER BY seq DESC LIMIT ?"
        )
        rows: list[Any] = connection.execute(text, (UNDO_REACH, MAX_ROWS)).fetchall()
        return {"undos": [dict(zip(names, (str(row[0]), *row[1:]), strict=True)) for row in rows]}

    return summarize(path, query)


def writes_since(path: str, since_us: int) -> dict[str, Any]:
    """How many changes there were."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        has_cache = _format(connection) >= _FIRST_WITH_CACHED_SUMS
        text = _WRITES_SINCE if has_cache else _WRITES_SINCE_BEFORE
        return {"writes": _value(connection, text, since_us)}

    return {"writes": 0, **summarize(path, query)}


# --- the state store ----------------------------------------------------------------------------------------


def state_summary(path: str) -> dict[str, Any]:
    """Totals and the leases that are held now."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        now = _now()
        totals: list[Any] = connection.execute(
            "SELECT coalesce(sum(keys), 0), coalesce(sum(bytes), 0), count(*) FROM namespaces WHERE keys > 0"
        ).fetchall()
        # The totals include leases and once-keys. There are few of those, so they are counted.
        others = _value(
            connection,
            "SELECT count(*) FROM entries WHERE space IN ('lease', 'once') AND value IS NOT NULL",
        )
        leases: list[Any] = connection.execute(_LEASES, (now, MAX_LEASES)).fetchall()
        return {
            "format": _format(connection),
            "keys": totals[0][0] - others,
            "bytes": totals[0][1],
            "namespaces": totals[0][2],
            "revision": _value(connection, "SELECT revision FROM store"),
            "leases": [lease(row[0], row[1], row[2], row[3], now) for row in leases],
        }

    return summarize(path, query, follow=True)


def namespaces(path: str) -> dict[str, Any]:
    """Each namespace with its numbers of keys and leases, and the leases that are held now."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        now = _now()
        counts = connection.execute(
            "SELECT namespace, sum(space = 'key'), sum(space = 'lease') FROM entries "
            "WHERE value IS NOT NULL AND (expires IS NULL OR expires > ?) GROUP BY namespace ORDER BY namespace LIMIT ?",
            (now, MAX_ROWS),
        )
        leases: list[Any] = connection.execute(_LEASES, (now, MAX_ROWS)).fetchall()
        return {
            "namespaces": [dict(zip(("namespace", "keys", "leases"), row, strict=True)) for row in counts],
            "leases": [lease(row[0], row[1], row[2], row[3], now) for row in leases],
        }

    return summarize(path, query, follow=True)


def writers(path: str, namespace: str, keys: Iterable[str]) -> dict[str, Any]:
    """Which client last changed each of these keys."""

    def query(connection: apsw.Connection) -> dict[str, Any]:
        text = (
            "SELECT client FROM changes WHERE space = 'key' AND namespace = ? AND key = ? "
            "ORDER BY revision DESC LIMIT 1"
        )
        found: dict[str, str] = {}
        for key in keys:
            rows: list[Any] = connection.execute(text, (namespace, key)).fetchall()
            if rows:
                found[key] = rows[0][0]
        return {"writers": found}

    return summarize(path, query, follow=True)


def lease(namespace: str, name: str, value: str, expires: int | None, now: int) -> dict[str, Any]:
    try:
        owner = str(loads(value)["owner"])
    except (ValueError, TypeError, KeyError):
        owner = "unknown"
    left = (expires - now) / 1_000_000 if expires is not None else None
    return {"namespace": namespace, "name": name, "owner": owner, "expires_in_s": left}


# --- helpers ------------------------------------------------------------------------------------------------


def _value(connection: apsw.Connection, text: str, *values: int) -> Any:
    rows: list[Any] = connection.execute(text, values).fetchall()
    return rows[0][0]


def _format(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _now() -> int:
    return int(time.time() * 1_000_000)


def _message(error: apsw.Error) -> str:
    match error:
        case apsw.NotADBError():
            return "it is not a database"
        case apsw.CorruptError():
            return "it is damaged"
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return "it cannot be opened"
        case apsw.BusyError() | apsw.LockedError():
            return "another process keeps it locked"
        case apsw.SQLError():
            return "it is not such a store"
        case _:
            return "it cannot be read"

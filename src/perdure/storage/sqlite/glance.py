"""A look at the two stores' files for whoever only wants to know: read-only, nothing made, migrated or locked.

Commands that only read start without msgspec and typing; so does this. What cannot be read is told, not raised.
"""

from __future__ import annotations

import os
import time

import apsw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BUSY_MS = 1_000
IN_REACH = 1_000
LAST = 5
MOST_LEASES = 20
MOST_SHOWN = 200
JOURNAL_FORMAT = 4
FIRST_WITH_CACHED_SUMS = 4
STATE_ID = 0x50645374
STATE_FORMAT = 1
_ENTRY = "key, version, revision, updated, expires"
_LIVE = "space = 'key' AND namespace = ? AND value IS NOT NULL AND (expires IS NULL OR expires > ?)"
_COMMITTED = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = {row}.seq)"
_ROW = "seq, ts, path, op, mode, old_sha, new_sha, bytes, client, session, txn"
_LAST_ROWS = (
    f"SELECT seq, ts, path, mode, bytes, client FROM journal WHERE {_COMMITTED.format(row='journal')} "
    "ORDER BY seq DESC LIMIT ?"
)
# A change that is not taken back, or whose taking back was: among the newest, since no undo reaches further.
_UNDOABLE = (
    "SELECT count(*) FROM (SELECT seq, op FROM journal WHERE seq > ? "
    f"AND {_COMMITTED.format(row='journal')} ORDER BY seq DESC LIMIT ?) AS j "
    "WHERE j.op NOT IN ('undo', 'redo') AND NOT EXISTS (SELECT 1 FROM journal AS u WHERE u.undoes = j.seq "
    f"AND {_COMMITTED.format(row='u')} AND NOT EXISTS (SELECT 1 FROM journal AS r WHERE r.undoes = u.seq "
    f"AND {_COMMITTED.format(row='r')}))"
)
_KEPT = "SELECT last_seq, bytes FROM retention, kept"
_WRITES_SINCE = (
    "SELECT (SELECT coalesce(sum(writes), 0) FROM cached_minutes WHERE minute >= ?1 / 60000000) + "
    "(SELECT count(*) FROM journal WHERE seq > (SELECT last_seq FROM cached_sums) AND ts >= ?1 "
    f"AND {_COMMITTED.format(row='journal')})"
)
# The same of a journal that is not migrated yet.
_KEPT_BEFORE = "SELECT retired, stored FROM sums"
_WRITES_SINCE_BEFORE = "SELECT coalesce(sum(writes), 0) FROM minutes WHERE minute >= ?1 / 60000000"
_LEASES = (
    "SELECT namespace, key, value, expires FROM entries WHERE space = 'lease' AND value IS NOT NULL "
    "AND (expires IS NULL OR expires > ?) ORDER BY expires LIMIT ?"
)


def journal(path: str, since_us: int, last: int = LAST) -> dict[str, Any]:
    """The journal's sums, its last rows, and what could be taken back. `since_us`: when today began."""
    return looked(path, lambda connection: _journal(connection, since_us, last))


def state(path: str) -> dict[str, Any]:
    """The state store's sums and the leases that are held now."""
    return looked(path, _state)


def rows(path: str, n: int, wanted: dict[str, str | None]) -> dict[str, Any]:
    """The newest rows, as they stand in the journal, and whether any of all is not settled by a live process yet."""
    terms = [
        _COMMITTED.format(row="journal"),
        *(f"{name} = ?" for name, value in wanted.items() if value is not None),
    ]
    given = [value for value in wanted.values() if value is not None]
    text = f"SELECT {_ROW} FROM journal WHERE {' AND '.join(terms)} ORDER BY seq DESC LIMIT ?"

    def look(connection: apsw.Connection) -> dict[str, Any]:
        unsettled: list[Any] = connection.execute("SELECT 1 FROM intents LIMIT 1").fetchall()
        return {"unsettled": bool(unsettled), "rows": connection.execute(text, (*given, n)).fetchall()}

    return looked(path, look)


def entry(path: str, namespace: str, key: str) -> dict[str, Any]:
    """A key that is there now, in a store of this version; without `row` for all else."""

    def look(connection: apsw.Connection) -> dict[str, Any]:
        text = f"SELECT {_ENTRY}, value FROM entries WHERE {_LIVE} AND key = ?"
        return {"row": _first(connection.execute(text, (namespace, _now(), key)).fetchall())}

    return looked(path, lambda connection: look(connection) if _is_ours(connection) else {})


def entries(path: str, namespace: str, prefix: str, n: int) -> dict[str, Any]:
    """The first keys with a prefix; without `rows` where the store, or the prefix, is for others to look at."""
    if prefix and not "\x00" < prefix[-1] < "\ud7ff":
        return {}
    above = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None

    def look(connection: apsw.Connection) -> dict[str, Any]:
        revision = _first(connection.execute("SELECT revision FROM store").fetchall())
        within, given = ("AND key >= ? AND key < ?", (prefix, above)) if above is not None else ("", ())
        text = f"SELECT {_ENTRY}, NULL FROM entries WHERE {_LIVE} {within} ORDER BY key LIMIT ?"
        found = connection.execute(text, (namespace, _now(), *given, n)).fetchall()
        return {"revision": revision[0], "rows": found}

    return looked(path, lambda connection: look(connection) if _is_ours(connection) else {})


def versions(path: str, namespace: str, key: str, n: int) -> dict[str, Any]:
    """The newest changes of a key; without `rows` where the store is for others to look at."""
    text = (
        "SELECT version, revision, value, updated, client, session, tool FROM changes "
        "WHERE space = 'key' AND namespace = ? AND key = ? ORDER BY revision DESC LIMIT ?"
    )

    def look(connection: apsw.Connection) -> dict[str, Any]:
        return {"rows": connection.execute(text, (namespace, key, n)).fetchall()}

    return looked(path, lambda connection: look(connection) if _is_ours(connection) else {})


def every_entry(path: str, tell: Any) -> dict[str, Any]:
    """Tell of every key that is there now, in the order of an export; without `told` where others have to look."""
    live = f"SELECT namespace, {_ENTRY}, value FROM entries WHERE {_LIVE} ORDER BY key"

    def look(connection: apsw.Connection) -> dict[str, Any]:
        spaces: list[Any] = connection.execute(
            "SELECT namespace FROM namespaces WHERE keys > 0 ORDER BY namespace"
        ).fetchall()
        for (namespace,) in spaces:
            for row in connection.execute(live, (namespace, _now())):
                tell(row)
        return {"told": True}

    return looked(path, lambda connection: look(connection) if _is_ours(connection) else {})


def spaces(path: str) -> dict[str, Any]:
    """The namespaces with what is in them, and every lease that is held, as far as a page shows."""

    def look(connection: apsw.Connection) -> dict[str, Any]:
        now = _now()
        counted = connection.execute(
            "SELECT namespace, sum(space = 'key'), sum(space = 'lease') FROM entries "
            "WHERE value IS NOT NULL AND (expires IS NULL OR expires > ?) GROUP BY namespace ORDER BY namespace LIMIT ?",
            (now, MOST_SHOWN),
        )
        held: list[Any] = connection.execute(_LEASES, (now, MOST_SHOWN)).fetchall()
        return {
            "namespaces": [dict(zip(("namespace", "keys", "leases"), row, strict=True)) for row in counted],
            "leases": [lease(row[0], row[1], row[2], row[3], now) for row in held],
        }

    return looked(path, lambda connection: look(connection) if _is_ours(connection) else {})


def drafts(path: str) -> dict[str, Any]:
    """Payloads that were refused and kept, newest first: never their contents."""
    names = ("draft", "path", "reason", "size", "client", "session", "ts")

    def look(connection: apsw.Connection) -> dict[str, Any]:
        text = f"SELECT id, path, reason, size, client, session, ts FROM drafts ORDER BY ts DESC LIMIT {MOST_SHOWN}"
        return {"drafts": [dict(zip(names, row, strict=True)) for row in connection.execute(text)]}

    return looked(path, look)


def _is_ours(connection: apsw.Connection) -> bool:
    found = (connection.pragma("application_id"), connection.pragma("user_version"))
    return found == (STATE_ID, STATE_FORMAT)


def _first(rows: list[Any]) -> Any:
    return rows[0] if rows else None


def _now() -> int:
    return int(time.time() * 1_000_000)


def user_version(path: str) -> int | None:
    """The format of a store; None where it cannot be read."""
    found = looked(path, lambda connection: {"format": int(connection.pragma("user_version"))})
    return found.get("format")


def looked(path: str, look: Any) -> dict[str, Any]:
    """What `look` finds over a connection, beside whether there is a file and whether it can be read."""
    if not os.path.exists(path):
        return {"found": False, "path": path}
    try:
        connection = _opened(path)
        try:
            return {"found": True, "path": path, **look(connection)}
        finally:
            connection.close()
    except apsw.Error as error:
        return {"found": True, "path": path, "error": _in_words(error)}


def empty_journal() -> apsw.Connection:
    """The journal of a workspace that has none."""
    connection = apsw.Connection(":memory:")
    folder = os.path.join(os.path.dirname(__file__), "migrations", "journal")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            connection.execute(file.read())
    return connection


def _opened(path: str) -> apsw.Connection:
    # One whose folder cannot be written is read as it stands: nobody who could change it is at work there. What its
    # log holds is seen only over the files that whoever wrote it has left.
    can_share = os.access(os.path.dirname(path) or ".", os.W_OK) and os.access(path, os.W_OK)
    can_share = can_share or os.path.exists(f"{path}-wal")
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    place = f"file:{quoted}?mode=ro" + ("" if can_share else "&immutable=1")
    connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def _journal(connection: apsw.Connection, since_us: int, last: int) -> dict[str, Any]:
    def one(text: str, *values: int) -> Any:
        rows: list[Any] = connection.execute(text, values).fetchall()
        return rows[0][0]

    version = int(connection.pragma("user_version"))
    has_cache = version >= FIRST_WITH_CACHED_SUMS
    kept: list[Any] = connection.execute(_KEPT if has_cache else _KEPT_BEFORE).fetchall()
    rows: list[Any] = connection.execute(_LAST_ROWS, (last,)).fetchall()
    names = ("journal_id", "ts", "path", "mode", "bytes", "client")
    return {
        "format": version,
        # Rows are numbered from 1 and never deleted.
        "writes": one("SELECT coalesce((SELECT max(seq) FROM journal), 0) - (SELECT count(*) FROM outcomes)"),
        "writes_today": one(_WRITES_SINCE if has_cache else _WRITES_SINCE_BEFORE, since_us),
        "stored_bytes": kept[0][1],
        "open_drafts": one("SELECT count(*) FROM drafts"),
        "unsettled": one("SELECT count(*) FROM intents"),
        "undo_in_reach": one(_UNDOABLE, kept[0][0], IN_REACH),
        "last": [dict(zip(names, (str(row[0]), *row[1:]), strict=True)) for row in rows],
    }


def _state(connection: apsw.Connection) -> dict[str, Any]:
    now = _now()
    sums: list[Any] = connection.execute(
        "SELECT coalesce(sum(keys), 0), coalesce(sum(bytes), 0), count(*) FROM namespaces WHERE keys > 0"
    ).fetchall()
    # The sums count leases and once-keys as well; there are few of those.
    others: list[Any] = connection.execute(
        "SELECT count(*) FROM entries WHERE space IN ('lease', 'once') AND value IS NOT NULL"
    ).fetchall()
    revision: list[Any] = connection.execute("SELECT revision FROM store").fetchall()
    leases: list[Any] = connection.execute(_LEASES, (now, MOST_LEASES)).fetchall()
    return {
        "format": int(connection.pragma("user_version")),
        "keys": sums[0][0] - others[0][0],
        "bytes": sums[0][1],
        "namespaces": sums[0][2],
        "revision": revision[0][0],
        "leases": [lease(row[0], row[1], row[2], row[3], now) for row in leases],
    }


def lease(namespace: str, name: str, value: str, expires: int | None, now: int) -> dict[str, Any]:
    from json import loads

    try:
        owner = str(loads(value)["owner"])
    except (ValueError, TypeError, KeyError):
        owner = "unknown"
    left = (expires - now) / 1_000_000 if expires is not None else None
    return {"namespace": namespace, "name": name, "owner": owner, "expires_in_s": left}


def _in_words(error: apsw.Error) -> str:
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

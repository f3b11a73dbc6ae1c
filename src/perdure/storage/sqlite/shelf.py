"""Contents kept under a name: put there, listed, taken away, with nothing left of what nothing else names."""

from __future__ import annotations

from typing import Any, Final

import apsw
import msgspec

from perdure.storage.journal import Item, Retired
from perdure.storage.sqlite.retention import Dropping

_COLUMNS: Final = "kind, name, at, sha, size, meta, client, session, created, updated, expires"


def put(connection: apsw.Connection, item: Item) -> Retired:
    """Put something in its place; what stood there goes, unless it is the same."""
    gone = remove(connection, item.kind, item.name, item.at, but=item.sha)
    values = (
        *(item.kind, item.name, item.at, item.sha, item.size, msgspec.json.encode(item.meta).decode()),
        *(item.client, item.session, item.created, item.updated, item.expires),
    )
    connection.execute(f"INSERT OR REPLACE INTO shelf ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)", values)
    return gone


def remove(
    connection: apsw.Connection, kind: str, name: str, at: int | None, *, but: bytes | None = None
) -> Retired:
    """Take one away, or all under a name."""
    where, values = "kind = ? AND name = ?", [kind, name]
    found: list[Any] = connection.execute(
        f"DELETE FROM shelf WHERE {where} AND (? IS NULL OR at = ?) AND sha IS NOT ? RETURNING sha",
        (*values, at, at, but),
    ).fetchall()
    return _dropped(connection, found)


def expire(connection: apsw.Connection, n: int, now: int) -> Retired:
    """Take away what has expired; an item at place 0 takes all under its name along."""
    found: list[Any] = connection.execute(
        "SELECT kind, name, at FROM shelf WHERE expires <= ? LIMIT ?", (now, n)
    ).fetchall()
    files = []
    for kind, name, at in found:
        files += remove(connection, kind, name, at or None).files
    return Retired(len(found), files, more=len(found) == n)


def end(connection: apsw.Connection, kind: str, name: str) -> int:
    """The last place under a name; 0 where there is none."""
    found: list[Any] = connection.execute(
        "SELECT coalesce(max(at), 0) FROM shelf WHERE kind = ? AND name = ?", (kind, name)
    ).fetchall()
    return int(found[0][0])


def _dropped(connection: apsw.Connection, found: list[Any]) -> Retired:
    if not found:
        return Retired(0, [], more=False)
    dropping = Dropping(connection)
    for (sha,) in found:
        dropping.drop_unnamed(sha)
    dropping.save()
    return Retired(len(found), dropping.files, more=False)


def items(connection: apsw.Connection, kind: str, name: str | None, now: int) -> list[Item]:
    """What is there and has not expired, in the order of names and places."""
    text = f"SELECT {_COLUMNS} FROM shelf WHERE kind = ? AND (? IS NULL OR name = ?) "
    text += "AND (expires IS NULL OR expires > ?) ORDER BY name, at"
    return [_item(found) for found in connection.execute(text, (kind, name, name, now))]


def item(connection: apsw.Connection, kind: str, name: str, at: int, now: int) -> Item | None:
    text = f"SELECT {_COLUMNS} FROM shelf WHERE kind = ? AND name = ? AND at = ? "
    text += "AND (expires IS NULL OR expires > ?)"
    found = connection.execute(text, (kind, name, at, now)).fetchone()
    return _item(found) if found is not None else None


def _item(found: Any) -> Item:
    values = dict(zip(Item.__struct_fields__, found, strict=True))
    values["meta"] = msgspec.json.decode(values["meta"])
    return Item(**values)

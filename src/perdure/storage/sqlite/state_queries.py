"""The statements of the state store on SQLite, each with its purpose."""

from __future__ import annotations

from typing import Final

ENTRY: Final = "space, namespace, key, version, revision, updated, expires, value"
BARE_ENTRY: Final = "space, namespace, key, version, revision, updated, expires, NULL"
CHANGE: Final = "space, namespace, key, version, revision, updated, NULL, value, client, session, tool"
BARE_CHANGE: Final = (
    "space, namespace, key, version, revision, updated, NULL, "
    "CASE WHEN value IS NULL THEN NULL ELSE '' END, client, session, tool"
)
NAMED: Final = "space = ? AND namespace = ? AND key = ?"

REVISION: Final = "SELECT revision FROM store"
LOAD: Final = f"SELECT {ENTRY} FROM entries WHERE {NAMED}"
LOAD_USAGE: Final = "SELECT keys, bytes FROM namespaces WHERE namespace = ?"
LOAD_ANSWER: Final = "SELECT key, tool, render, detail, result FROM answers WHERE key = ?"
# What is over and not yet a tombstone.
DUE: Final = (
    f"SELECT {ENTRY} FROM entries WHERE expires <= ? AND value IS NOT NULL "
    "ORDER BY expires, space, namespace, key LIMIT ?"
)

SET_REVISION: Final = "UPDATE store SET revision = ?"
PUT_ENTRY: Final = (
    f"INSERT INTO entries ({ENTRY}) VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
    "version = excluded.version, revision = excluded.revision, updated = excluded.updated, "
    "expires = excluded.expires, value = excluded.value"
)
PUT_CHANGE: Final = (
    "INSERT INTO changes (space, namespace, key, version, revision, updated, value, client, session, tool) "
    "VALUES (?,?,?,?,?,?,?,?,?,?)"
)
GROW: Final = (
    "INSERT INTO namespaces VALUES (?,?,?) ON CONFLICT DO UPDATE SET "
    "keys = keys + excluded.keys, bytes = bytes + excluded.bytes"
)
PUT_ANSWER: Final = "INSERT INTO answers (key, tool, render, detail, result, at) VALUES (?,?,?,?,?,?)"

# One statement, one snapshot: the entry and the revision at which it was looked for. Without a join SQLite takes a third
# of the time; where it finds no entry, the revision takes the other.
FIND: Final = f"SELECT (SELECT revision FROM store), {ENTRY} FROM entries WHERE {NAMED}"
FIND_OR_NONE: Final = (
    "SELECT store.revision, e.space, e.namespace, e.key, e.version, e.revision, e.updated, e.expires, e.value "
    "FROM store LEFT JOIN entries e ON e.space = ? AND e.namespace = ? AND e.key = ?"
)
FIND_AT: Final = (
    f"SELECT {CHANGE} FROM changes WHERE {NAMED} AND revision <= ? ORDER BY revision DESC LIMIT 1"
)
HISTORY: Final = f"SELECT {CHANGE} FROM changes WHERE {NAMED} ORDER BY revision DESC LIMIT ?"
# Back from the newest: as far as the changes of that time.
REVISION_BEFORE: Final = "SELECT revision FROM changes WHERE updated < ? ORDER BY revision DESC LIMIT 1"
NAMESPACES: Final = "SELECT namespace FROM namespaces ORDER BY namespace"
OLD_ANSWERS: Final = (
    "DELETE FROM answers WHERE key IN (SELECT key FROM answers WHERE at < ? ORDER BY at LIMIT ?)"
)
# The newest change of each name stays, so that a wait from an old revision still sees it.
OLD_CHANGES: Final = (
    "DELETE FROM changes WHERE rowid IN (SELECT c.rowid FROM changes c JOIN entries e "
    "USING (space, namespace, key) WHERE c.updated < ? AND c.revision < e.revision ORDER BY c.revision LIMIT ?)"
)

"""The statements of the state store on PostgreSQL, each with its purpose. Many rows travel as arrays."""

from __future__ import annotations

from typing import Final

ENTRY: Final = "space, namespace, key, version, revision, updated, expires, value"
BARE_ENTRY: Final = "space, namespace, key, version, revision, updated, expires, NULL"
CHANGE: Final = "space, namespace, key, version, revision, updated, NULL, value, client, session, tool"
BARE_CHANGE: Final = (
    "space, namespace, key, version, revision, updated, NULL, "
    "CASE WHEN value IS NULL THEN NULL ELSE '' END, client, session, tool"
)
NAMED: Final = "space = %s AND namespace = %s AND key = %s"
CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
STARTED: Final = "(extract(epoch FROM now()) * 1000000)::bigint"

REVISION: Final = "SELECT revision FROM perdure.store"
NOW: Final = f"SELECT {CLOCK}"
# Rounds of all machines follow one another here, so that revisions are committed in their order.
LOCK: Final = "SELECT revision FROM perdure.store WHERE id = 1 FOR UPDATE"
LOAD: Final = (
    "SELECT e.space, e.namespace, e.key, e.version, e.revision, e.updated, e.expires, e.value "
    "FROM unnest(%s::text[], %s::text[], %s::text[]) AS wanted (space, namespace, key) "
    "JOIN perdure.entries e ON e.space = wanted.space AND e.namespace = wanted.namespace AND e.key = wanted.key"
)
LOAD_USAGE: Final = "SELECT namespace, keys, bytes FROM perdure.namespaces WHERE namespace = ANY(%s)"
LOAD_ANSWERS: Final = "SELECT key, tool, render, detail, result FROM perdure.answers WHERE key = ANY(%s)"
# What is over and not yet a tombstone. By the time the transaction began: a later one keeps the index out of use.
DUE: Final = (
    f"SELECT {ENTRY} FROM perdure.entries WHERE expires <= {STARTED} AND value IS NOT NULL "
    "ORDER BY expires, space, namespace, key LIMIT %s"
)

SET_REVISION: Final = "UPDATE perdure.store SET revision = %s WHERE id = 1"
PUT_ENTRIES: Final = (
    f"INSERT INTO perdure.entries ({ENTRY}) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], "
    "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[]) "
    "ON CONFLICT (space, namespace, key) DO UPDATE SET version = excluded.version, "
    "revision = excluded.revision, updated = excluded.updated, expires = excluded.expires, "
    "value = excluded.value"
)
PUT_CHANGES: Final = (
    "INSERT INTO perdure.changes (space, namespace, key, version, revision, updated, value, client, session, "
    "tool) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[])"
)
GROW: Final = (
    "INSERT INTO perdure.namespaces AS n SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) "
    "ON CONFLICT (namespace) DO UPDATE SET keys = n.keys + excluded.keys, bytes = n.bytes + excluded.bytes"
)
PUT_ANSWERS: Final = (
    "INSERT INTO perdure.answers (key, tool, render, detail, result, at) SELECT a.*, %s::bigint "
    "FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[]) AS a"
)

# One statement, one snapshot: the entry, and the revision and time at which it was looked for.
FIND: Final = (
    f"SELECT s.revision, {CLOCK}, e.space, e.namespace, e.key, e.version, e.revision, e.updated, e.expires, "
    "e.value FROM perdure.store s LEFT JOIN perdure.entries e "
    "ON e.space = %s AND e.namespace = %s AND e.key = %s"
)
FIND_AT: Final = (
    f"SELECT {CHANGE} FROM perdure.changes WHERE {NAMED} AND revision <= %s ORDER BY revision DESC LIMIT 1"
)
HISTORY: Final = f"SELECT {CHANGE} FROM perdure.changes WHERE {NAMED} ORDER BY revision DESC LIMIT %s"
# Back from the newest: as far as the changes of that time.
REVISION_BEFORE: Final = (
    f"SELECT revision FROM perdure.changes WHERE updated < {CLOCK} - %s::bigint "
    "ORDER BY revision DESC LIMIT 1"
)
NAMESPACES: Final = "SELECT namespace FROM perdure.namespaces ORDER BY namespace"
OLD_ANSWERS: Final = (
    "DELETE FROM perdure.answers WHERE key IN "
    "(SELECT key FROM perdure.answers WHERE at < %s ORDER BY at LIMIT %s)"
)
# The newest change of each name stays, so that a wait from an old revision still sees it.
OLD_CHANGES: Final = (
    "DELETE FROM perdure.changes WHERE ctid IN (SELECT c.ctid FROM perdure.changes c JOIN perdure.entries e "
    "USING (space, namespace, key) WHERE c.updated < %s AND c.revision < e.revision "
    "ORDER BY c.revision LIMIT %s)"
)
LISTEN: Final = "LISTEN perdure_state"
# A wake-up, not a record: it need not wait for the disk.
NOTIFY: Final = "BEGIN; SET LOCAL synchronous_commit = off; NOTIFY perdure_state; COMMIT"

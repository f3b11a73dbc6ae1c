"""The state store on PostgreSQL: as many machines as there are, one order of changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from perdure.platform.fault_points import passed, point
from perdure.storage.errors import StateError
from perdure.storage.postgres import state_queries as sql
from perdure.storage.postgres.errors import is_lost, meaning, typed
from perdure.storage.postgres.migrate import prepare
from perdure.storage.postgres.notify import Listener, Notifier
from perdure.storage.postgres.pool import Connection, Connections
from perdure.storage.state import (
    DUE_PER_ROUND,
    MOST_CHANGES,
    Answer,
    Author,
    Change,
    Decide,
    Entry,
    Found,
    Loaded,
    Log,
    Name,
    Page,
    Span,
    Usage,
    Wanted,
    Written,
    log_of,
)
from perdure.storage.state_watch import Watch

PATIENCE_S: Final = 10.0
SETTLE_S: Final = 8.0


class _Unsure(Exception):
    """The connection went while it committed: whether it did must be asked."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self.written = written


class PostgresState:
    """`dsn` is a URL or a connection string. Its tables are in the schema `perdure`."""

    finds_at_once = False

    def __init__(self, dsn: str) -> None:
        with typed():
            self._connections = Connections(dsn)
            try:
                with self._connections.borrowed() as connection:
                    prepare(connection)
            except BaseException:
                self._connections.close()
                raise
        self._writing = threading.Lock()
        self._listener = Listener(self._connections)
        self._notifier = Notifier(self._connections)
        self._watch = Watch(self._look)

    # --- rounds ---------------------------------------------------------------------------------------------------

    def round(self, wanted: Wanted, decide: Decide) -> None:
        if not self._writing.acquire(timeout=PATIENCE_S):
            raise StateError("resource", "state_busy", "the state store has not come to this call in time")
        try:
            revision = self._tried(wanted, decide)
        finally:
            self._writing.release()
        if revision is not None:
            passed("state.committed")
            self._watch.advance(revision)
            self._notifier.poke()

    def _tried(self, wanted: Wanted, decide: Decide) -> int | None:
        """Until COMMIT is sent nothing has happened, so it may be tried again."""
        try:
            return self._connections.run(lambda connection: self._transact(connection, wanted, decide))
        except _Unsure as unsure:
            return self._settled(unsure.written)
        except psycopg.Error as error:
            raise meaning(error) from None

    def _transact(self, connection: Connection, wanted: Wanted, decide: Decide) -> int | None:
        try:
            loaded = self._load(connection, wanted)
            point("state.locked")
            written = decide(loaded)
            point("state.decided")
            if written is None:
                connection.execute("ROLLBACK")
                return None
            _store(connection, written, loaded.now)
            point("state.written")
        except BaseException as error:
            _roll_back(connection)
            if isinstance(error, OSError):
                raise StateError("resource", "state_failed", "the state store failed") from None
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if is_lost(error):
                raise _Unsure(written) from None
            raise
        return written.revision

    def _load(self, connection: Connection, wanted: Wanted) -> Loaded:
        names = list(wanted.names)
        with connection.pipeline():
            connection.execute("BEGIN")
            revision = connection.execute(sql.LOCK)
            now = connection.execute(sql.NOW)
            columns = [[name[i] for name in names] for i in range(3)]
            entries = connection.execute(sql.LOAD, columns)
            usage = connection.execute(sql.LOAD_USAGE, (list(wanted.namespaces),))
            answers = connection.execute(sql.LOAD_ANSWERS, (list(wanted.answers),))
            due = connection.execute(sql.DUE, (DUE_PER_ROUND,))
        found = [Entry(*row) for row in entries]
        return Loaded(
            now.fetchall()[0][0],
            revision.fetchall()[0][0],
            {entry.name: entry for entry in found},
            {row[0]: Usage(*row[1:]) for row in usage},
            {row[0]: Answer(*row) for row in answers},
            [Entry(*row) for row in due],
        )

    def _settled(self, written: Written) -> int | None:
        """What became of a commit that was not answered. Under the lock: one that is still running is waited for."""
        until = time.monotonic() + SETTLE_S
        keys = [answer.key for answer in written.answers][:1]
        if not keys:
            raise _unknown()  # a round without answers leaves nothing to ask for
        while time.monotonic() < until:
            try:
                with self._connections.borrowed() as connection, connection.transaction():
                    connection.execute(sql.LOCK)
                    known = connection.execute(sql.LOAD_ANSWERS, (keys,)).fetchone()
            except psycopg.Error:
                time.sleep(0.1)
                continue
            if known is not None:
                return written.revision
            raise StateError("transport", "state_unreachable", "the database went away; nothing was changed")
        raise _unknown()

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, name: Name) -> Found:
        row = self._rows(sql.FIND, name)[0]
        return Found(Entry(*row[2:]) if row[2] is not None else None, row[0], row[1])

    def find_at(self, name: Name, revision: int) -> Change | None:
        rows = self._rows(sql.FIND_AT, (*name, revision))
        return _change(rows[0]) if rows else None

    def page(self, span: Span, after: str | None, limit: int, values: bool) -> Page:
        where, given = _within(span)
        where += f" AND value IS NOT NULL AND (expires IS NULL OR expires > {sql.STARTED})"
        if after is not None:
            where += " AND key > %s"
            given.append(after)
        columns = sql.ENTRY if values else sql.BARE_ENTRY
        text = f"SELECT {columns} FROM perdure.entries WHERE {where} ORDER BY key LIMIT %s"
        revision = self.revision()
        return Page([Entry(*row) for row in self._rows(text, (*given, limit))], revision)

    def history(self, name: Name, limit: int) -> list[Change]:
        return [_change(row) for row in self._rows(sql.HISTORY, (*name, limit))]

    def changes(self, span: Span, after: int) -> Log:
        # The revision is read first: what is committed in between is found now or at the next look, never missed.
        revision = self.revision()
        where, given = _within(span)
        text = (
            f"SELECT {sql.BARE_CHANGE} FROM perdure.changes WHERE revision > %s AND {where} "
            "ORDER BY revision, key LIMIT %s"
        )
        found = [_change(row) for row in self._rows(text, (after, *given, MOST_CHANGES + 1))]
        return log_of(found, revision)

    def namespaces(self) -> list[str]:
        return [row[0] for row in self._rows(sql.NAMESPACES, ())]

    def next_expiry(self, span: Span) -> float | None:
        where, given = _within(span)
        text = (
            f"SELECT min(expires) - {sql.CLOCK} FROM perdure.entries "
            f"WHERE expires IS NOT NULL AND value IS NOT NULL AND {where}"
        )
        found: int | None = self._rows(text, given)[0][0]
        return found / 1_000_000 if found is not None else None

    def revision(self) -> int:
        return int(self._rows(sql.REVISION, ())[0][0])

    def revision_before(self, seconds: float) -> int:
        found = self._rows(sql.REVISION_BEFORE, (int(seconds * 1_000_000),))
        return int(found[0][0]) if found else 0

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        return self._watch.wait_beyond(revision, seconds)

    def forget(self, *, answers_before: int, history_before: int, limit: int) -> int:
        with typed(), self._connections.borrowed() as connection:
            answers = connection.execute(sql.OLD_ANSWERS, (answers_before, limit)).rowcount
            return answers + connection.execute(sql.OLD_CHANGES, (history_before, limit)).rowcount

    def take_notices(self) -> list[str]:
        return []

    def close(self) -> None:
        self._watch.close()
        self._notifier.close()
        self._connections.close()
        self._listener.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _look(self, known: int) -> int:
        with typed():
            self._listener.wait()
        return self.revision()

    def _rows(self, text: str, given: Sequence[Any]) -> list[tuple[Any, ...]]:
        with typed():
            return self._connections.run(
                lambda connection: connection.execute(text.encode(), given).fetchall()
            )


def _store(connection: Connection, written: Written, now: int) -> None:
    entries = [
        (e.space, e.namespace, e.key, e.version, e.revision, e.updated, e.expires, e.value)
        for e in written.entries
    ]
    changes = [
        (*_place(c.entry), c.entry.value, c.author.client, c.author.session, c.author.tool)
        for c in written.changes
    ]
    usage = [(name, more.keys, more.bytes) for name, more in written.usage.items()]
    answers = [(a.key, a.tool, a.render, a.detail, a.result) for a in written.answers]
    with connection.pipeline():
        connection.execute(sql.SET_REVISION, (written.revision,))
        connection.execute(sql.PUT_ENTRIES, _columns(entries))
        connection.execute(sql.PUT_CHANGES, _columns(changes))
        connection.execute(sql.GROW, _columns(usage))
        if answers:
            connection.execute(sql.PUT_ANSWERS, (now, *_columns(answers)))


def _place(e: Entry) -> tuple[Any, ...]:
    return e.space, e.namespace, e.key, e.version, e.revision, e.updated


def _columns(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _roll_back(connection: Connection) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()


def _within(span: Span) -> tuple[str, list[Any]]:
    where, given = "space = %s AND namespace = %s AND key >= %s", [span.space, span.namespace, span.low]
    if span.high is not None:
        where += " AND key < %s"
        given.append(span.high)
    if span.pattern is not None:
        where += " AND key LIKE %s"
        given.append(span.pattern)
    return where, given


def _change(row: tuple[Any, ...]) -> Change:
    return Change(Entry(*row[:8]), Author(*row[8:]))


def _unknown() -> StateError:
    return StateError(
        "transport",
        "state_outcome_unknown",
        "the database went away while it committed; read before trying again",
        "after_probe",
        outcome="unknown",
    )

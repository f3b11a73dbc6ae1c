"""The state store on SQLite: one writer connection under a fair lock, one reader connection per thread.

A single key is read over the writing connection while no write runs. A file that was removed or replaced is noticed before
anything is read or acknowledged: the one that has its name now is opened.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import apsw

from perdure.platform.fault_points import passed, point
from perdure.storage.errors import LockTimeout, StateError, UnusableStore
from perdure.storage.files.held_files import HeldFiles
from perdure.storage.process_lock import ProcessLock, open_lock_file
from perdure.storage.sqlite import state_queries as sql
from perdure.storage.sqlite.database import close_detached
from perdure.storage.sqlite.readers import ThreadReaders
from perdure.storage.sqlite.state_errors import meaning, not_opened, typed, typed_error
from perdure.storage.sqlite.state_schema import open_read_only, open_reader, open_state
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
from perdure.storage.user_dirs import make_private_folders

LOOK_EVERY_S: Final = 0.005
PATIENCE_S: Final = 10.0
LOCK_S: Final = 5.0
REPLACED: Final = (
    "The state store was removed or replaced while it was open; the one that is there now was opened."
)


class SqliteState:
    """`path` is made with its folders. Its lock file stands beside it.

    With `is_read_only` the lock is not taken, unless the store has to be adopted or migrated first.
    """

    finds_at_once = True

    def __init__(
        self, path: str, clock: Callable[[], float] = time.time, *, is_read_only: bool = False
    ) -> None:
        self._path = path
        self._clock = clock
        self._writing = threading.Lock()
        self._readers = ThreadReaders(lambda: open_reader(path))
        self._looking: apsw.Connection | None = None
        self._looking_since = 0
        self._notices: list[str] = []
        self._watch = Watch(self._look)
        self._is_suspect = False
        self._lock_path = f"{path}-lock"
        self._lock = ProcessLock(lambda: open_lock_file(self._lock_path))
        self._is_closed = False
        self._opened = 0  # how often; the watching connection of an earlier time is replaced
        opened = open_read_only(path) if is_read_only else None
        self._is_read_only = opened is not None
        if opened is not None:
            self._write = opened
            return
        try:
            make_private_folders(os.path.dirname(os.path.abspath(path)))
            with typed(), self._locked():
                self._open()
        except OSError as error:
            raise not_opened(error) from None

    # --- rounds ---------------------------------------------------------------------------------------------------

    def round(self, wanted: Wanted, decide: Decide) -> None:
        if not self._writing.acquire(timeout=PATIENCE_S):
            raise StateError("resource", "state_busy", "the state store has not come to this call in time")
        try:
            with self._locked(), typed():
                self._open_again()
                revision = self._transact(wanted, decide)
        finally:
            self._writing.release()
        if revision is not None:
            passed("state.committed")
            self._watch.advance(revision)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock of the file that has its name now."""
        if self._is_closed:
            raise StateError("resource", "state_closed", "the state store is closed", "safe")
        while True:
            try:
                self._lock.take(LOCK_S)
            except LockTimeout:
                raise meaning(apsw.BusyError()) from None
            try:
                if self._lock.leads_to(self._lock_path):
                    yield
                    return
            finally:
                self._lock.give()
            self._lock.reopen()

    def _open(self) -> None:
        self._write = open_state(self._path)
        self._held = HeldFiles([self._path, f"{self._path}-wal"])
        self._opened += 1

    def _open_again(self) -> None:
        """Under the lock, where the file was removed or replaced."""
        if self._held.are_replaced():
            former = self._write
            self._open()
            close_detached(former)
            self._readers.replace()
            self._notices.append(REPLACED)

    def _notice(self) -> None:
        """Before a read."""
        if self._is_read_only or not self._held.are_replaced():
            return
        if not self._writing.acquire(timeout=PATIENCE_S):
            raise StateError("resource", "state_busy", "the state store has not come to this call in time")
        try:
            with self._locked(), typed():
                self._open_again()
        finally:
            self._writing.release()

    def _transact(self, wanted: Wanted, decide: Decide) -> int | None:
        if self._is_suspect:
            self._replace_connection()
        write = self._write
        write.execute("BEGIN IMMEDIATE")
        try:
            point("state.locked")
            written = decide(self._load(wanted))
            point("state.decided")
            if written is None:
                write.execute("ROLLBACK")
                return None
            self._store(written)
            point("state.written")
            write.execute("COMMIT")
        except BaseException as error:
            self._is_suspect = isinstance(error, (apsw.Error, OSError))
            with suppress(apsw.Error):
                if write.in_transaction:
                    write.execute("ROLLBACK")
            if self._is_suspect:
                with suppress(apsw.Error):
                    self._replace_connection()
            if isinstance(error, OSError):
                raise StateError("resource", "state_failed", "the state store failed") from None
            raise
        return written.revision

    def _replace_connection(self) -> None:
        """After a commit that failed: another, of nothing, goes where it may stand in the log, whole but refused."""
        fresh = open_state(self._path)
        self._write.close()
        self._write = fresh
        fresh.pragma("user_version", fresh.pragma("user_version"))
        self._is_suspect = False

    def _load(self, wanted: Wanted) -> Loaded:
        run, now = self._write.execute, self._now()
        entries = [Entry(*row) for name in wanted.names for row in run(sql.LOAD, name)]
        usage = {name: Usage(*row) for name in wanted.namespaces for row in run(sql.LOAD_USAGE, (name,))}
        answers = [Answer(*row) for key in wanted.answers for row in run(sql.LOAD_ANSWER, (key,))]
        return Loaded(
            now,
            self._revision_on(self._write),
            {entry.name: entry for entry in entries},
            usage,
            {answer.key: answer for answer in answers},
            [Entry(*row) for row in run(sql.DUE, (now, DUE_PER_ROUND))],
        )

    def _store(self, written: Written) -> None:
        run = self._write.execute
        run(sql.SET_REVISION, (written.revision,))
        for entry in written.entries:
            run(sql.PUT_ENTRY, _entry_row(entry))
        for change in written.changes:
            run(sql.PUT_CHANGE, _change_row(change))
        for namespace, more in written.usage.items():
            run(sql.GROW, (namespace, more.keys, more.bytes))
        now = self._now()
        for one in written.answers:
            run(sql.PUT_ANSWER, (one.key, one.tool, one.render, one.detail, one.result, now))

    # --- reading --------------------------------------------------------------------------------------------------

    def find(self, name: Name) -> Found:
        row = self._found(name)
        return Found(Entry(*row[1:]) if row[1] is not None else None, row[0], self._now())

    def find_at(self, name: Name, revision: int) -> Change | None:
        rows = self._rows(sql.FIND_AT, (*name, revision))
        return _change(rows[0]) if rows else None

    def page(self, span: Span, after: str | None, limit: int, values: bool) -> Page:
        where, given = _within(span)
        where += " AND value IS NOT NULL AND (expires IS NULL OR expires > ?)"
        given.append(self._now())
        if after is not None:
            where += " AND key > ?"
            given.append(after)
        columns = sql.ENTRY if values else sql.BARE_ENTRY
        text = f"SELECT {columns} FROM entries WHERE {where} ORDER BY key LIMIT ?"
        revision = self.revision()
        return Page([Entry(*row) for row in self._rows(text, (*given, limit))], revision)

    def history(self, name: Name, limit: int) -> list[Change]:
        return [_change(row) for row in self._rows(sql.HISTORY, (*name, limit))]

    def changes(self, span: Span, after: int) -> Log:
        # The revision is read first: what is committed in between is found now or at the next look, never missed.
        revision = self.revision()
        where, given = _within(span)
        text = f"SELECT {sql.BARE_CHANGE} FROM changes WHERE revision > ? AND {where} ORDER BY revision, key LIMIT ?"
        found = [_change(row) for row in self._rows(text, (after, *given, MOST_CHANGES + 1))]
        return log_of(found, revision)

    def namespaces(self) -> list[str]:
        return [row[0] for row in self._rows(sql.NAMESPACES, ())]

    def next_expiry(self, span: Span) -> float | None:
        where, given = _within(span)
        text = f"SELECT min(expires) FROM entries WHERE expires IS NOT NULL AND value IS NOT NULL AND {where}"
        found: int | None = self._one(text, tuple(given))[0]
        return (found - self._now()) / 1_000_000 if found is not None else None

    def revision(self) -> int:
        return int(self._one(sql.REVISION, ())[0])

    def revision_before(self, seconds: float) -> int:
        found = self._rows(sql.REVISION_BEFORE, (self._now() - int(seconds * 1_000_000),))
        return int(found[0][0]) if found else 0

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        return self._watch.wait_beyond(revision, seconds)

    def forget(self, *, answers_before: int, history_before: int, limit: int) -> int:
        dropped = 0
        if not self._writing.acquire(timeout=PATIENCE_S):
            return 0
        try:
            with self._locked(), typed():
                self._open_again()
                for text, before in ((sql.OLD_ANSWERS, answers_before), (sql.OLD_CHANGES, history_before)):
                    self._write.execute(text, (before, limit))
                    dropped += self._write.changes()
        finally:
            self._writing.release()
        return dropped

    def take_notices(self) -> list[str]:
        if not self._notices:
            return []
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        self._watch.close()
        is_replaced = not self._is_read_only and self._held.are_replaced()
        close = close_detached if is_replaced else apsw.Connection.close
        with suppress(apsw.Error):
            self._readers.close(are_detached=is_replaced)
            if self._looking is not None:
                close(self._looking)
            close(self._write)
        self._is_closed = True
        self._lock.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _look(self, known: int) -> int:
        """By one thread at a time, over a connection that outlives it."""
        time.sleep(LOOK_EVERY_S)
        with typed():
            self._notice()
            if self._looking is None or self._looking_since != self._opened:
                former, self._looking = self._looking, open_reader(self._path)
                self._looking_since = self._opened
                if former is not None:
                    close_detached(former)
            return self._revision_on(self._looking)

    def _found(self, name: Name) -> tuple[Any, ...]:
        """Use the writing connection while no write runs: its page cache already holds what it wrote."""
        self._notice()
        if not self._writing.acquire(blocking=False):
            return self._found_on(self._read, name)
        try:
            return self._found_on(self._read if self._is_suspect else self._write, name)
        finally:
            self._writing.release()

    def _found_on(self, connection: apsw.Connection, name: Name) -> tuple[Any, ...]:
        try:
            # To its end, or it would hold its snapshot.
            found: list[tuple[Any, ...]] = list(connection.execute(sql.FIND, name))
            found = found or list(connection.execute(sql.FIND_OR_NONE, name))
        except (apsw.Error, UnusableStore) as error:
            raise typed_error(error) from None
        return found[0]

    def _one(self, text: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._rows(text, given)[0]

    def _rows(self, text: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        # By hand what `typed` does: this is most of what reading a key costs.
        try:
            return list(self._read.execute(text, given))
        except (apsw.Error, UnusableStore) as error:
            raise typed_error(error) from None

    @property
    def _read(self) -> apsw.Connection:
        if self._is_read_only:
            return self._write
        self._notice()
        return self._readers.get()

    def _revision_on(self, connection: apsw.Connection) -> int:
        found: int = connection.execute(sql.REVISION).fetchall()[0][0]  # type: ignore[assignment]
        return found

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)


def _within(span: Span) -> tuple[str, list[Any]]:
    where, given = "space = ? AND namespace = ? AND key >= ?", [span.space, span.namespace, span.low]
    if span.high is not None:
        where += " AND key < ?"
        given.append(span.high)
    if span.pattern is not None:
        where += " AND key LIKE ? ESCAPE '\\'"
        given.append(span.pattern)
    return where, given


def _entry_row(e: Entry) -> tuple[Any, ...]:
    return (e.space, e.namespace, e.key, e.version, e.revision, e.updated, e.expires, e.value)


def _change_row(change: Change) -> tuple[Any, ...]:
    e, by = change.entry, change.author
    audit = (by.client, by.session, by.tool)
    return (e.space, e.namespace, e.key, e.version, e.revision, e.updated, e.value, *audit)


def _change(row: tuple[Any, ...]) -> Change:
    return Change(Entry(*row[:8]), Author(*row[8:]))

"""The journal on SQLite: chained rows, contents by hash, and cached sums over both.

One thread at a time writes. Any thread reads, over a connection of its own; inside a transaction its thread reads over
the writing connection, so that a plan sees what the plans before it wrote.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

import apsw
import msgspec

from perdure.platform import directories
from perdure.platform.boot import boot_id
from perdure.platform.descriptors import pread, pwrite
from perdure.storage.errors import JournalError
from perdure.storage.files.held_files import HeldFiles
from perdure.storage.journal import (
    Digest,
    Draft,
    Filter,
    Intent,
    Invocation,
    Item,
    NewRow,
    Problem,
    Retired,
    Row,
    State,
)
from perdure.storage.reservations import ReservationBook
from perdure.storage.sqlite import analytics, chain, read_only, reservations, retention, shelf, timeline
from perdure.storage.sqlite.chain import COLUMNS, GENESIS
from perdure.storage.sqlite.content_encoding import FILE, RAW, SEALED, ZLIB, unpacked
from perdure.storage.sqlite.database import close_detached, open_database, open_reader
from perdure.storage.sqlite.errors import journal_error, typed
from perdure.storage.sqlite.readers import ThreadReaders
from perdure.storage.timeline import (
    CallRecord,
    CallStatus,
    ChangeFilter,
    ChangeSummary,
    NewCall,
    NotCovered,
    ObservationRecord,
    TrackedFile,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_BRIEF: Final = 1024
"""Up to here the few hundred bytes that packing saves are worth less than the time it takes, a part in forty of a write."""
_SMALL: Final = 8192
_COMMITTED: Final = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = journal.seq)"
_APPEND: Final = f"INSERT INTO journal (prev, hash, {COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_encode = msgspec.json.encode


@typed
class SqliteJournal:
    """`folder` is the workspace's store; `anchor` a file elsewhere that remembers the chain's head.

    With `is_read_only` nothing is created or locked; a missing journal reads as an empty one.
    """

    def __init__(
        self, folder: str, anchor: str, clock: Callable[[], float] = time.time, *, is_read_only: bool = False
    ) -> None:
        self._path = os.path.join(folder, "journal.db")
        self._anchor = anchor
        self._clock = clock
        self._is_read_only = is_read_only
        if is_read_only:
            self._write = read_only.connect_or_empty(self._path, "journal")
        else:
            self._write = open_database(self._path, "journal")
        self._readers = ThreadReaders(lambda: open_reader(self._path))
        self._writing_thread = 0
        self._boot = boot_id()
        self._anchor_fd = -1
        self._landed_fd = _opened(os.path.join(folder, "landed")) if not is_read_only else -1
        self._is_suspect = False
        self._changes_before = 0
        self._head: tuple[int, bytes] = self._load_head()
        self._known: tuple[int, bytes] | None = None  # the head of our last commit; None before the first
        self._held = HeldFiles([self._path, f"{self._path}-wal"])

    # --- transactions --------------------------------------------------------------------------------------

    def transact(self, work: Callable[[], T]) -> T:
        if self._is_suspect:
            self._replace_connection()
        self._writing_thread = threading.get_ident()
        try:
            return self._transact(work)
        finally:
            self._writing_thread = 0

    def _transact(self, work: Callable[[], T]) -> T:
        self._begin()
        try:
            self._changes_before = self._write.total_changes()
            before = self._head[0]
            result = work()
            self._advance_sums(before)
            self._write.execute("COMMIT")
        except BaseException as error:
            failure = journal_error(error, self._write)
            self._is_suspect = isinstance(failure, JournalError)
            try:
                self._roll_back()
            except apsw.Error:
                self._is_suspect = True  # the next transaction begins with another try
            raise failure from None
        self._drop_anchor()
        return result

    def _begin(self) -> None:
        """Another process may have written since: the chain continues from what is there now, once it is known that
        what we remember is in it."""
        self._write.execute("BEGIN IMMEDIATE")
        try:
            self._head = self._load_head()
            known = self._known or chain.read_anchor(self._anchor)
            if known is None or known == self._head or chain.is_continued(self._write, known):
                return
            self._append_break(known)
            self._write.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):
                self._write.execute("ROLLBACK")
            raise
        self._drop_anchor()
        self._write.execute("BEGIN IMMEDIATE")

    def _append_break(self, known: tuple[int, bytes]) -> None:
        """Rows that we know of are gone or changed: say so in the chain, before the anchor is overwritten."""
        detail = {"lost_from": self._head[0] + 1, "lost_to": known[0], "lost_hash": known[1].hex()}
        row = self.append(
            NewRow(
                path="",
                op=chain.BREAK,
                mode=chain.BREAK,
                old_sha=None,
                new_sha=None,
                bytes=0,
                client="perdure",
                session="",
                detail=detail,
            )
        )
        self.conclude(row.seq, chain.BREAK)

    def _advance_sums(self, before: int) -> None:
        """Once in many rows, so that a single write touches no sum."""
        every = analytics.ADVANCE_EVERY
        if self._head[0] // every > before // every:
            analytics.advance(self._write)
            retention.count_kept(self._write)

    def _roll_back(self) -> None:
        if self._write.in_transaction:
            self._write.execute("ROLLBACK")
        if self._is_suspect:
            self._replace_connection()

    def _replace_connection(self) -> None:
        """After an error of the database nothing its connection remembers is relied upon.

        A commit whose sync failed stands in the log whole, and a successor that reads the log after a kill would
        take it for committed, although it was refused. Another commit, of nothing, is written in its place.
        """
        fresh = open_database(self._path, "journal")
        self._write.close()
        self._write = fresh
        fresh.pragma("user_version", fresh.pragma("user_version"))
        self._is_suspect = False

    def nested(self, work: Callable[[], T]) -> T:
        """A part of the transaction that can fail alone: what it wrote is taken back, the rest stays."""
        if self._write.total_changes() == self._changes_before:
            return self._first(work)
        head = self._head
        self._write.execute("SAVEPOINT part")
        try:
            result = work()
        except BaseException:
            if self._write.in_transaction:  # some errors have taken all of it back already
                self._write.execute("ROLLBACK TO part")
                self._write.execute("RELEASE part")
            self._head = head
            raise
        self._write.execute("RELEASE part")
        return result

    def _first(self, work: Callable[[], T]) -> T:
        """Nothing was written before this part, so all of the transaction is its own, and is begun anew if it fails."""
        head = self._head
        try:
            return work()
        except BaseException:
            wrote = self._write.total_changes() != self._changes_before
            if wrote and self._write.in_transaction:
                self._write.execute("ROLLBACK")
                self._write.execute("BEGIN IMMEDIATE")
            self._head = head
            raise

    def set_applied_watermark(self, seq: int) -> None:
        try:
            pwrite(self._landed_fd, f"{self._boot} {seq:020}\n".encode(), 0)
        except OSError as error:  # then the next to come looks for itself
            log.warning("the watermark of what has landed could not be written: %s", error)

    def is_replaced(self) -> bool:
        return not self._is_read_only and self._held.are_replaced()

    def close(self) -> None:
        is_replaced = self.is_replaced()
        self._readers.close(are_detached=is_replaced)
        (close_detached if is_replaced else apsw.Connection.close)(self._write)
        for fd in (self._anchor_fd, self._landed_fd):
            if fd >= 0:
                os.close(fd)
        self._anchor_fd = self._landed_fd = -1

    # --- writing ----------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        return self._head[0]

    def append(self, row: NewRow) -> Row:
        seq, prev = self._head[0] + 1, self._head[1]
        made = Row(
            seq=seq,
            ts=int(self._clock() * 1_000_000),
            path=row.path,
            op=row.op,
            mode=row.mode,
            old_sha=row.old_sha,
            new_sha=row.new_sha,
            bytes=row.bytes,
            client=row.client,
            session=row.session,
            key=row.key,
            txn=row.txn,
            undoes=row.undoes,
            detail=row.detail,
        )
        values = _values(made)
        digest = chain.digest(prev, values)
        self._write.execute(_APPEND, (prev, digest, *values))
        self._write.execute("INSERT INTO intents VALUES (?, ?)", (seq, self._boot))
        retention.unpin(self._write, made.path)
        self._head = (seq, digest)
        return made

    def store_content(self, sha: Digest, data: bytes, *, by_row: bool = True, mends: bool = False) -> None:
        packed = _compressed(data) if len(data) > _BRIEF else data
        codec, stored = (ZLIB, packed) if len(packed) < len(data) else (RAW, data)
        self._keep(sha, len(data), codec, stored, by_row)
        if mends:
            self._write.execute(
                "UPDATE contents SET codec = ?, data = ?, size = ? WHERE sha = ?",
                (codec, stored, len(data), sha),
            )

    def store_sealed(self, sha: Digest, size: int, sealed: bytes, *, by_row: bool = True) -> None:
        self._keep(sha, size, SEALED, sealed, by_row)

    def store_content_file(self, sha: Digest, size: int, *, by_row: bool = True) -> None:
        self._keep(sha, size, FILE, None, by_row)

    def _keep(self, sha: Digest, size: int, codec: int, data: bytes | None, by_row: bool) -> None:
        seq = self._head[0] + 1
        self._write.execute(
            "INSERT OR IGNORE INTO contents VALUES (?,?,?,?,?,?)", (sha, size, codec, data, seq, by_row)
        )
        if not self._write.changes():
            self._write.execute(
                "UPDATE contents SET seq = ?, by_row = max(by_row, ?) WHERE sha = ?", (seq, by_row, sha)
            )

    def stored_bytes(self) -> int:
        rows: list[Any] = self._write.execute("SELECT bytes FROM kept").fetchall()
        return int(rows[0][0])

    def retire(self, n: int, *, before: int, most_bytes: int, in_reach: int) -> Retired:
        return retention.retire(self._write, n, before=before, most_bytes=most_bytes, in_reach=in_reach)

    def expire(self, n: int, *, before: int, drafts_before: int) -> Retired:
        return retention.expire(self._write, n, before=before, drafts_before=drafts_before)

    def conclude(self, seq: int, state: State, draft: str | None = None) -> None:
        self._write.execute("INSERT OR REPLACE INTO outcomes VALUES (?,?,?)", (seq, state, draft))
        self._write.execute("DELETE FROM intents WHERE seq = ?", (seq,))

    def settle(self, seqs: Iterable[int]) -> None:
        self._write.executemany("DELETE FROM intents WHERE seq = ?", [(seq,) for seq in seqs])

    def record_invocation(self, invocation: Invocation, first_seq: int | None) -> None:
        self._write.execute(
            "INSERT OR REPLACE INTO invocations VALUES (NULL,?,?,?,?,?,?,?,?,?)",
            (
                invocation.key,
                invocation.tool,
                invocation.fingerprint,
                first_seq,
                invocation.last_seq,
                invocation.render,
                invocation.detail,
                invocation.result,
                self._now(),
            ),
        )

    def save_draft(self, draft: Draft, client: str, session: str) -> None:
        self._write.execute(
            "INSERT OR REPLACE INTO drafts VALUES (?,?,?,?,?,?,?,?)",
            (draft.id, draft.sha, draft.size, draft.path, draft.reason, client, session, self._now()),
        )

    def consume_retry(self, path: str, sha: Digest, budget: int) -> int:
        """How many tries of this content at this path are left after this one; -1 where none was.

        Once the content was written there, they are counted anew."""
        known = self._write.execute(
            "SELECT left FROM budgets WHERE path = ? AND sha = ? AND NOT EXISTS (SELECT 1 FROM journal "
            f"WHERE journal.path = budgets.path AND new_sha = sha AND journal.ts > budgets.ts AND {_COMMITTED})",
            (path, sha),
        ).fetchone()
        left = max(budget if known is None else int(known[0]) - 1, -1)
        self._write.execute("INSERT OR REPLACE INTO budgets VALUES (?,?,?,?)", (path, sha, left, self._now()))
        return left

    def record_seen(self, session: str, path: str, sha: Digest | None, after: int) -> None:
        self._write.execute(
            "INSERT INTO seen VALUES (?,?,?,?,?) ON CONFLICT (session, path) DO UPDATE "
            "SET sha = excluded.sha, ts = excluded.ts, seq = excluded.seq WHERE excluded.seq >= seq",
            (session, path, sha, self._now(), after),
        )

    def shelf_put(self, item: Item) -> Retired:
        return shelf.put(self._write, item)

    def shelf_remove(self, kind: str, name: str, at: int | None = None) -> Retired:
        return shelf.remove(self._write, kind, name, at)

    def expire_shelf(self, n: int) -> Retired:
        return shelf.expire(self._write, n, self._now())

    def track_files(self, files: Iterable[TrackedFile]) -> None:
        timeline.track_files(self._write, files)

    def untrack_files(self, paths: Iterable[str]) -> list[Digest]:
        return timeline.untrack_files(self._write, paths)

    def set_not_covered(self, places: Iterable[NotCovered]) -> None:
        timeline.set_not_covered(self._write, places)

    def record_observation(self, head: str | None) -> None:
        timeline.record_observation(self._write, head, self._now())

    def keep_content(self, sha: Digest) -> None:
        self._write.execute("UPDATE contents SET seq = ?, by_row = 1 WHERE sha = ?", (self._head[0] + 1, sha))

    def begin_call(self, call: NewCall) -> CallRecord:
        return timeline.begin_call(self._write, call, self._now())

    def update_call(
        self, identity: int, *, status: CallStatus, seq: int | None = None, txn: str | None = None
    ) -> None:
        timeline.update_call(self._write, identity, status, seq, txn, self._now())

    def forget_call(self, identity: int) -> None:
        self._write.execute("DELETE FROM calls WHERE id = ?", (identity,))

    def forget_calls(self, before: int) -> None:
        timeline.forget_calls(self._write, before)

    def begin_turn(self, client: str, session: str) -> int:
        return timeline.begin_turn(self._write, client, session, self._now())

    def save_reservation_book(self, book: ReservationBook) -> None:
        reservations.save_reservation_book(self._write, book)

    # --- reading --------------------------------------------------------------------------------------------------

    def rows(self, wanted: Filter, n: int) -> list[Row]:
        terms, values = [_COMMITTED], []
        for column in ("path", "mode", "client", "session"):
            value = getattr(wanted, column)
            if value is not None:
                terms.append(f"{column} = ?")
                values.append(value)
        if wanted.since is not None:
            terms.append(analytics.SINCE)
            values += (wanted.since, wanted.since)
        if wanted.before is not None:
            terms.append("seq < ?")
            values.append(wanted.before)
        text = f"SELECT {COLUMNS} FROM journal WHERE {' AND '.join(terms)} ORDER BY seq DESC LIMIT ?"
        return [_row(record) for record in self._read.execute(text, (*values, n))]

    def row(self, seq: int) -> Row | None:
        return self._one(self._read, f"seq = ? AND {_COMMITTED}", (seq,))

    def last_of(self, path: str) -> Row | None:
        return self._one(self._read, f"path = ? AND {_COMMITTED} ORDER BY seq DESC LIMIT 1", (path,))

    def transaction(self, txn: str, n: int | None = None) -> list[Row]:
        text = f"SELECT {COLUMNS} FROM journal WHERE txn = ? AND {_COMMITTED} ORDER BY seq LIMIT ?"
        return [_row(record) for record in self._read.execute(text, (txn, -1 if n is None else n))]

    def has_lost(self, txn: str) -> bool:
        text = "SELECT 1 FROM journal JOIN outcomes USING (seq) WHERE txn = ? AND state = 'conflict' LIMIT 1"
        return self._read.execute(text, (txn,)).fetchone() is not None

    def undone_by(self, seq: int) -> Row | None:
        return self._one(self._read, f"undoes = ? AND {_COMMITTED} ORDER BY seq DESC LIMIT 1", (seq,))

    def intents(self) -> list[Intent]:
        text = f"SELECT intents.boot, {', '.join('journal.' + c for c in COLUMNS.split(', '))} "
        text += "FROM intents JOIN journal USING (seq) ORDER BY seq"
        return [Intent(_row(record[1:]), record[0] == self._boot) for record in self._read.execute(text)]

    def newest_intent(self) -> int:
        rows: list[Any] = self._read.execute("SELECT max(seq) FROM intents").fetchall()
        return rows[0][0] or 0

    def applied_watermark(self) -> int:
        boot, _, seq = pread(self._landed_fd, 200, 0).decode(errors="replace").partition(" ")
        return int(seq) if boot == self._boot and seq.strip().isdigit() else 0

    def content(self, sha: Digest) -> bytes | None:
        """A small content; None where there is none, or where it is a file or sealed."""
        record = self._read.execute("SELECT codec, data FROM contents WHERE sha = ?", (sha,)).fetchone()
        return unpacked(*record) if record is not None else None

    def sealed_content(self, sha: Digest) -> bytes | None:
        text = "SELECT data FROM contents WHERE sha = ? AND codec = ?"
        record: Any = self._read.execute(text, (sha, SEALED)).fetchone()
        return record[0] if record is not None else None

    def has_content(self, sha: Digest) -> bool:
        return self._read.execute("SELECT 1 FROM contents WHERE sha = ?", (sha,)).fetchone() is not None

    def content_size(self, sha: Digest) -> int | None:
        text = "SELECT size FROM contents WHERE sha = ? AND codec != ?"
        record: Any = self._read.execute(text, (sha, FILE)).fetchone()
        return record[0] if record is not None else None

    def content_file(self, sha: Digest) -> bool:
        record = self._read.execute("SELECT codec FROM contents WHERE sha = ?", (sha,)).fetchone()
        return record is not None and record[0] == FILE

    def invocation(self, key: str) -> Invocation | None:
        record = self._read.execute(
            "SELECT key, tool, fingerprint, last_seq, render, detail, result FROM invocations WHERE key = ?",
            (key,),
        ).fetchone()
        return Invocation(*record) if record is not None else None

    def draft(self, identity: str) -> Draft | None:
        record = self._read.execute(
            "SELECT id, sha, size, path, reason FROM drafts WHERE id = ?", (identity,)
        ).fetchone()
        return Draft(*record) if record is not None else None

    def drafts(self, n: int, session: str) -> list[Draft]:
        """The newest payloads of a session that were not written."""
        text = "SELECT id, sha, size, path, reason FROM drafts WHERE session = ? ORDER BY ts DESC LIMIT ?"
        return [Draft(*row) for row in self._read.execute(text, (session, n))]

    def last_seen(self, session: str, path: str) -> tuple[Digest | None] | None:
        """What this session last saw at the path; None where it never looked."""
        read = self._read.execute(
            "SELECT seq, sha FROM seen WHERE session = ? AND path = ?", (session, path)
        ).fetchone()
        # A file has fewer rows than a session.
        wrote = self._read.execute(
            f"SELECT seq, new_sha FROM journal WHERE path = ? AND +session = ? AND {_COMMITTED} "
            "ORDER BY seq DESC LIMIT 1",
            (path, session),
        ).fetchone()
        known = [record for record in (read, wrote) if record is not None]
        return (max(known, key=lambda record: record[0])[1],) if known else None

    def shelf(self, kind: str, name: str | None = None) -> list[Item]:
        return shelf.items(self._read, kind, name, self._now())

    def shelf_end(self, kind: str, name: str) -> int:
        return shelf.end(self._read, kind, name)

    def item(self, kind: str, name: str, at: int = 0) -> Item | None:
        return shelf.item(self._read, kind, name, at, self._now())

    def tracked_files(self) -> list[TrackedFile]:
        return timeline.tracked_files(self._read)

    def tracked_version(self) -> int:
        return timeline.tracked_version(self._read)

    def tracked_file(self, path: str) -> TrackedFile | None:
        return timeline.tracked_file(self._read, path)

    def not_covered(self) -> list[NotCovered]:
        return timeline.not_covered(self._read)

    def last_observation(self) -> ObservationRecord | None:
        return timeline.last_observation(self._read)

    def open_calls(self) -> list[CallRecord]:
        return timeline.open_calls(self._read)

    def ended_calls(self, n: int) -> list[CallRecord]:
        return timeline.ended_calls(self._read, n)

    def current_turn(self, client: str, session: str) -> int | None:
        return timeline.current_turn(self._read, client, session)

    def call_of(self, seq: int, txn: str | None) -> CallRecord | None:
        return timeline.call_of(self._read, seq, txn)

    def changes(self, wanted: ChangeFilter, n: int) -> list[ChangeSummary]:
        return timeline.changes(self._read, wanted, n)

    def change(self, row_or_transaction: str) -> ChangeSummary | None:
        return timeline.change(self._read, row_or_transaction)

    def reservation_book(self) -> ReservationBook:
        return reservations.reservation_book(self._read)

    def analytics(self, since: int | None, session: str | None) -> dict[str, Any]:
        return analytics.report(self._read, since, session)

    def verify(self, passed: Callable[[int], None] | None = None) -> Iterator[Problem]:
        """Walk the whole chain; compare its head with what is remembered outside the workspace.

        `passed` is told of every row that was looked at.
        """
        for record in chain.problems(self._read, chain.read_anchor(self._anchor), passed):
            yield Problem(*record)

    def contents(self) -> Iterator[tuple[Digest, bytes | None]]:
        """Every kept content that is not sealed; None stands for a file's."""
        yield from chain.contents(self._read)

    def sealed_contents(self) -> Iterator[tuple[Digest, bytes]]:
        yield from chain.sealed_contents(self._read)

    def latest(self) -> Iterator[Row]:
        """The last change of every file."""
        for (path,) in self._read.execute("SELECT DISTINCT path FROM journal ORDER BY path"):
            row = self.last_of(path)
            if row is not None:
                yield row

    # --- inside --------------------------------------------------------------------------------------------------------

    @property
    def _read(self) -> apsw.Connection:
        if self._is_read_only or self._writing_thread == threading.get_ident():
            return self._write
        return self._readers.get()

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)

    def _one(self, connection: apsw.Connection, where: str, values: tuple[Any, ...]) -> Row | None:
        record = connection.execute(f"SELECT {COLUMNS} FROM journal WHERE {where}", values).fetchone()
        return _row(record) if record is not None else None

    def _load_head(self) -> tuple[int, bytes]:
        record = self._write.execute("SELECT seq, hash FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
        return (record[0], record[1]) if record is not None else (0, GENESIS)

    def _drop_anchor(self) -> None:
        """Remember the head where a writer of the workspace cannot reach. A hint, so it is not synced."""
        self._known = self._head
        try:
            if self._anchor_fd < 0:
                os.makedirs(os.path.dirname(self._anchor), mode=0o700, exist_ok=True)
                self._anchor_fd = directories.open(
                    self._anchor, os.O_WRONLY | os.O_CREAT | directories.NOFOLLOW, 0o600
                )
            # Always the same length, in place: to cut a file short costs more than the rest of a commit.
            pwrite(self._anchor_fd, b"%020d %s\n" % (self._head[0], self._head[1].hex().encode()), 0)
        except OSError:
            pass


def _compressed(data: bytes) -> bytes:
    """For a small content most of the time would go into making the compressor ready: then a smaller one is made."""
    if len(data) > _SMALL:
        return zlib.compress(data, 1)
    packing = zlib.compressobj(1, zlib.DEFLATED, _SMALL.bit_length() - 1, 5)
    return packing.compress(data) + packing.flush()


def _values(row: Row) -> tuple[Any, ...]:
    return (
        row.seq,
        row.ts,
        row.path,
        row.op,
        row.mode,
        row.old_sha,
        row.new_sha,
        row.bytes,
        row.client,
        row.session,
        row.key,
        row.txn,
        row.undoes,
        _encode(row.detail, order="sorted").decode() if row.detail else "{}",
    )


def _row(record: tuple[Any, ...]) -> Row:
    names = Row.__struct_fields__
    return Row(**dict(zip(names, (*record[:-1], msgspec.json.decode(record[-1])), strict=True)))


def _opened(path: str) -> int:
    return directories.open(path, os.O_RDWR | os.O_CREAT | directories.NOFOLLOW, 0o600)

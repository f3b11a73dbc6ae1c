"""What must outlive the serving process: its sessions, and the calls it had sent on.

A client over HTTP never opens its session a second time, so the session must be there after a restart. Written
without waiting for the disk: what is kept here must survive a kill of this process, and after a power cut the
clients are gone as well.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Final

import apsw
import msgspec
from msgspec import Raw, structs

from perdure.kernel.snapshot import upgrade_call, upgrade_session
from perdure.kernel.state import Invocation, Session
from perdure.platform.locks import try_lock
from perdure.platform.permissions import set_mode
from perdure.protocol.frames import RequestId, decode_id
from perdure.protocol.msgspec_types import prepare_type

BLOCK: Final = 256
COUNT_S: Final = 1.0
CALL_DAYS: Final = 1
SESSION_DAYS: Final = 7.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, identity TEXT NOT NULL, workspace TEXT NOT NULL, session BLOB NOT NULL, used REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
    session TEXT NOT NULL, seq INTEGER NOT NULL, identity TEXT NOT NULL, workspace TEXT NOT NULL, call BLOB NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_by_identity ON calls (identity);
CREATE TABLE IF NOT EXISTS marks (mark TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (next INTEGER NOT NULL);
INSERT INTO numbers SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM numbers);
"""


log = logging.getLogger("perdure.serve")


class StoreError(Exception):
    """It cannot be written; the text says why."""


class InUse(Exception):
    """Another process has it."""


class Stored(msgspec.Struct, frozen=True):
    """A session as it was left. `owner` is who opened it, where clients are told apart."""

    id: str
    owner: str
    workspace: str
    session: Session


class Store:
    """Raises InUse where another process has opened it, and not closed it yet."""

    def __init__(self, path: str) -> None:
        self._lock = _locked(path + ".lock")
        for suffix in ("", "-wal", "-shm"):
            _make_private(path + suffix, create=not suffix)
        self._db = apsw.Connection(path)
        self._db.set_busy_timeout(5000)
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "off")
        self._db.execute(_SCHEMA)
        self._numbers: list[int] = []
        self._count = (0, float("-inf"))

    def new_number(self) -> int:
        """One that was never given out from this store, by this process or any before it."""
        if not self._numbers:
            try:
                row = self._db.execute(
                    "UPDATE numbers SET next = next + ? RETURNING next", (BLOCK,)
                ).fetchall()
            except apsw.Error as error:
                raise StoreError(str(error)) from None
            newest = int(row[0][0])  # type: ignore[arg-type]
            self._numbers = list(range(newest - 1, newest - BLOCK - 1, -1))
        return self._numbers.pop()

    def replace_mark(self, mark: str) -> list[str]:
        """Remember by what our servers are known; gives those of predecessors."""
        found = [row[0] for row in self._db.execute("SELECT mark FROM marks")]
        self._db.execute("DELETE FROM marks")
        self._db.execute("INSERT INTO marks VALUES (?)", (mark,))
        return found

    # --- sessions --------------------------------------------------------------------------------------------

    def save_session(self, stored: Stored) -> None:
        session = msgspec.msgpack.encode(structs.replace(stored.session, listens=[]))  # they end with us
        row = (stored.id, stored.owner, stored.workspace, session, time.time())
        try:
            self._db.execute("INSERT OR REPLACE INTO sessions VALUES (?,?,?,?,?)", row)
        except apsw.Error as error:
            raise StoreError(str(error)) from None

    def session(self, identity: str) -> Stored | None:
        for row in self._db.execute(
            "SELECT id, identity, workspace, session FROM sessions WHERE id = ?", (identity,)
        ):
            plain = msgspec.msgpack.decode(row[3])
            upgrade_session(plain)
            return Stored(row[0], row[1], row[2], msgspec.convert(plain, type=prepare_type(Session)))
        return None

    def remove_session(self, identity: str) -> None:
        self._tidy("DELETE FROM sessions WHERE id = ?", [(identity,)])
        self._tidy("DELETE FROM calls WHERE session = ?", [(identity,)])

    def session_count(self) -> int:
        """As of a moment ago: counting takes as long as there are many."""
        now = time.monotonic()
        if now - self._count[1] > COUNT_S:
            rows = self._db.execute("SELECT count(*) FROM sessions").fetchall()
            self._count = (int(rows[0][0]), now)  # type: ignore[arg-type]
        return self._count[0]

    def touch(self, identities: list[str]) -> None:
        """These are used."""
        now = time.time()
        self._tidy("UPDATE sessions SET used = ? WHERE id = ?", [(now, identity) for identity in identities])

    # --- calls -----------------------------------------------------------------------------------------------

    def save_call(self, session: str, identity: str, workspace: str, call: Invocation) -> None:
        row = (session, call.seq, identity, workspace, _packed(call), time.time())
        try:
            self._db.execute("INSERT OR REPLACE INTO calls VALUES (?,?,?,?,?,?)", row)
        except apsw.Error as error:
            raise StoreError(str(error)) from None

    def forget_call(self, session: str, seq: int) -> None:
        self._tidy("DELETE FROM calls WHERE session = ? AND seq = ?", [(session, seq)])

    def calls(self, session: str) -> list[Invocation]:
        rows = self._db.execute("SELECT call FROM calls WHERE session = ? ORDER BY seq", (session,))
        return [_unpacked(row[0]) for row in rows]

    def sessions_with_calls(self, identity: str) -> list[str]:
        rows = self._db.execute("SELECT DISTINCT session FROM calls WHERE identity = ?", (identity,))
        return [row[0] for row in rows]

    def forget_old(self, days: float = SESSION_DAYS) -> None:
        now = time.time()
        self._tidy("DELETE FROM sessions WHERE used < ?", [(now - days * 86400,)])
        self._tidy("DELETE FROM calls WHERE at < ?", [(now - CALL_DAYS * 86400,)])

    def _tidy(self, statement: str, rows: Sequence[tuple[str | int | float, ...]]) -> None:
        """What may fail: a row that stays is one that nobody asks for."""
        try:
            with self._db:
                self._db.executemany(statement, rows)
        except apsw.Error as error:
            log.warning("the store of sessions could not be tidied: %s", error)

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)


def _locked(path: str) -> int:
    """A file of its own: SQLite would lose its locks on one that we close."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try_lock(lock)
    except OSError:
        os.close(lock)
        raise InUse(path) from None
    return lock


def _make_private(path: str, *, create: bool) -> None:
    """Arguments of calls are in it. SQLite gives its other files the mode of the first."""
    try:
        file = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return
    try:
        set_mode(file, 0o600)
    finally:
        os.close(file)


def _packed(call: Invocation) -> bytes:
    """Ids and tokens as JSON texts: msgpack has no integers beyond 64 bits."""
    token = _text(call.token) if call.token is not None else None
    return msgspec.msgpack.encode(structs.replace(call, public_id=_text(call.public_id), token=token))


def _unpacked(data: bytes) -> Invocation:
    plain = msgspec.msgpack.decode(data)
    upgrade_call(plain)
    call = msgspec.convert(plain, type=prepare_type(Invocation))
    token = decode_id(Raw(str(call.token).encode())) if call.token is not None else None
    identity = decode_id(Raw(str(call.public_id).encode()))
    assert identity is not None  # it was one when it was packed
    return structs.replace(call, public_id=identity, token=token)


def _text(identity: RequestId) -> str:
    return msgspec.json.encode(identity).decode()

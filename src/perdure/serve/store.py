"""What must outlive the serving process: its sessions, and the calls it had sent on.

A client over HTTP never opens its session a second time, so the session must be there after a restart. Written
without waiting for the disk: what is kept here must survive a kill of this process, and after a power cut the
clients are gone as well.
"""

from __future__ import annotations

import time
from typing import Final

import apsw
import msgspec

from perdure.kernel.state import Invocation, Session
from perdure.model.learned import learned
from perdure.storage.places import make_private

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


class Stored(msgspec.Struct, frozen=True):
    """A session as it was left. `owner` is who opened it, where clients are told apart."""

    id: str
    owner: str
    workspace: str
    session: Session


class Store:
    def __init__(self, path: str) -> None:
        make_private(path)  # it holds arguments of calls
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
            row = self._db.execute("UPDATE numbers SET next = next + ? RETURNING next", (BLOCK,)).fetchall()
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
        self._db.execute(
            "INSERT OR REPLACE INTO sessions VALUES (?,?,?,?,?)",
            (
                stored.id,
                stored.owner,
                stored.workspace,
                msgspec.msgpack.encode(stored.session),
                time.time(),
            ),
        )

    def session(self, identity: str) -> Stored | None:
        for row in self._db.execute(
            "SELECT id, identity, workspace, session FROM sessions WHERE id = ?", (identity,)
        ):
            return Stored(row[0], row[1], row[2], msgspec.msgpack.decode(row[3], type=learned(Session)))
        return None

    def remove_session(self, identity: str) -> None:
        self._db.execute("DELETE FROM sessions WHERE id = ?", (identity,))
        self._db.execute("DELETE FROM calls WHERE session = ?", (identity,))

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
        with self._db:
            self._db.executemany(
                "UPDATE sessions SET used = ? WHERE id = ?", [(now, identity) for identity in identities]
            )

    # --- calls -----------------------------------------------------------------------------------------------

    def save_call(self, session: str, identity: str, workspace: str, call: Invocation) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO calls VALUES (?,?,?,?,?,?)",
            (session, call.seq, identity, workspace, msgspec.msgpack.encode(call), time.time()),
        )

    def forget_call(self, session: str, seq: int) -> None:
        self._db.execute("DELETE FROM calls WHERE session = ? AND seq = ?", (session, seq))

    def calls(self, session: str) -> list[Invocation]:
        rows = self._db.execute("SELECT call FROM calls WHERE session = ? ORDER BY seq", (session,))
        return [msgspec.msgpack.decode(row[0], type=learned(Invocation)) for row in rows]

    def sessions_with_calls(self, identity: str) -> list[str]:
        rows = self._db.execute("SELECT DISTINCT session FROM calls WHERE identity = ?", (identity,))
        return [row[0] for row in rows]

    def forget_old(self, days: float = SESSION_DAYS) -> None:
        now = time.time()
        self._db.execute("DELETE FROM sessions WHERE used < ?", (now - days * 86400,))
        self._db.execute("DELETE FROM calls WHERE at < ?", (now - CALL_DAYS * 86400,))

    def close(self) -> None:
        self._db.close()

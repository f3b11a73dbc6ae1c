"""What the journal forgets, and in which order. Rows stay for ever: the chain is made of them.

A content that was replaced stands as the old one in the row that replaced it. Rows are therefore gone through from
the oldest on, once each, up to those in reach of an undo. What a row replaced is dropped, unless

- a row that was not gone through yet names it,
- it is pinned: the row is the last of its file, whose undo is always in reach, or
- a draft, the shelf or a tracked file names it.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from perdure.storage.journal import Digest, Retired

FILE: Final = 2
_LATEST: Final = (
    "(SELECT max(seq) FROM journal AS other WHERE other.path = {path} AND NOT EXISTS "
    "(SELECT 1 FROM outcomes WHERE outcomes.seq = other.seq))"
)
_OLDEST: Final = (
    f"SELECT seq, ts, path, old_sha, new_sha, outcomes.state, {_LATEST.format(path='journal.path')} "
    "FROM journal LEFT JOIN outcomes USING (seq) WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
)
_STALE: Final = f"SELECT path, sha, seq, {_LATEST.format(path='pins.path')} FROM pins WHERE live = 0 LIMIT ?"
_UNNAMED: Final = (
    "NOT EXISTS (SELECT 1 FROM drafts WHERE drafts.sha = contents.sha) "
    "AND NOT EXISTS (SELECT 1 FROM shelf WHERE shelf.sha = contents.sha) "
    "AND NOT EXISTS (SELECT 1 FROM tracked_files WHERE tracked_files.sha = contents.sha) "
    "AND NOT EXISTS (SELECT 1 FROM pins WHERE pins.sha = contents.sha) RETURNING codec, coalesce(length(data), size)"
)


TRACKED_BYTES: Final = (
    "SELECT coalesce(sum(coalesce(length(data), size)), 0) FROM contents WHERE by_row = 0 "
    "AND EXISTS (SELECT 1 FROM tracked_files WHERE tracked_files.sha = contents.sha)"
)
"""Of contents that only tracked files name: `[timeline]` limits them, not `[keep]`."""


class Dropping:
    """Contents on their way out, and what they free."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        kept: list[Any] = connection.execute("SELECT last_seq, bytes FROM retention, kept").fetchall()
        self.cursor: int = kept[0][0]
        self.stored: int = kept[0][1]
        self.files: list[Digest] = []

    def drop(self, sha: Digest) -> None:
        """Unless something beyond the cursor needs it."""
        self._delete(f"DELETE FROM contents WHERE sha = ? AND seq <= ? AND {_UNNAMED}", sha, self.cursor)

    def drop_unnamed(self, sha: Digest) -> None:
        """Unless any row ever named it."""
        self._delete(f"DELETE FROM contents WHERE sha = ? AND by_row = 0 AND {_UNNAMED}", sha)

    def _delete(self, text: str, sha: Digest, *more: int) -> None:
        found: list[Any] = self._connection.execute(text, (sha, *more)).fetchall()
        for codec, size in found:
            self.stored -= size
            if codec == FILE:
                self.files.append(sha)

    def save(self) -> None:
        self._connection.execute(
            "UPDATE retention SET last_seq = ?, kept_bytes = ?, "
            "kept_rowid = (SELECT coalesce(max(rowid), 0) FROM contents)",
            (self.cursor, self.stored),
        )


def count_kept(connection: apsw.Connection) -> None:
    """Add the contents since the last count to the stored sum."""
    Dropping(connection).save()


def unpin(connection: apsw.Connection, path: str) -> None:
    """The file changes once more: its last change so far will not be the last."""
    connection.execute("UPDATE pins SET live = 0 WHERE path = ?", (path,))


def retire(connection: apsw.Connection, n: int, *, before: int, most_bytes: int, in_reach: int) -> Retired:
    """Go on through at most `n` rows: those older than `before`, and more while too much is kept."""
    dropping = Dropping(connection)
    stale = _drop_stale(connection, dropping, n)
    if dropping.stored > most_bytes:
        tracked: list[Any] = connection.execute(TRACKED_BYTES).fetchall()
        most_bytes += tracked[0][0]
    rows: list[Any] = connection.execute(
        _OLDEST, (dropping.cursor, _last_in_age(connection, in_reach), n)
    ).fetchall()
    gone = 0
    for seq, ts, path, old, new, state, latest in rows:
        if ts >= before and dropping.stored <= most_bytes:
            break
        dropping.cursor = seq
        gone += 1
        if state is not None:
            shas = (new,)  # nothing will ever replace what a failed row would have made
        elif latest == seq:
            _pin(connection, path, seq, old, new)
            continue
        else:
            shas = (old,)
        for sha in shas:
            if sha is not None:
                dropping.drop(sha)
    dropping.save()
    return Retired(gone, dropping.files, more=n in (gone, stale))


def _last_in_age(connection: apsw.Connection, in_reach: int) -> int:
    """The newest row that may be gone through: out of reach, and nothing undecided before it."""
    found: list[Any] = connection.execute(
        "SELECT coalesce((SELECT max(seq) FROM journal), 0) - ?, (SELECT min(seq) FROM intents)", (in_reach,)
    ).fetchall()
    last, undecided = found[0]
    return int(last if undecided is None else min(last, undecided - 1))


def _pin(connection: apsw.Connection, path: str, seq: int, *shas: Digest | None) -> None:
    for sha in shas:
        if sha is not None:
            connection.execute("INSERT OR REPLACE INTO pins VALUES (?,?,?,1)", (path, sha, seq))


def _drop_stale(connection: apsw.Connection, dropping: Dropping, n: int) -> int:
    """Pins of changes that are no longer the last of their file; a later one that failed made them so for a time."""
    found: list[Any] = connection.execute(_STALE, (n,)).fetchall()
    for path, sha, seq, latest in found:
        if seq == latest:
            connection.execute("UPDATE pins SET live = 1 WHERE path = ? AND sha = ?", (path, sha))
        else:
            connection.execute("DELETE FROM pins WHERE path = ? AND sha = ?", (path, sha))
            dropping.drop(sha)
    return len(found)


def expire(connection: apsw.Connection, n: int, *, before: int, drafts_before: int) -> Retired:
    """Forget at most `n` each of answers, sightings and tries older than `before`, and of older drafts."""
    # Answers stand in the order of their age: none has to be looked for.
    connection.execute(
        "DELETE FROM invocations WHERE ts < ? AND id IN (SELECT id FROM invocations ORDER BY id LIMIT ?)",
        (before, n),
    )
    gone = connection.changes()
    for table, key in (("seen", "session, path"), ("budgets", "path, sha")):
        connection.execute(
            f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE ts < ? LIMIT ?)",
            (before, n),
        )
        gone = max(gone, connection.changes())
    drafts: list[Any] = connection.execute(
        "DELETE FROM drafts WHERE id IN (SELECT id FROM drafts WHERE ts < ? LIMIT ?) RETURNING sha",
        (drafts_before, n),
    ).fetchall()
    dropping = Dropping(connection)
    for (sha,) in drafts:
        dropping.drop_unnamed(sha)
    dropping.save()
    return Retired(max(gone, len(drafts)), dropping.files, more=n in (gone, len(drafts)))

"""A journal of an earlier format, opened by this version: everything that it knew is still known."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from perdure.storage.journal import Filter
from perdure.storage.sqlite import read_only
from perdure.storage.sqlite.database import migrations
from perdure.storage.sqlite.journal import SqliteJournal

START = 1_800_000_000_000_000
MINUTE = 60_000_000
SECOND_FORMAT = 2


class Former:
    """A journal in the second format, filled as the version that made it did."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        for number, text in migrations("journal"):
            if number <= SECOND_FORMAT:
                self._db.execute(text)
        self._db.pragma("user_version", SECOND_FORMAT)
        self._head = (0, b"\0" * 32)

    def write(self, path: str, mode: str, client: str, session: str, ts: int) -> bytes:
        seq, sha = self._head[0] + 1, os.urandom(32)
        digest = sha256(self._head[1] + sha).digest()
        run = self._db.execute
        run(
            "INSERT INTO journal VALUES (?,?,?,?,?,'write',?,NULL,?,10,?,?,NULL,NULL,NULL,'{}')",
            (seq, self._head[1], digest, ts, path, mode, sha, client, session),
        )
        run("INSERT INTO contents VALUES (?,10,0,?,?,1)", (sha, b"0123456789", seq))
        more = "ON CONFLICT DO UPDATE SET writes = writes + 1"
        run(f"INSERT INTO minutes VALUES (?,1,10) {more}, bytes = bytes + 10", (ts // MINUTE,))
        for kind, name in (("mode", mode), ("client", client)):
            run(f"INSERT INTO totals VALUES (?,?,1) {more}", (kind, name))
        run(
            f"INSERT INTO paths VALUES (?,1,10,?) {more}, bytes = bytes + 10, last_seq = excluded.last_seq",
            (path, seq),
        )
        run(
            "UPDATE sums SET writes = writes + 1, bytes = bytes + 10, paths = (SELECT count(*) FROM paths), "
            "first = coalesce(first, ?), last = ?, stored = stored + 10, "
            "(peak_minute, peak_writes) = (SELECT minute, writes FROM minutes ORDER BY writes DESC, minute LIMIT 1)",
            (ts, ts),
        )
        run("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", (session, path, sha, ts))
        run(
            "INSERT INTO invocations VALUES (?,'safe_write',?,?,?,'json','full',?,?)",
            (f"k{seq}", b"f", seq, seq, b"{}", ts),
        )
        self._head = (seq, digest)
        return sha

    def read(self, session: str, path: str, sha: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", (session, path, sha, START))

    def close(self) -> None:
        self._db.execute("UPDATE sums SET retired = 2")
        self._db.close()


@pytest.fixture
def former(tmp_path: Path) -> Path:
    folder = tmp_path / ".perdure"
    folder.mkdir()
    journal = Former(folder / "journal.db")
    written = [
        journal.write(
            f"f{number % 7}",
            ("create", "append")[number % 2],
            "cx"[number % 2],
            "s",
            START + number * MINUTE // 3,
        )
        for number in range(20)
    ]
    journal.write("back", "create", "c", "s", START - 5 * MINUTE)  # the clock was set back
    journal.read("reader", "f1", written[1])
    journal.read("s", "f2", written[0])
    journal.close()
    return folder


def test_its_sums_are_those_of_its_rows(former: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(str(former), str(tmp_path / "anchor"))
    kept, counted = journal.analytics(None, None), journal.analytics(0, None)
    # The first and the last row, where the rows are counted: the earliest and the latest.
    del kept["period"], counted["period"]
    velocities = [report.pop("write_velocity") for report in (kept, counted)]
    assert kept == counted
    assert velocities[0]["peak_minute"] == velocities[1]["peak_minute"]
    assert kept["total_writes"] == 21
    assert kept["unique_paths"] == 8
    journal.close()


def test_its_rows_are_found_by_their_time(former: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(str(former), str(tmp_path / "anchor"))
    for since in (START - 6 * MINUTE, START - MINUTE, START, START + 3 * MINUTE, START + 99 * MINUTE):
        expected = [row for row in journal.rows(Filter(), 100) if row.ts >= since]
        assert journal.rows(Filter(since=since), 100) == expected
    journal.close()


def test_its_answers_sightings_and_sums_of_contents_are_kept(former: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(str(former), str(tmp_path / "anchor"))
    newest = journal.last_of("f3")
    assert newest is not None
    assert journal.last_seen("s", "f3") == (newest.new_sha,)
    rows = {row.seq: row for row in journal.rows(Filter(), 100)}
    assert journal.last_seen("reader", "f1") == (rows[2].new_sha,)
    assert journal.last_seen("s", "f2") == (rows[1].new_sha,), "what was read last, not what was written"
    assert all(journal.invocation(f"k{seq}") is not None for seq in rows)
    journal.transact(lambda: journal.expire(3, before=START + MINUTE // 2, drafts_before=0))
    left = {seq for seq in rows if journal.invocation(f"k{seq}") is not None}
    assert set(rows) - left == {21, 1, 2}, "the oldest, by their time"
    found: dict[str, object] = read_only.journal_summary(str(former / "journal.db"), START)
    assert (found["stored_bytes"], found["writes"]) == (210, 21)
    journal.close()


def test_it_can_be_looked_at_before_it_is_brought_up_to_date(former: Path) -> None:
    found = read_only.journal_summary(str(former / "journal.db"), START)
    assert "error" not in found
    assert (found["format"], found["writes"], found["writes_today"]) == (SECOND_FORMAT, 21, 20)
    assert read_only.user_version(str(former / "journal.db")) == SECOND_FORMAT

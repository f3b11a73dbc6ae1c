"""Analytics equal a recomputation over all rows, however far the cached sums have come."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.previous_version import unpack
from perdure.storage.journal import Filter, NewRow, Row
from perdure.storage.sqlite import analytics, read_only
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.text.times import format_time

MINUTE = 60_000_000
START = 1_800_000_000.0
ALL = 1_000_000
PREVIOUS = Path(__file__).parents[1] / "fixtures" / "previous_version"
Settle = Callable[[Row], None]


def recomputed(rows: list[Row], *, in_order: bool) -> dict[str, Any]:
    """The report over these rows. Its period is that of the first and the last row, or of the earliest and the latest."""
    times = [row.ts for row in rows] if in_order else sorted(row.ts for row in rows)
    span = (times[-1] - times[0]) / 1_000_000 if rows else 0.0
    size = sum(row.bytes for row in rows)
    paths = Counter(row.path for row in rows)
    minutes = Counter(row.ts // MINUTE for row in rows)
    peak = min(minutes, key=lambda minute: (-minutes[minute], minute), default=None)
    hot = sorted(paths.items(), key=lambda entry: (-entry[1], entry[0]))[:5]
    return {
        "total_writes": len(rows),
        "unique_paths": len(paths),
        "total_bytes_written": size,
        "by_mode": dict(sorted(Counter(row.mode for row in rows).items())),
        "by_caller": dict(sorted(Counter(row.client for row in rows).items())),
        "timeline": [
            {"ts": format_time(row.ts), "path": row.path, "mode": row.mode, "bytes": row.bytes}
            for row in rows[-50:]
        ],
        "hot_paths": [{"path": path, "writes": writes} for path, writes in hot],
        "write_velocity": {
            "writes_per_minute": round(len(rows) / (span / 60) if span >= 60 else float(len(rows)), 3),
            "avg_bytes_per_write": round(size / len(rows), 3) if rows else 0.0,
            "peak_minute": format_time(peak * MINUTE) if peak is not None else None,
        },
        "period": {
            "first_entry": format_time(times[0]) if rows else None,
            "last_entry": format_time(times[-1]) if rows else None,
            "duration_seconds": round(span, 3),
        },
    }


def check(journal: SqliteJournal, database: Path, since: int) -> None:
    """Everything that reads the cached sums agrees with the rows and the contents."""
    rows = journal.rows(Filter(), ALL)[::-1]
    late = [row for row in rows if row.ts >= since]
    assert journal.analytics(None, None) == recomputed(rows, in_order=True)
    assert journal.analytics(since, None) == recomputed(late, in_order=False)
    mine = [row for row in rows if row.session == "s1"]
    assert journal.analytics(None, "s1") == recomputed(mine, in_order=False)
    assert journal.rows(Filter(since=since), ALL) == late[::-1]
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    kept = connection.execute("SELECT coalesce(sum(coalesce(length(data), size)), 0) FROM contents").get
    connection.close()
    status = read_only.journal_summary(str(database), since // MINUTE * MINUTE)
    today = sum(row.ts // MINUTE >= since // MINUTE for row in rows)
    assert (status["writes"], status["writes_today"], status["stored_bytes"]) == (len(rows), today, kept)


class World:
    """A journal with a clock of its own. `others` are further connections, as other processes have them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        (folder / ".perdure").mkdir()
        self.database = folder / ".perdure" / "journal.db"
        self.journals = [self._opened(), self._opened()]
        self.open: list[Row] = []
        self.last: dict[str, bytes] = {}

    def _opened(self) -> SqliteJournal:
        return SqliteJournal(str(self.folder / ".perdure"), str(self.folder / "anchor"), lambda: self.now)

    def write(self, which: int, number: int, undoes: int | None = None) -> None:
        journal, path = self.journals[which], "abcdefgh"[number % 8]
        content = b"content %d\n" % (number % 40)
        sha = content.ljust(32, b".")

        def work() -> Row:
            journal.store_content(sha, content * (number % 300))
            return journal.append(
                NewRow(
                    path=path,
                    op="write" if undoes is None else "undo",
                    mode=("create", "overwrite", "append")[number % 3],
                    old_sha=self.last.get(path),
                    new_sha=sha,
                    bytes=number,
                    client="xyz"[number % 3],
                    session=f"s{number % 2}",
                    undoes=undoes,
                )
            )

        self.open.append(journal.transact(work))
        self.last[path] = sha

    def settle(self, which: int, number: int) -> None:
        """Some of the open intents; a few of them fail."""
        journal = self.journals[which]
        chosen, self.open = self.open[number % 4 :], self.open[: number % 4]

        def work() -> None:
            failed = [row.seq for row in chosen if row.bytes % 7 == 0]
            journal.settle([row.seq for row in chosen if row.seq not in failed])
            for seq in failed:
                journal.conclude(seq, "aborted")

        journal.transact(work)

    def forget(self, which: int, number: int) -> None:
        journal = self.journals[which]
        limits = {"before": int(self.now * 1_000_000), "most_bytes": 0, "in_reach": number % 3}
        journal.transact(lambda: journal.retire(number, **limits))

    def fail(self, which: int, number: int) -> None:
        """A transaction with many rows that is rolled back after it has advanced the sums."""
        journal = self.journals[which]

        def work() -> None:
            for _ in range(number % 10):
                journal.append(NewRow(path="p", op="write", mode="create", old_sha=None, new_sha=None, bytes=1,
                                      client="x", session="s1"))  # fmt: skip
            analytics.advance(journal._write)
            raise ValueError("rolled back")

        with pytest.raises(ValueError, match="rolled back"):
            journal.transact(work)

    def restart(self, which: int) -> None:
        self.journals[which].close()
        self.journals[which] = self._opened()

    def close(self) -> None:
        for journal in self.journals:
            journal.close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "undo", "settle", "forget", "fail", "restart", "clock"]),
        st.integers(0, 1),
        st.integers(0, 500),
    ),
    max_size=40,
)


@pytest.fixture(autouse=True)
def advances_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytics, "ADVANCE_EVERY", 3)


@pytest.mark.thorough
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(-200, 2000))
def test_analytics_equal_a_recomputation_over_all_rows(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], since: int
) -> None:
    world = World(tmp_path_factory.mktemp("analytics"))
    edge = int((START + since) * 1_000_000)
    try:
        for step, which, number in steps:
            world.now += number / 10
            match step:
                case "write":
                    world.write(which, number)
                case "undo":
                    world.write(which, number, undoes=1)
                case "settle":
                    world.settle(which, number)
                case "forget":
                    world.forget(which, number)
                case "fail":
                    world.fail(which, number)
                case "restart":
                    world.restart(which)
                case "clock":
                    world.now -= number
        for journal in world.journals:
            check(journal, world.database, edge)
    finally:
        world.close()


def test_a_write_touches_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytics, "ADVANCE_EVERY", 10)
    world = World(tmp_path)
    for number in range(9):
        world.write(0, number)
        world.settle(0, 0)
    connection = apsw.Connection(str(world.database), flags=apsw.SQLITE_OPEN_READONLY)
    for table in ("cached_totals", "cached_paths", "cached_minutes"):
        assert connection.execute(f"SELECT count(*) FROM {table}").get == 0
    assert connection.execute("SELECT last_seq, paths, bytes FROM cached_sums").get == (0, 0, 0)
    assert connection.execute("SELECT last_seq, kept_bytes, kept_rowid FROM retention").get == (0, 0, 0)
    world.write(0, 9)
    assert connection.execute("SELECT last_seq FROM cached_sums").get == 9, "up to the open intent"
    check(world.journals[0], world.database, int(START * 1_000_000))
    connection.close()
    world.close()


def test_a_reader_that_cannot_write_counts_for_itself(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(20):
        world.write(0, number)
    connection = world.journals[0]._read
    assert connection.pragma("query_only") == 1
    check(world.journals[0], world.database, int(START * 1_000_000))
    world.close()


def _write_until(folder: str, done: Event) -> None:
    analytics.ADVANCE_EVERY = 3  # type: ignore[misc]
    journal = SqliteJournal(folder, os.path.join(folder, "anchor"))
    number = 0
    while not done.is_set():
        number += 1
        row = NewRow(path=f"f{number % 50}", op="write", mode="create", old_sha=None, new_sha=None, bytes=1,
                     client="x", session="s")  # fmt: skip
        journal.transact(lambda row=row: journal.settle([journal.append(row).seq]))
    journal.close()


def test_a_report_is_consistent_while_another_process_writes(tmp_path: Path) -> None:
    folder = tmp_path / ".perdure"
    folder.mkdir()
    journal = SqliteJournal(str(folder), str(folder / "anchor"))
    context = multiprocessing.get_context("spawn")
    done = context.Event()
    writer = context.Process(target=_write_until, args=(str(folder), done))
    writer.start()
    try:
        totals = []
        while not totals or totals[-1] < 200:
            report = journal.analytics(None, None)
            totals.append(report["total_writes"])
            counts = [sum(report["by_caller"].values()), report["total_bytes_written"]]
            assert counts == [totals[-1]] * 2
            assert report["unique_paths"] == min(totals[-1], 50)
            assert len(report["timeline"]) == min(totals[-1], 50)
        assert totals == sorted(totals)
    finally:
        done.set()
        writer.join()
    check(journal, folder / "journal.db", 0)
    journal.close()


# --- a journal of the previous version ------------------------------------------------------------------------


def unpacked(name: str, folder: Path) -> Path:
    unpack(PREVIOUS / f"{name}.tar.gz", folder)
    return folder / "workspace" / ".perdure"


def test_a_journal_of_the_previous_version_keeps_its_totals(tmp_path: Path) -> None:
    folder = unpacked("workspace_closed", tmp_path)
    expected = json.loads((PREVIOUS / "workspace_closed.json").read_text())
    database = folder / "journal.db"
    before = read_only.journal_summary(str(database), expected["since"])
    journal = SqliteJournal(str(folder), str(tmp_path / "anchor"))
    assert journal.analytics(None, None) == expected["analytics"]
    assert journal.analytics(expected["since"], None) == expected["analytics_since"]
    assert journal.analytics(None, "session-cursor") == expected["analytics_session"]
    after = read_only.journal_summary(str(database), expected["since"])
    assert (before.pop("format"), after.pop("format")) == (3, read_only.newest_format("journal"))
    # The newest rows append a line each to one file. The previous version did not tell all that is known of a row.
    versions = [hashlib.sha256(b"0\n1\n2\n3\n4\n"[:size]).hexdigest() for size in (10, 8, 6, 4, 2)]
    more = {"op": "write", "session": "session-cursor", "transaction_id": None}
    hashes = pairwise([*versions, None])
    last = [
        {**row, **more, "sha256": new, "prev_sha256": old}
        for row, (new, old) in zip(expected["status"]["last"], hashes, strict=True)
    ]
    for status in (before, after):
        assert status == {**expected["status"], "path": str(database), "last": last}
    assert {row.path: row.new_sha.hex() if row.new_sha else None for row in journal.latest()} == expected[
        "files"
    ]
    assert list(journal.verify()) == []
    check(journal, database, expected["since"])
    journal.close()


def test_retention_goes_on_where_the_previous_version_stopped(tmp_path: Path) -> None:
    folder = unpacked("workspace_closed", tmp_path)
    journal = SqliteJournal(str(folder), str(tmp_path / "anchor"))
    since = json.loads((PREVIOUS / "workspace_closed.json").read_text())["since"]
    gone = journal.transact(lambda: journal.retire(1000, before=2**60, most_bytes=0, in_reach=0))
    assert gone.rows == 43 - 26
    check(journal, folder / "journal.db", since)
    journal.close()


def test_rows_that_the_previous_version_left_open_may_still_fail(tmp_path: Path) -> None:
    folder = unpacked("workspace_killed", tmp_path)
    journal = SqliteJournal(str(folder), str(tmp_path / "anchor"))
    seqs = [intent.row.seq for intent in journal.intents()]
    assert seqs == [44, 45, 46, 47]
    since = json.loads((PREVIOUS / "workspace_closed.json").read_text())["since"]
    check(journal, folder / "journal.db", since)
    journal.transact(lambda: journal.settle(seqs[:2]))
    journal.transact(lambda: [journal.conclude(seq, "conflict") for seq in seqs[2:]])
    assert journal.analytics(None, None)["total_writes"] == 43
    check(journal, folder / "journal.db", since)
    journal.close()

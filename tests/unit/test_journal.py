"""The journal on SQLite: chained, anchored, summed, and shared by several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.storage.errors import UnusableStore
from perdure.storage.journal import Draft, Filter, Invocation, NewRow, Row
from perdure.storage.sqlite import chain
from perdure.storage.sqlite.database import open_database
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.text.times import InvalidTime, format_time, parse_time


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def opened(folder: Path, clock: Clock | None = None) -> SqliteJournal:
    (folder / ".perdure").mkdir(exist_ok=True)
    return SqliteJournal(str(folder / ".perdure"), str(folder / "anchor"), clock or Clock())


def change(
    path: str = "a.txt", mode: str = "create", client: str = "c", session: str = "s", size: int = 3
) -> NewRow:
    return NewRow(
        path=path,
        op="write",
        mode=mode,
        old_sha=None,
        new_sha=os.urandom(32),
        bytes=size,
        client=client,
        session=session,
    )


def written(journal: SqliteJournal, row: NewRow) -> Row:
    return journal.transact(lambda: journal.append(row))


def test_rows_come_back_newest_first_and_page_by_cursor(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    rows = [written(journal, change(f"f{i}")) for i in range(5)]
    first = journal.rows(Filter(), 2)
    assert [row.seq for row in first] == [rows[4].seq, rows[3].seq]
    assert journal.rows(Filter(before=first[-1].seq), 10) == [rows[2], rows[1], rows[0]]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(path="a"), ["a", "a"]),
        (Filter(mode="append"), ["b"]),
        (Filter(client="y"), ["b"]),
        (Filter(path="a", mode="append"), []),
        (Filter(session="s"), ["b", "a", "a"]),
    ],
)
def test_a_filter_keeps_only_what_it_names(tmp_path: Path, wanted: Filter, expected: list[str]) -> None:
    journal = opened(tmp_path)
    for row in (change("a"), change("a"), change("b", mode="append", client="y")):
        written(journal, row)
    assert [row.path for row in journal.rows(wanted, 10)] == expected


def test_an_unbroken_chain_has_no_problems(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for i in range(20):
        written(journal, change(f"f{i}"))
    assert list(journal.verify()) == []


@pytest.mark.parametrize(
    ("tampering", "kind"),
    [
        ("UPDATE journal SET path = 'other' WHERE seq = 7", "chain"),
        ("UPDATE journal SET client = 'someone' WHERE seq = 20", "chain"),
        ("DELETE FROM journal WHERE seq = 7", "gap"),
        ("DELETE FROM journal WHERE seq > 15", "truncated"),
        ("DELETE FROM journal", "truncated"),
    ],
)
def test_a_changed_or_cut_journal_is_noticed(tmp_path: Path, tampering: str, kind: str) -> None:
    journal = opened(tmp_path)
    for i in range(20):
        written(journal, change(f"f{i}"))
    journal.close()
    other = apsw.Connection(str(tmp_path / ".perdure" / "journal.db"))
    other.execute(tampering)
    other.close()
    assert kind in {problem.kind for problem in opened(tmp_path).verify()}


def test_a_transaction_that_fails_leaves_nothing_and_the_chain_goes_on(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    written(journal, change("kept"))

    def fails() -> None:
        journal.append(change("lost"))
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        journal.transact(fails)
    written(journal, change("after"))
    assert [row.path for row in journal.rows(Filter(), 10)] == ["after", "kept"]
    assert list(journal.verify()) == []


def test_an_intent_is_open_until_it_is_settled_or_concluded(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    one, two, three = (written(journal, change(f"f{i}")) for i in range(3))
    journal.transact(lambda: journal.settle([one.seq]))
    journal.transact(lambda: journal.conclude(two.seq, "aborted"))
    assert [(i.row.seq, i.same_boot) for i in journal.intents()] == [(three.seq, True)]


def test_a_change_that_did_not_happen_is_in_no_list_and_no_sum(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    kept, gone = written(journal, change("kept")), written(journal, change("gone", size=1000))
    journal.transact(lambda: journal.conclude(gone.seq, "aborted"))
    assert journal.rows(Filter(), 10) == [kept]
    assert journal.row(gone.seq) is None
    assert journal.last_of("gone") is None
    report = journal.analytics(None, None)
    assert (report["total_writes"], report["unique_paths"], report["total_bytes_written"]) == (1, 1, 3)
    assert list(journal.verify()) == []


@pytest.mark.parametrize("data", [b"", b"x", b"x" * 10_000, os.urandom(5_000)])
def test_a_content_comes_back_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    journal = opened(tmp_path)
    journal.transact(lambda: journal.store_content(b"k" * 32, data))
    journal.transact(lambda: journal.store_content(b"k" * 32, data))
    assert journal.content(b"k" * 32) == data
    assert journal.content(b"?" * 32) is None


def test_a_large_content_is_known_to_be_a_file(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.transact(lambda: journal.store_content_file(b"k" * 32, 10**9))
    assert journal.has_content(b"k" * 32)
    assert journal.content_file(b"k" * 32)
    assert journal.content(b"k" * 32) is None


def test_a_retry_budget_counts_down_for_the_same_content_at_the_same_path(tmp_path: Path) -> None:
    journal = opened(tmp_path)

    def spend(path: str, sha: bytes) -> int:
        return journal.transact(lambda: journal.consume_retry(path, sha, 3))

    assert [spend("a", b"1") for _ in range(6)] == [3, 2, 1, 0, -1, -1]
    assert spend("b", b"1") == 3
    assert spend("a", b"2") == 3


def test_invocations_drafts_and_sightings_are_found_again(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    known = Invocation("k", "safe_write", b"f", 7, "json", "full", b"{}")
    draft = Draft("d1", b"s" * 32, 9, "a.txt", "blocked")
    journal.transact(lambda: journal.record_invocation(known, 7))
    journal.transact(lambda: journal.save_draft(draft, "c", "s"))
    journal.transact(lambda: journal.record_seen("s", "a.txt", None, 0))
    journal.close()
    again = opened(tmp_path)
    assert again.invocation("k") == known
    assert again.invocation("other") is None
    assert again.draft("d1") == draft
    assert again.last_seen("s", "a.txt") == (None,)
    assert again.last_seen("s", "b.txt") is None


@pytest.mark.parametrize("fails", [(0,), (1,), (0, 1), (2,), (0, 2), (0, 1, 2), ()])
@pytest.mark.parametrize("writes_first", [True, False])
@pytest.mark.parametrize("settles", [True, False])
def test_parts_of_a_transaction_fail_alone(
    tmp_path: Path, fails: tuple[int, ...], writes_first: bool, settles: bool
) -> None:
    journal = opened(tmp_path)
    old = written(journal, change("old"))

    def part(number: int) -> None:
        if writes_first:
            journal.append(change(f"f{number}"))
        if number in fails:
            raise ValueError("this part fails")
        journal.append(change(f"g{number}"))

    def work() -> None:
        if settles:
            journal.settle([old.seq])
        for number in range(3):
            if number in fails:
                with pytest.raises(ValueError, match="fails"):
                    journal.nested(lambda number=number: part(number))
            else:
                journal.nested(lambda number=number: part(number))

    journal.transact(work)
    names = [
        name
        for number in range(3)
        if number not in fails
        for name in ((f"f{number}", f"g{number}") if writes_first else (f"g{number}",))
    ]
    rows = journal.rows(Filter(), 100)
    assert [row.path for row in reversed(rows)] == ["old", *names]
    assert [row.seq for row in reversed(rows)] == list(range(1, len(rows) + 1))
    assert list(journal.verify()) == []
    assert [one.row.path for one in journal.intents()] == ([] if settles else ["old"]) + names
    journal.close()


MODES = st.sampled_from(["create", "overwrite", "append"])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 400), max_size=30), st.integers(-10, 410), MODES)
def test_rows_since_a_time_are_found_although_the_clock_was_set_back(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], since: int, mode: str
) -> None:
    clock = Clock()
    journal = opened(tmp_path_factory.mktemp("since"), clock)
    base = clock.now

    def all_of_them() -> None:
        for number, second in enumerate(seconds):
            clock.now = base + second
            journal.append(change(mode=("create", "overwrite", "append")[number % 3]))

    journal.transact(all_of_them)
    edge = int((base + since) * 1_000_000)
    expected = [row for row in journal.rows(Filter(), 100) if row.ts >= edge]
    assert journal.rows(Filter(since=edge), 100) == expected
    assert journal.rows(Filter(since=edge, mode=mode), 100) == [row for row in expected if row.mode == mode]
    assert journal.analytics(edge, None)["total_writes"] == len(expected)
    journal.close()


def test_what_a_session_last_did_with_a_file_is_what_it_saw(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    assert journal.last_seen("s", "a.txt") is None
    first = written(journal, change())
    assert journal.last_seen("s", "a.txt") == (first.new_sha,)
    journal.transact(lambda: journal.record_seen("s", "a.txt", b"read", first.seq))
    assert journal.last_seen("s", "a.txt") == (b"read",)
    written(journal, change(session="other"))
    assert journal.last_seen("s", "a.txt") == (b"read",)
    second = written(journal, change())
    assert journal.last_seen("s", "a.txt") == (second.new_sha,)
    journal.transact(lambda: journal.conclude(second.seq, "aborted"))
    assert journal.last_seen("s", "a.txt") == (b"read",)
    journal.transact(lambda: journal.record_seen("s", "a.txt", b"tried", second.seq))
    journal.transact(lambda: journal.record_seen("s", "a.txt", b"earlier", first.seq))
    assert journal.last_seen("s", "a.txt") == (b"tried",)


def test_the_most_written_files_come_first_and_those_written_once_by_name(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for path in "cab" + "e" * 3 + "d" * 2 + "f":
        written(journal, change(path))
    hot = [(one["path"], one["writes"]) for one in journal.analytics(None, None)["hot_paths"]]
    assert hot == [("e", 3), ("d", 2), ("a", 1), ("b", 1), ("c", 1)]


def test_answers_are_forgotten_from_the_oldest_on(tmp_path: Path) -> None:
    clock = Clock()
    journal = opened(tmp_path, clock)
    for key in ("a", "b", "c", "a"):  # the first is given once more
        clock.now += 100
        known = Invocation(key, "safe_write", b"f", None, "json", "full", b"{}")
        journal.transact(lambda known=known: journal.record_invocation(known, None))
    before = int((clock.now - 50) * 1_000_000)
    assert journal.transact(lambda: journal.expire(1, before=before, drafts_before=0)).more
    assert [key for key in "abc" if journal.invocation(key)] == ["a", "c"]
    journal.transact(lambda: journal.expire(100, before=before, drafts_before=0))
    assert [key for key in "abc" if journal.invocation(key)] == ["a"]


def test_times_are_formatted_in_utc_and_parsed_back() -> None:
    assert format_time(0) == "1970-01-01T00:00:00.000000Z"
    assert parse_time("1970-01-01T00:00:01Z") == parse_time("1970-01-01T00:00:01") == 1_000_000


@pytest.mark.parametrize("text", ["soon", "", "10", "999999d"])
def test_a_text_that_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidTime):
        parse_time(text)


def test_a_journal_from_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / ".perdure" / "journal.db"
    other = apsw.Connection(str(path))
    other.pragma("user_version", 999)
    other.close()
    with pytest.raises(UnusableStore, match="newer version"):
        open_database(str(path), "journal")


def _write_rows(folder: str, count: int) -> None:
    journal = opened(Path(folder))
    for i in range(count):
        written(journal, change(f"{os.getpid()}-{i}"))
    journal.close()


def test_processes_that_open_and_write_at_once_share_one_chain(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    (tmp_path / ".perdure").mkdir()
    writers = [context.Process(target=_write_rows, args=(str(tmp_path), 25)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    journal = opened(tmp_path)
    assert len(journal.rows(Filter(), 1000)) == 100
    assert list(journal.verify()) == []


def test_the_hash_of_a_row_covers_its_columns_as_a_json_list() -> None:
    """The format of every chain that was ever written."""
    for text in ("", "a/b", 'q"\\', "\x00\x1f\x7f\n\r\t\b\f", "é😀\u2028", "…"):
        values = (
            1,
            2,
            text,
            "write",
            "create",
            None,
            bytes(range(32)),
            3,
            text,
            text,
            text or None,
            None,
            None,
            "{}",
        )
        columns = [value.hex() if isinstance(value, bytes) else value for value in values]
        listed = json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode()
        assert chain.digest(chain.GENESIS, values) == sha256(chain.GENESIS + listed).digest()


def test_a_thread_that_ended_leaves_no_connection_behind(tmp_path: Path) -> None:
    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    threads = [threading.Thread(target=lambda: journal.rows(Filter(), 1)) for _ in range(20)]
    for thread in threads:
        thread.start()
        thread.join()
    assert len(journal._readers) == 0
    journal.close()

"""The time machine's tables: tracked files, calls, turns, and rows read as changes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from perdure.storage.journal import NewRow, Row
from perdure.storage.sqlite import timeline
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.storage.timeline import ChangeFilter, NewCall, NotCovered, TrackedFile


@pytest.fixture
def journal(tmp_path: Path) -> SqliteJournal:
    folder = tmp_path / "store"
    folder.mkdir()
    return SqliteJournal(str(folder), str(tmp_path / "anchor"))


def file(path: str, content: bytes) -> TrackedFile:
    return TrackedFile(path, "file", len(content), 1, 2, 3, 0o644, sha256(content).digest())


def append(
    journal: SqliteJournal, path: str, *, txn: str | None = None, client: str = "c", **more: Any
) -> Row:
    row = NewRow(
        **{
            "op": "native",
            "old_sha": None,
            "new_sha": sha256(path.encode()).digest(),
            **more,
        },
        path=path,
        mode="overwrite",
        bytes=1,
        client=client,
        session="s",
        txn=txn,
    )
    return journal.transact(lambda: journal.append(row))


def test_tracked_files_come_back_by_path_and_the_newest_state_counts(journal: SqliteJournal) -> None:
    journal.transact(lambda: journal.track_files([file("b", b"1"), file("a", b"1")]))
    journal.transact(lambda: journal.track_files([file("b", b"2")]))
    assert journal.tracked_files() == [file("a", b"1"), file("b", b"2")]
    assert journal.tracked_file("b") == file("b", b"2")
    assert journal.tracked_file("c") is None


def test_a_tracked_content_is_kept_until_it_is_untracked(journal: SqliteJournal) -> None:
    content = b"tracked"
    digest = sha256(content).digest()

    def track() -> None:
        journal.store_content(digest, content, by_row=False)
        journal.track_files([file("a", content)])

    journal.transact(track)
    journal.transact(lambda: journal.retire(100, before=1 << 62, most_bytes=0, in_reach=0))
    assert journal.content(digest) == content
    journal.transact(lambda: journal.untrack_files(["a"]))
    assert journal.content(digest) is None


def test_a_content_that_a_row_names_outlives_its_tracked_file(journal: SqliteJournal) -> None:
    content = b"tracked"
    digest = sha256(content).digest()

    def track() -> None:
        journal.store_content(digest, content, by_row=False)
        journal.track_files([file("a", content)])

    def change() -> None:
        journal.keep_content(digest)
        journal.untrack_files(["a"])

    journal.transact(track)
    journal.transact(change)
    assert journal.content(digest) == content


def test_turns_count_per_session(journal: SqliteJournal) -> None:
    assert journal.current_turn("claude-code", "s1") is None
    turns = [journal.transact(lambda: journal.begin_turn("claude-code", "s1")) for _ in range(3)]
    assert turns == [1, 2, 3]
    assert journal.transact(lambda: journal.begin_turn("claude-code", "s2")) == 1
    assert journal.current_turn("claude-code", "s1") == 3


def test_a_call_is_open_until_its_status_says_otherwise(journal: SqliteJournal) -> None:
    call = NewCall(
        client="codex", session="s", tool="Bash", txn="t_1", command="rm a", paths=("a",), call_id="call_7"
    )
    opened = journal.transact(lambda: journal.begin_call(call))
    assert journal.open_calls() == [opened]
    assert (opened.status, opened.ended, opened.paths) == ("open", None, ("a",))
    journal.transact(lambda: journal.update_call(opened.id, status="done", seq=12))
    assert journal.open_calls() == []
    [ended] = journal.ended_calls(10)
    assert (ended.status, ended.seq, ended.txn) == ("done", 12, "t_1")
    assert ended.ended is not None


def test_rows_of_one_transaction_are_one_change(journal: SqliteJournal) -> None:
    single = append(journal, "a")
    first = append(journal, "src/b", txn="t_1")
    between = append(journal, "c", client="d")
    last = append(journal, "src/c", txn="t_1")
    found = journal.changes(ChangeFilter(), 10)
    assert [(change.id, change.files) for change in found] == [
        (between.seq, 1),
        (first.seq, 2),
        (single.seq, 1),
    ]
    for name in (str(first.seq), str(last.seq), "t_1"):
        change = journal.change(name)
        assert change is not None
        assert change.id == first.seq
    assert journal.change("99") is None
    assert journal.change("t_2") is None


def test_changes_are_selected_by_author_turn_path_and_page(journal: SqliteJournal) -> None:
    call = NewCall(client="claude-code", session="x", tool="Bash", txn="t_1", turn=2, agent="tester")
    opened = journal.transact(lambda: journal.begin_call(call))
    alone = append(journal, "a", client="d")
    made = append(journal, "src/b", txn="t_1", client="claude-code")
    journal.transact(lambda: journal.update_call(opened.id, status="done", seq=made.seq))

    def ids(wanted: ChangeFilter) -> list[int]:
        return [change.id for change in journal.changes(wanted, 10)]

    for wanted in (
        ChangeFilter(agent="tester"),
        ChangeFilter(turn=2),
        ChangeFilter(session="x"),
        ChangeFilter(client="claude-code"),
        ChangeFilter(path="src"),
        ChangeFilter(path="src/b"),
    ):
        assert ids(wanted) == [made.seq], wanted
    assert ids(ChangeFilter(client="d")) == [alone.seq]
    assert ids(ChangeFilter(path="sr")) == []
    assert ids(ChangeFilter(before=made.seq)) == [alone.seq]
    assert ids(ChangeFilter(since=made.ts)) == [made.seq]
    [change] = journal.changes(ChangeFilter(turn=2), 1)
    assert change.call is not None
    assert (change.session, change.call.agent, change.call.status) == ("x", "tester", "done")


@pytest.mark.parametrize("many_rows", [0, 5000], ids=["many rows", "few rows"])
def test_a_folder_is_found_by_any_row_of_a_change(
    journal: SqliteJournal, many_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "_MANY_ROWS", many_rows)
    first = append(journal, "a", txn="t_1")
    append(journal, "src/b", txn="t_1")
    alone = append(journal, "src/c")
    append(journal, "src0")

    def ids(path: str) -> list[int]:
        return [change.id for change in journal.changes(ChangeFilter(path=path), 10)]

    assert ids("src") == [alone.seq, first.seq]
    assert ids("a") == [first.seq]
    assert ids("sr") == []


@pytest.mark.parametrize("many_rows", [0, 5000], ids=["many rows", "few rows"])
def test_a_change_of_an_own_tool_belongs_to_two_sessions(
    journal: SqliteJournal, many_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of Perdure's own tool has the session of the client, its row that of the server."""
    monkeypatch.setattr(timeline, "_MANY_ROWS", many_rows)
    row = append(journal, "a")
    new = NewCall(client="claude-code", session="of-the-client", tool="safe_write", txn=None)
    call = journal.transact(lambda: journal.begin_call(new))
    journal.transact(lambda: journal.update_call(call.id, status="done", seq=row.seq))
    for wanted in (
        ChangeFilter(session="of-the-client"),
        ChangeFilter(client="claude-code"),
        ChangeFilter(session="s"),
    ):
        assert [change.id for change in journal.changes(wanted, 10)] == [row.seq]
    assert journal.changes(ChangeFilter(session="another"), 10) == []


def test_an_undone_change_is_one_whose_every_row_is_taken_back(journal: SqliteJournal) -> None:
    first = append(journal, "a", txn="t_1")
    second = append(journal, "b", txn="t_1")

    def is_undone(identity: int) -> bool:
        change = journal.change(str(identity))
        assert change is not None
        return change.is_undone

    append(journal, "a", txn="t_2", op="undo", undoes=first.seq)
    assert not is_undone(first.seq)
    undo = append(journal, "b", txn="t_2", op="undo", undoes=second.seq)
    assert is_undone(first.seq)
    redo = append(journal, "b", op="redo", undoes=undo.seq)
    assert not is_undone(first.seq)
    append(journal, "b", op="undo", undoes=redo.seq)
    assert is_undone(first.seq)
    assert is_undone(redo.seq)


def test_a_change_counts_a_move_once_and_a_directory_not_at_all(journal: SqliteJournal) -> None:
    append(journal, "src", txn="t_1", detail={"kind": "directory", "added": 3, "removed": 1, "call": {}})
    append(journal, "src/a", txn="t_1", detail={"moved_from": "a"})
    append(journal, "a", txn="t_1", new_sha=None, detail={"moved_to": "src/a"})
    append(journal, "src/b", txn="t_1")
    append(journal, "src/b", txn="t_1", detail={"added": 1, "removed": 0})
    alone = append(journal, "c")
    change, other = journal.change("t_1"), journal.change(str(alone.seq))
    assert change is not None
    assert (change.files, change.added, change.removed) == (2, 4, 1)
    assert other is not None
    assert (other.files, other.added, other.removed) == (1, None, None)


def test_a_change_begins_with_its_first_row_that_holds(journal: SqliteJournal) -> None:
    failed = append(journal, "a", txn="t_1")
    made = append(journal, "b", txn="t_1")
    journal.transact(lambda: journal.conclude(failed.seq, "conflict"))
    assert [(change.id, change.files) for change in journal.changes(ChangeFilter(), 10)] == [(made.seq, 1)]
    assert [change.id for change in journal.changes(ChangeFilter(path="b"), 10)] == [made.seq]
    assert journal.change(str(failed.seq)) is None
    by_name = journal.change("t_1")
    assert by_name is not None
    assert by_name.id == made.seq


def test_what_is_not_covered_is_replaced_as_a_whole(journal: SqliteJournal) -> None:
    journal.transact(lambda: journal.set_not_covered([NotCovered("dist", "ignored", 3)]))
    journal.transact(lambda: journal.set_not_covered([NotCovered("big.bin", "too_large", 1)]))
    assert journal.not_covered() == [NotCovered("big.bin", "too_large", 1)]


@pytest.mark.parametrize("many_rows", [0, 5000], ids=["many rows", "few rows"])
def test_a_change_counts_by_its_last_row_where_a_time_is_given(
    journal: SqliteJournal, many_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "_MANY_ROWS", many_rows)
    append(journal, "before")
    first = append(journal, "a", txn="t_1")
    last = append(journal, "b", txn="t_1")
    after = append(journal, "after")
    assert last.ts > first.ts
    found = journal.changes(ChangeFilter(since=last.ts), 10)
    assert [change.id for change in found] == [after.seq, first.seq]

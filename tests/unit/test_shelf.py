"""Contents kept under a name, out of the tree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from perdure.storage.journal import Item, NewRow
from perdure.storage.sqlite import database
from perdure.storage.sqlite.journal import SqliteJournal

START = 1_800_000_000.0


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[SqliteJournal]:
    (tmp_path / ".perdure").mkdir()
    found = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"), clock)
    yield found
    found.close()


def put(
    journal: SqliteJournal, name: str, data: bytes, *, at: int = 0, expires_s: float | None = None
) -> bytes:
    sha = sha256(data).digest()
    ends = None if expires_s is None else int((START + expires_s) * 1_000_000)
    item = Item(
        kind="chunk",
        name=name,
        at=at,
        sha=sha,
        size=len(data),
        meta={"n": at},
        created=1,
        updated=2,
        expires=ends,
    )

    def work() -> None:
        journal.store_content(sha, data, by_row=False)
        journal.shelf_put(item)

    journal.transact(work)
    return sha


def test_items_come_back_as_they_were_in_order(journal: SqliteJournal) -> None:
    for name, at in (("b", 1), ("a", 10), ("a", 2)):
        put(journal, name, f"{name}{at}".encode(), at=at)
    assert [(i.name, i.at) for i in journal.shelf("chunk")] == [("a", 2), ("a", 10), ("b", 1)]
    assert [i.at for i in journal.shelf("chunk", "a")] == [2, 10]
    found = journal.item("chunk", "b", 1)
    assert found is not None
    assert (found.meta, found.sha) == ({"n": 1}, sha256(b"b1").digest())
    assert journal.item("scratch", "b", 1) is None


def test_what_is_taken_away_goes_unless_something_else_names_it(journal: SqliteJournal) -> None:
    alone = put(journal, "a", b"alone", at=1)
    shared = put(journal, "a", b"shared", at=2)
    put(journal, "b", b"shared", at=1)
    of_row = put(journal, "a", b"of a row", at=3)

    def write() -> None:
        journal.store_content(of_row, b"of a row")
        journal.append(
            NewRow(
                path="f",
                op="write",
                mode="create",
                old_sha=None,
                new_sha=of_row,
                bytes=8,
                client="c",
                session="s",
            )
        )

    journal.transact(write)
    assert journal.transact(lambda: journal.shelf_remove("chunk", "a")).rows == 3
    assert [journal.has_content(sha) for sha in (alone, shared, of_row)] == [False, True, True]
    assert journal.shelf("chunk", "a") == []


def test_a_new_content_in_the_same_place_replaces_the_old(journal: SqliteJournal) -> None:
    old = put(journal, "a", b"old")
    new = put(journal, "a", b"new")
    assert (journal.has_content(old), journal.has_content(new)) == (False, True)
    put(journal, "a", b"new")
    assert journal.has_content(new)


def test_what_has_expired_is_not_there_even_before_it_is_swept(journal: SqliteJournal, clock: Clock) -> None:
    sha = put(journal, "a", b"short", expires_s=60)
    assert journal.item("chunk", "a") is not None
    clock.now += 61
    assert (journal.item("chunk", "a"), journal.shelf("chunk")) == (None, [])
    assert journal.has_content(sha)
    assert journal.transact(lambda: journal.expire_shelf(10)).rows == 1
    assert not journal.has_content(sha)


def test_files_of_large_contents_are_named_for_removal(journal: SqliteJournal) -> None:
    sha = os.urandom(32)
    item = Item(kind="scratch", name="x", sha=sha, size=10**6, created=1, updated=1)

    def work() -> None:
        journal.store_content_file(sha, 10**6, by_row=False)
        journal.shelf_put(item)

    journal.transact(work)
    assert journal.transact(lambda: journal.shelf_remove("scratch", "x")).files == [sha]


def test_retention_leaves_the_shelf_alone(journal: SqliteJournal) -> None:
    sha = put(journal, "a", b"kept")
    journal.transact(lambda: journal.retire(100, before=2**60, most_bytes=0, in_reach=0))
    journal.transact(lambda: journal.expire(100, before=2**60, drafts_before=2**60))
    assert journal.has_content(sha)


def test_a_journal_of_the_first_format_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".perdure").mkdir()
    steps = list(database.migrations("journal"))
    with monkeypatch.context() as first:
        first.setattr(database, "migrations", lambda family: iter(steps[:1]))
        old = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
        old.close()
    new = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    put(new, "a", b"data")
    assert len(new.shelf("chunk")) == 1
    new.close()

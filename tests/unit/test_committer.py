"""One round for many callers: what goes wrong in one call's plan is that call's alone."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.beside import Helper
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.workspace.commit import Committer
from perdure.workspace.jobs import Landing, NoFiles
from perdure.workspace.writer_lock import WriterLock


class Unforeseen(Exception):
    pass


def test_an_error_that_nobody_foresaw_fails_its_own_call_only(tmp_path: Path) -> None:
    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    committer = Committer(journal, WriterLock(str(tmp_path / "lock")), lambda: None)
    begun, goes_on = threading.Event(), threading.Event()
    answers: dict[str, object] = {}

    def first() -> Landing:
        begun.set()
        goes_on.wait(30)
        return NoFiles({"name": "first"})

    def bad() -> Landing:
        raise Unforeseen

    def ask(name: str, plan: object) -> None:
        try:
            answers[name] = committer.submit(frozenset({name}), plan)  # type: ignore[arg-type]
        except BaseException as error:
            answers[name] = error

    leader = threading.Thread(target=ask, args=("first", first))
    leader.start()
    begun.wait(30)
    others = [
        threading.Thread(target=ask, args=("bad", bad)),
        threading.Thread(target=ask, args=("good", lambda: NoFiles({"name": "good"}))),
    ]
    for thread in others:
        thread.start()
    while len(committer._waiting) < 2:  # both go into the next round, together
        pass
    goes_on.set()
    for thread in (leader, *others):
        thread.join(30)
    committer.close()
    journal.close()

    assert isinstance(answers["bad"], Unforeseen)
    assert (answers["first"], answers["good"]) == ({"name": "first"}, {"name": "good"})


def test_a_refused_call_is_forgotten_at_once(tmp_path: Path) -> None:
    """Not when the collector comes by: a call may hold a file's whole content."""

    class Held:
        pass

    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    committer = Committer(journal, WriterLock(str(tmp_path / "lock")), lambda: None)
    held = Held()
    known = weakref.ref(held)

    def plan(held: Held = held) -> Landing:
        raise refuse("conflict", "no", "not this time", next_step=call_again())

    gc.disable()
    try:
        with pytest.raises(ToolError):
            committer.submit(frozenset(), plan)
        del plan, held
        assert known() is None
    finally:
        gc.enable()
        committer.close()
        journal.close()


@pytest.fixture
def committer(tmp_path: Path) -> Iterator[Committer]:
    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    made = Committer(journal, WriterLock(str(tmp_path / "lock")), lambda: None)
    yield made
    made.close()
    journal.close()


class Awaited:
    """A job that no thread waits for: what became of it, and which thread was told."""

    def __init__(self, committer: Committer, name: str, plan: Callable[[], Landing | None]) -> None:
        self.job = committer.job(frozenset({name}), plan)
        self.told: queue.Queue[int] = queue.Queue()
        self.work = self.job.begin(lambda: self.told.put(threading.get_ident()))

    def result(self) -> object:
        self.told.get(timeout=30)
        return self.job.result()


def test_who_leads_works_for_all_who_wait_without_a_thread_and_tells_each_of_them(
    committer: Committer,
) -> None:
    first = Awaited(committer, "first", lambda: NoFiles("first"))
    others = [
        Awaited(committer, "bad", _refusing),
        Awaited(committer, "good", lambda: NoFiles("good")),
    ]

    assert [other.work for other in others] == [None, None]
    assert first.work is not None
    first.work()

    assert first.told.get(timeout=30) == threading.get_ident()
    assert first.job.result() == "first"
    with pytest.raises(ToolError):
        others[0].result()
    assert others[1].result() == "good"
    later = Awaited(committer, "later", lambda: NoFiles("later"))
    assert later.work is not None, "nobody leads any more"
    later.work()
    assert later.result() == "later"


def _refusing() -> Landing:
    raise refuse("conflict", "no", "not this time", next_step=call_again())


def test_a_thread_that_waits_hands_over_where_those_behind_it_have_none(committer: Committer) -> None:
    behind: list[Awaited] = []

    def plan() -> Landing:
        behind.append(Awaited(committer, "behind", lambda: NoFiles("behind")))
        return NoFiles("own")

    assert committer.submit(frozenset({"own"}), plan) == "own"
    assert behind[0].result() == "behind"


def test_a_job_that_comes_while_another_is_told_is_led_by_the_same_thread(committer: Committer) -> None:
    """A call that was refused keeps its payload in another round; nobody is woken for it."""
    results: list[object] = []
    first = committer.job(frozenset(), lambda: NoFiles("first"))
    second = committer.job(frozenset(), lambda: NoFiles("second"))

    def told() -> None:
        results.append(first.result())
        assert second.begin(lambda: results.append(second.result())) is None

    work = first.begin(told)
    assert work is not None
    work()
    assert results == ["first", "second"]


def test_what_comes_after_closing_is_refused_and_told_so(tmp_path: Path, committer: Committer) -> None:
    committer.close()
    late = Awaited(committer, "late", lambda: NoFiles("late"))
    assert late.work is None
    with pytest.raises(ToolError) as refused:
        late.result()
    assert refused.value.envelope.context["reason"] == "closing"


def test_of_a_round_only_so_many_files_are_made_ready_before_they_are_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds descriptors until it lands."""
    asked: list[int] = []

    class ThreeFiles(NoFiles):
        def begin(self, helper: Helper, most: int) -> int:
            asked.append(most)
            return min(3, most)

    monkeypatch.setattr("perdure.workspace.commit.MOST_AHEAD", 8)
    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    committer = Committer(journal, WriterLock(str(tmp_path / "lock")), lambda: None)
    batch = [committer.job(frozenset({str(number)}), lambda: ThreeFiles({})) for number in range(5)]
    journal.transact(lambda: committer._plan_all(batch))
    committer.close()
    journal.close()
    assert asked == [8, 5, 2]

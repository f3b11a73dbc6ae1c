"""Rounds of a workspace: what goes wrong in one job is that job's alone."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.workspace.commit import Committer
from perdure.workspace.jobs import Job, JournalJob
from perdure.workspace.writer_lock import WriterLock

SOON = 30.0


class Unforeseen(Exception):
    pass


@pytest.fixture
def committer(tmp_path: Path) -> Iterator[Committer]:
    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    made = Committer(journal, WriterLock(str(tmp_path / "lock")), lambda: None)
    yield made
    made.close()
    journal.close()


def no() -> ToolError:
    return refuse("conflict", "no", "not this time", next_step=call_again())


def test_an_unexpected_error_fails_its_own_call_only(committer: Committer) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        goes_on.wait(SOON)
        return "first"

    def bad() -> None:
        raise Unforeseen

    leading = committer.submit(JournalJob(first))
    assert begun.wait(SOON)
    failing, good = committer.submit(JournalJob(bad)), committer.submit(JournalJob(lambda: "good"))
    goes_on.set()

    assert (leading.result(SOON), good.result(SOON)) == ("first", "good")
    with pytest.raises(Unforeseen):
        failing.result(SOON)


def test_a_refused_call_is_freed_at_once(committer: Committer) -> None:
    """Not when the collector runs: a call may hold a file's whole content."""

    class Content:
        pass

    class Refused(Job):
        def __init__(self, content: Content) -> None:
            super().__init__()
            self.content = content

        def stage(self) -> None:
            raise no()

    content = Content()
    freed = threading.Event()
    weakref.finalize(content, freed.set)
    gc.disable()
    try:
        with pytest.raises(ToolError):
            committer.submit(Refused(content)).result(SOON)
        del content
        assert freed.wait(SOON)
    finally:
        gc.enable()


def test_slow_work_is_done_outside_the_round_while_others_commit(committer: Committer) -> None:
    is_working, goes_on = threading.Event(), threading.Event()

    class Slow(Job):
        def stage(self) -> None:
            self.result = self.deferred.result("hash", self._hash)

        def _hash(self) -> str:
            is_working.set()
            assert goes_on.wait(SOON)
            return "hashed"

    slow = committer.submit(Slow())
    assert is_working.wait(SOON)
    assert committer.transact(lambda: "other") == "other"
    assert not slow.done()
    goes_on.set()
    assert slow.result(SOON) == "hashed"


def test_slow_work_that_is_refused_refuses_its_job(committer: Committer) -> None:
    class Slow(Job):
        def stage(self) -> None:
            self.deferred.result("hash", self._hash)

        def _hash(self) -> None:
            raise no()

    with pytest.raises(ToolError, match="no"):
        committer.submit(Slow()).result(SOON)


def test_slow_work_that_breaks_fails_its_job(committer: Committer) -> None:
    class Slow(Job):
        def stage(self) -> None:
            self.deferred.result("hash", self._hash)

        def _hash(self) -> None:
            raise Unforeseen

    with pytest.raises(Unforeseen):
        committer.submit(Slow()).result(SOON)


def test_a_job_that_comes_after_closing_is_refused(committer: Committer) -> None:
    committer.close()
    with pytest.raises(ToolError) as refused:
        committer.transact(lambda: None)
    assert refused.value.envelope.context["reason"] == "closing"

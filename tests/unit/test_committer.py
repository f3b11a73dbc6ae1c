"""One round for many callers: what goes wrong in one call's plan is that call's alone."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest

from perdure.model.envelope import ToolError, refuse
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.surfaces.write.committer import Committer, Landing, NoFiles


class Unforeseen(Exception):
    pass


def test_an_error_that_nobody_foresaw_fails_its_own_call_only(tmp_path: Path) -> None:
    (tmp_path / ".perdure").mkdir()
    journal = SqliteJournal(str(tmp_path / ".perdure"), str(tmp_path / "anchor"))
    committer = Committer(journal, str(tmp_path / "lock"), lambda: None)
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
    committer = Committer(journal, str(tmp_path / "lock"), lambda: None)
    held = Held()
    known = weakref.ref(held)

    def plan(held: Held = held) -> Landing:
        raise refuse("conflict", "no", "not this time")

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

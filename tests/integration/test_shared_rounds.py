"""Calls that wait for the same round: each is answered as if it had been alone."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from write_tools import Tools

from perdure.workspace.jobs import JournalJob

Answer = tuple[bool, dict[str, Any]]


def write(tools: Tools, path: str, content: str, **more: Any) -> dict[str, Any]:
    is_done, answer = tools.use("safe_write", {"path": path, "content": content, "mode": "overwrite", **more})
    assert is_done, answer
    return answer


def at_once(tools: Tools, *calls: tuple[str, dict[str, Any]]) -> list[Answer]:
    """Make the calls in threads of their own, in this order, while a round is under way: all go into the next one."""
    committer = tools.service.committer
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        goes_on.wait(30)

    answers: dict[int, Answer] = {}

    def ask(number: int) -> None:
        answers[number] = tools.use(*calls[number])

    committer.submit(JournalJob(hold))
    assert begun.wait(30)
    threads = []
    for number in range(len(calls)):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
        while committer._commits._queue.qsize() <= number and threads[-1].is_alive():
            pass
    goes_on.set()
    for thread in threads:
        thread.join(30)
    return [answers[number] for number in range(len(calls))]


def test_two_undos_take_back_two_changes(tools: Tools) -> None:
    for content in ("one\n", "two\n", "three\n"):
        write(tools, "a", content)

    first, second = at_once(tools, ("undo", {}), ("undo", {}))

    assert [answer["reverted"][0]["undone"] for _, answer in (first, second)] == ["3", "2"]
    assert (tools.workspace / "a").read_text() == "one\n"


def test_of_two_undos_of_one_change_the_second_is_refused(tools: Tools) -> None:
    journal_id = write(tools, "a", "one\n")["journal_id"]

    first, second = at_once(tools, *[("undo", {"journal_id": journal_id})] * 2)

    assert first[0]
    assert (second[0], second[1]["context"]["reason"]) == (False, "already_undone")


def test_redo_after_two_undos_takes_back_the_last_of_them(tools: Tools) -> None:
    for content in ("one\n", "two\n", "three\n"):
        write(tools, "a", content)
    at_once(tools, ("undo", {}), ("undo", {}))

    for content in ("two\n", "three\n"):
        assert tools.use("undo", {"redo": True})[0]
        assert (tools.workspace / "a").read_text() == content
    assert tools.use("undo", {"redo": True})[1]["context"]["reason"] == "nothing_to_undo"


def test_an_undo_beside_another_change_of_the_file_reports_no_conflict(tools: Tools) -> None:
    write(tools, "a", "one\ntwo\nthree\n")
    undone = tools.use("edit", {"path": "a", "edits": [{"old": "one", "new": "1"}]})[1]["journal_id"]
    edit = {"path": "a", "edits": [{"old": "three", "new": "3"}]}

    edited, reverted = at_once(tools, ("edit", edit), ("undo", {"journal_id": undone}))

    assert edited[0]
    assert reverted[1]["conflicts"] == []
    assert (tools.workspace / "a").read_text() == "one\ntwo\n3\n"


@pytest.mark.parametrize("other", ["link", "d/../a"])
def test_one_file_under_two_spellings_is_changed_twice(tools: Tools, other: str) -> None:
    (tools.workspace / "d").mkdir()
    os.symlink("a", tools.workspace / "link")
    write(tools, "a", "one\ntwo\n")

    answers = at_once(
        tools,
        ("edit", {"path": "a", "edits": [{"old": "one", "new": "1"}]}),
        ("edit", {"path": other, "edits": [{"old": "two", "new": "2"}]}),
    )

    assert [is_done for is_done, _ in answers] == [True, True]
    assert (tools.workspace / "a").read_text() == "1\n2\n"


def test_one_key_with_other_arguments_is_refused(tools: Tools) -> None:
    first, second = at_once(
        tools,
        ("safe_write", {"path": "a", "content": "one\n", "idempotency_key": "k"}),
        ("safe_write", {"path": "b", "content": "two\n", "idempotency_key": "k"}),
    )

    assert first[0]
    assert (second[0], second[1]["context"]["reason"]) == (False, "key_reused")
    assert not (tools.workspace / "b").exists()


def test_one_key_with_the_same_arguments_is_done_once(tools: Tools) -> None:
    call = ("safe_write", {"path": "a", "content": "x\n", "mode": "append", "idempotency_key": "k"})

    first, second = at_once(tools, call, call)

    assert (first[0], second[0]) == (True, True)
    assert second[1]["deduplicated"] is True
    assert (tools.workspace / "a").read_text() == "x\n"

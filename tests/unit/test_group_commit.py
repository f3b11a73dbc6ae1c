"""The commit thread: one round for all jobs that wait, and an outcome for each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from perdure.storage import group_commit
from perdure.storage.group_commit import GroupCommit

SOON = 10.0


class Closed(Exception):
    pass


class Job(group_commit.Job):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class Store:
    """Records its rounds, and can be held in one."""

    def __init__(self) -> None:
        self.rounds: list[list[str]] = []
        self.is_in_round = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.retried: set[str] = set()
        self.threads: set[int] = set()
        self.commits: GroupCommit[Job] = GroupCommit("test-commit", self.run_round, Closed)

    def run_round(self, batch: list[Job]) -> None:
        self.rounds.append([job.name for job in batch])
        self.threads.add(threading.get_ident())
        self.is_in_round.set()
        assert self.goes_on.wait(SOON)
        for job in batch:
            job.status = "done"
            if job.name == "broken round":
                raise OSError("broken")
            if job.name == "refused":
                job.error = ValueError("refused")
            elif job.name in self.retried:
                self.retried.remove(job.name)
                job.status = "retry"
            elif job.name == "parked":
                job.status = "parked"
            job.result = job.name

    def submit(self, *names: str) -> list[Future[Any]]:
        """All of them wait while a first round is held, and are then run together."""
        self.goes_on.clear()
        self.is_in_round.clear()
        first = self.commits.submit(Job("first"))
        assert self.is_in_round.wait(SOON)
        futures = [self.commits.submit(Job(name)) for name in names]
        self.goes_on.set()
        assert first.result(SOON) == "first"
        return futures


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.commits.close()


def test_jobs_that_wait_share_a_round_on_one_thread(store: Store) -> None:
    futures = store.submit("a", "b", "c")
    assert [future.result(SOON) for future in futures] == ["a", "b", "c"]
    assert store.rounds == [["first"], ["a", "b", "c"]]
    assert len(store.threads) == 1


def test_a_refused_job_takes_nothing_from_the_others(store: Store) -> None:
    good, refused, other = store.submit("a", "refused", "b")
    assert (good.result(SOON), other.result(SOON)) == ("a", "b")
    with pytest.raises(ValueError, match="refused"):
        refused.result(SOON)


def test_a_round_that_fails_fails_all_its_jobs_and_the_next_one_runs(store: Store) -> None:
    for future in store.submit("a", "broken round"):
        with pytest.raises(OSError, match="broken"):
            future.result(SOON)
    assert store.commits.submit(Job("later")).result(SOON) == "later"


def test_a_retried_job_goes_first_in_the_next_round(store: Store) -> None:
    store.retried.add("b")
    futures = store.submit("a", "b", "c")
    assert [future.result(SOON) for future in futures] == ["a", "b", "c"]
    assert store.rounds[1:] == [["a", "b", "c"], ["b"]]


def test_a_parked_job_waits_until_it_is_submitted_again(store: Store) -> None:
    parked = Job("parked")
    future = store.commits.submit(parked)
    assert store.commits.submit(Job("a")).result(SOON) == "a"
    assert not future.done()
    parked.name = "woken"
    store.commits.submit(parked)
    assert future.result(SOON) == "woken"


def test_more_jobs_than_a_batch_takes_are_all_run(store: Store) -> None:
    names = [str(number) for number in range(group_commit.MAX_BATCH + 1)]
    assert [future.result(SOON) for future in store.submit(*names)] == names
    assert [len(batch) for batch in store.rounds] == [1, group_commit.MAX_BATCH, 1]


def test_a_batch_can_be_selected() -> None:
    def one_at_a_time(waiting: deque[Job]) -> list[Job]:
        return [waiting.popleft()]

    store = Store()
    store.commits = GroupCommit("test-commit", store.run_round, Closed, one_at_a_time)
    assert [future.result(SOON) for future in store.submit("a", "b")] == ["a", "b"]
    assert store.rounds == [["first"], ["a"], ["b"]]
    store.commits.close()


def test_close_runs_what_was_submitted_and_refuses_the_rest(store: Store) -> None:
    futures = store.submit("a", "b")
    store.commits.close()
    assert [future.result(SOON) for future in futures] == ["a", "b"]
    with pytest.raises(Closed):
        store.commits.submit(Job("late")).result(SOON)


def test_a_callback_runs_on_the_commit_thread_and_may_close_it(store: Store) -> None:
    told: list[int] = []
    ended = threading.Event()

    def callback(future: Future[Any]) -> None:
        told.append(threading.get_ident())
        store.commits.close()
        ended.set()

    store.submit("a")[0].add_done_callback(callback)
    assert ended.wait(SOON)
    assert told[0] in (*store.threads, threading.get_ident())  # the job may have been done already


def test_idle_time_is_counted_from_the_last_round(store: Store) -> None:
    assert store.commits.idle_s() >= 0
    store.goes_on.clear()
    store.commits.submit(Job("a"))
    assert store.is_in_round.wait(SOON)
    assert store.commits.idle_s() == 0
    store.goes_on.set()

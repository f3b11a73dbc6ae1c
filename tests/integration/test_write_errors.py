"""System calls of a real worker fail under `strace`: the short form of `python -m harness.syscalls.syscall_faults`.

`PERDURE_EVERY_FAULT=1` takes every system call with every error instead of some.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.crash.write_kinds import HUGE_KINDS, KINDS
from harness.syscalls import opening_faults, syscall_faults
from harness.syscalls.syscall_faults import DURABILITIES, ERRORS, Run, Session
from harness.syscalls.traced_worker import Site, can_trace

MOST_TRIES = 20
WHY_NOT = can_trace()
pytestmark = [pytest.mark.thorough, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is strace")]


def every(some: int) -> int:
    return 1 if os.environ.get("PERDURE_EVERY_FAULT") else some


def wrong(runs: list[Run]) -> list[str]:
    return [
        f"{run.kind.name}, {run.site.call} {run.site.nth} {run.error} ({run.hit or 'not met'}): {run.problems}"
        for run in runs
        if run.problems
    ]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_system_call_that_fails_is_answered_truly(tmp_path: Path, durability: str) -> None:
    runs = syscall_faults.matrix(tmp_path, KINDS, durability, ERRORS, every=every(53))
    assert wrong(runs) == []
    assert sum(bool(run.hit) for run in runs) > len(runs) / 2, "the failures were never met"
    assert any(run.answer == "done" for run in runs)
    assert any(run.answer.startswith("quota_exceeded") for run in runs)


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_system_call_that_fails_while_a_large_file_is_copied_is_answered_truly(
    tmp_path: Path, durability: str
) -> None:
    runs = syscall_faults.matrix(tmp_path, HUGE_KINDS, durability, ERRORS, every=every(41))
    assert wrong(runs) == []
    assert {run.site.thread for run in runs if run.hit} >= {"call", "commit"}, "a thread had no failures"


def test_a_system_call_that_goes_on_failing_is_answered_truly(tmp_path: Path) -> None:
    runs = syscall_faults.matrix(
        tmp_path, KINDS, "strict", ("EIO", "ENOSPC", "EROFS"), every=every(61), lasting=True
    )
    assert wrong(runs) == []
    assert any(run.hit and run.answer != "done" for run in runs)


def test_what_failed_together_with_the_journal_is_taken_down_before_anybody_looks(tmp_path: Path) -> None:
    """Nothing can be read any more from the moment the file is verified until the answer: not the journal either."""
    (kind,) = (kind for kind in KINDS if kind.name == "undo")
    session = Session(tmp_path, "journal", lasting=True)

    def failed_at_the_file() -> bool:
        return any(run.hit == "pread64 temporary" for run in session.runs)

    try:
        reads = [site for site in session.sites(kind) if site.call == "pread64"]
        for site in reads:
            session.run(kind, site, "EROFS")
        # The file is read last, after the journal. How often the journal is read depends on SQLite's page cache and on
        # intents settled meanwhile, so the file's read is looked for around where it was.
        nth = reads[-1].nth
        while not failed_at_the_file() and len(session.runs) < len(reads) + MOST_TRIES:
            nth += 1 if session.runs[-1].hit else -1
            session.run(kind, Site("pread64", nth, "temporary"), "EROFS")
        session.finish()
    finally:
        session.close()
    assert wrong(session.runs) == []
    assert failed_at_the_file()


@pytest.fixture
def killing(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path, "journal", kill=True)
    yield session
    session.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("edit", "transaction")])
def test_a_refused_write_does_not_come_true_after_a_kill(killing: Session, kind: syscall_faults.Kind) -> None:
    """A commit whose sync failed stands in the log whole, for whoever reads the log next."""
    for site in killing.sites(kind):
        if site.call == "fdatasync":
            for error in ERRORS:
                killing.run(kind, site, error)
    killing.finish()
    assert wrong(killing.runs) == []
    assert any(run.hit == "fdatasync wal" and run.answer != "done" for run in killing.runs)


@pytest.mark.parametrize("moment", opening_faults.MOMENTS)
def test_a_recovery_that_fails_is_told_and_done_again(tmp_path: Path, moment: str) -> None:
    runs = opening_faults.matrix(tmp_path, moment, opening_faults.ERRORS, every=every(271))
    assert [run for run in runs if run.problems] == []
    assert any(run.hit for run in runs), "the failures were never met"

"""A killed worker's successor opens the workspace and recovers it, while every system call of that fails once.

    python -m harness.syscalls.opening_faults [--error EIO]… [--every N]

What is recovered was written at three moments: acknowledged and not yet settled; decided and not yet on disk; on disk
with the old file still beside it. The first call of the successor may be refused, with a typed envelope. The next one,
without a failure, must be done, and then the file holds what was decided, whatever failed before.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.crash.write_kinds import contents, found_in
from harness.store_location import relocate
from harness.syscalls.traced_worker import INJECTED, Site, Worker, can_trace, gives_up_a_lock, shown
from perdure.protocol.envelope import Envelope
from perdure.storage.journal import Filter
from perdure.testing.raw_client import Ended

ERRORS: Final = ("EIO", "ENOSPC", "EACCES", "EINTR")
MOMENTS: Final = {
    "acknowledged": "commit.landed=kill@3",
    "decided": "commit.decided=kill@2",
    "displaced": "write.exchanged=kill",
}
OLD: Final = b"old\n"
NEW: Final = b"new\n"


class Opening(msgspec.Struct):
    """One opening under one failure."""

    moment: str
    site: Site
    error: str
    hit: str = ""
    answer: str = ""
    problems: list[str] = []


def left_behind(base: Path, moment: str) -> None:
    """A workspace as a worker leaves it that is killed at this moment of a change of `d/f` from OLD to NEW."""
    worker = Worker(base, env={"PERDURE_FAULT": MOMENTS[moment]})
    folder = worker.workspace / "d"
    folder.mkdir()
    try:
        worker.use("safe_write", {"path": "d/f", "content": OLD.decode()})
        worker.use("edit", {"path": "d/f", "edits": [{"old": "old", "new": "new"}]})
        worker.use("safe_write", {"path": "d/g", "content": "of a call that comes later\n"})
    except Ended:
        worker.close()
        return
    raise AssertionError(f"the worker was not killed: {moment}")


class Openings:
    """Many openings of copies of one workspace."""

    def __init__(self, base: Path, moment: str) -> None:
        self._base = base
        self._moment = moment
        self._made = 0
        left_behind(base / "left", moment)

    def sites(self) -> list[Site]:
        worker = self._opened()
        with worker.traced("-e", "trace=%file,%desc") as threads:
            done, payload = worker.use("journal_tail", {})
        assert done, payload
        self._close(worker)
        return worker.sites(threads)

    def run(self, site: Site, error: str) -> Opening:
        one = Opening(self._moment, site, error)
        worker = self._opened()
        fault = f"inject={site.call}:error={error}:when={site.nth}"
        try:
            with worker.traced("-e", f"trace={site.call}", "-e", fault, site=site) as threads:
                first = worker.use("journal_tail", {})
            failed = next((line for one in threads for line in one.lines if INJECTED in line), "")
            if not gives_up_a_lock(failed):
                one.hit = shown(failed)
                one.answer = (
                    "done" if first[0] else f"{first[1].get('error')} {first[1]['context'].get('reason')}"
                )
                one.problems += _of_answer(*first)
                one.problems += self._of_state(worker)
        except (TimeoutError, Ended, KeyError) as lost:
            one.problems.append(f"no answer: {type(lost).__name__} {lost}")
        finally:
            self._close(worker)
        return one

    def _opened(self) -> Worker:
        """With a thread that serves calls and has not opened anything yet."""
        self._made += 1
        base = self._base / str(self._made)
        shutil.copytree(self._base / "left", base, ignore=shutil.ignore_patterns("*.sock"))
        relocate(self._base / "left" / "workspace", base / "workspace", base / "home")
        worker = Worker(base)
        worker.use("journal_tail", {"no_such_argument": 1})
        return worker

    def _close(self, worker: Worker) -> None:
        worker.close()
        shutil.rmtree(worker.base)

    def _of_state(self, worker: Worker) -> Iterator[str]:
        found = contents(found_in(worker.workspace / "d")[0])
        allowed = (NEW,) if self._moment == "acknowledged" else (OLD, NEW)
        if found.get("f") not in allowed:
            yield f"after the failure the file holds {found.get('f')!r}"
        done, payload = worker.use("safe_write", {"path": "d/next", "content": "next"})
        if not done:
            yield f"the next write was refused: {payload}"
        files, left = found_in(worker.workspace / "d")
        if contents(files).get("f") != NEW:
            yield f"after recovery the file holds {contents(files).get('f')!r}"
        if left:
            yield f"left lying about: {len(left)}"
        journal = worker.journal()
        try:
            yield from (f"journal: {problem.kind} {problem.detail}" for problem in journal.verify())
            rows = journal.rows(Filter(path="d/f"), 1)
            if not rows or rows[0].new_sha != hashlib.sha256(NEW).digest():
                yield "the file is not what the journal says"
        finally:
            journal.close()


def _of_answer(done: bool, payload: dict[str, Any]) -> Iterator[str]:
    if done:
        return
    try:
        told = msgspec.convert(payload, Envelope, strict=True)
    except msgspec.ValidationError as error:
        yield f"not an envelope: {error}"
        return
    if told.context.get("reason") in (None, "unexpected"):
        yield f"not foreseen: {told.context}"


def matrix(base: Path, moment: str, errors: Sequence[str], *, every: int = 1) -> list[Opening]:
    """Every `every`-th pair of a system call and an error, in an order that never changes."""
    openings = Openings(base, moment)
    pairs = [(site, error) for site in openings.sites() for error in errors]
    return [openings.run(site, error) for site, error in pairs[::every]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moment", action="append", choices=list(MOMENTS))
    parser.add_argument("--error", action="append", choices=ERRORS)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    if why := can_trace():
        print(why, file=sys.stderr)
        return 2
    began = time.monotonic()
    runs: list[Opening] = []
    for moment in options.moment or MOMENTS:
        with tempfile.TemporaryDirectory(prefix="perdure-opening-") as base:
            runs += matrix(Path(base), moment, options.error or ERRORS, every=options.every)
    seen = Counter((run.hit, run.error, run.answer) for run in runs if run.hit)
    for (hit, error, answer), count in sorted(seen.items()):
        print(f"{hit:26} {error:7} {answer:44} {count:5}")
    wrong = [run for run in runs if run.problems]
    met = sum(bool(run.hit) for run in runs)
    print(f"runs {len(runs)}  failures met {met}  {time.monotonic() - began:.0f} s")
    print(f"violations {len(wrong)}")
    for run in wrong:
        print(f"  {run.moment}: {run.site.call} {run.site.nth} ({run.site.target}) {run.error}")
        for problem in run.problems:
            print(f"    {run.hit or 'not met'}: {run.answer}: {problem[:300]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Every system call of a write fails once: what is answered must be true, and nothing may be lost, torn or stuck.

    python -m harness.syscalls.syscall_faults [--kind KIND]… [--durability journal|strict]… [--error EIO]… [--every N]
                                             [--lasting] [--kill]

A real worker makes each kind of change once under `strace`, which lists its system calls on the workspace and on our
own files. Then each of them fails, one per run, with each error; with `--lasting` from then on, until the answer. The
call must be refused with a typed envelope and the files as they were, or succeed with the files as they should be.
What was refused is sent again, without the failure, and must be done. In the end, or with `--kill` after each run, the
worker is killed: its successor must find the same files, nothing left lying about and an unbroken journal.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.crash.write_kinds import HUGE_KINDS, KINDS, Files, Kind, contents, found_in
from harness.syscalls.traced_worker import INJECTED, Site, Worker, can_trace, gives_up_a_lock, shown
from perdure.protocol.envelope import Envelope, ToolError
from perdure.storage.blobs import Blobs
from perdure.storage.errors import StorageError
from perdure.storage.journal import Filter
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.testing.raw_client import Ended
from perdure.workspace.contents import ContentStore

ERRORS: Final = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EINTR")
DURABILITIES: Final = ("journal", "strict")
_FULL: Final = ("ENOSPC", "EDQUOT")
_MAKING: Final = ("write", "pwrite64", "mkdirat", "linkat", "fsync", "fdatasync", "copy_file_range")
_NEVER_LASTING: Final = ("close", "fcntl", "flock", "read", "write")
"""A disk that fails still lets go of descriptors and locks, and is not the pipe that calls and answers go through."""
_STUCK: Final = "write_corruption not_taken_back"
"""Some of the files were changed when the disk failed for good. All of them are when it works again."""
_LOST: Final = (TimeoutError, Ended, KeyError)
ALL_ROWS: Final = 1_000_000


class Run(msgspec.Struct):
    """One change under one failure. `hit` is what really failed; empty where the call was never made."""

    kind: Kind
    folder: str
    site: Site
    error: str
    hit: str = ""
    answer: str = ""
    draft: str | None = None
    expected: Files = {}
    problems: list[str] = []


class Session:
    """Many runs on one workspace, judged one by one and once more after the end."""

    def __init__(self, base: Path, durability: str, *, lasting: bool = False, kill: bool = False) -> None:
        self.worker = Worker(base, durability)
        self.runs: list[Run] = []
        self._lasting = lasting
        self._kill = kill
        self._warm()

    def _warm(self) -> None:
        done, payload = self.worker.use("safe_write", {"path": "warm", "content": "x\n", "mode": "append"})
        assert done, payload

    def close(self) -> None:
        self.worker.close()

    def sites(self, kind: Kind) -> list[Site]:
        """What a change of this kind asks of the system, in order. A second one: the first pays for caches."""
        for name in ("a", "b"):
            folder = f"clean-{kind.name}-{name}"
            arguments = self._prepared(kind, folder)
            with self.worker.traced("-e", "trace=%file,%desc") as threads:
                done, payload = self.worker.use(kind.tool, arguments)
            assert done, payload
            assert kind.is_done(found_in(self.worker.workspace / folder)[0])
        # The number of reads from the pipe differs from run to run: a fault counted in reads could hit the pipe.
        return [s for s in self.worker.sites(threads) if not (kind.is_huge and s.call == "read")]

    def _prepared(self, kind: Kind, folder: str) -> dict[str, Any]:
        kind.prepare(self.worker.workspace / folder)
        first = kind.first_call(folder)
        if first is None:
            return kind.call(folder, None)
        done, payload = self.worker.use("edit", first)
        assert done, payload
        return kind.call(folder, payload["journal_id"])

    def run(self, kind: Kind, site: Site, error: str) -> Run:
        """One change, with one system call failing."""
        run = Run(kind, f"r{len(self.runs)}", site, error)
        self.runs.append(run)
        arguments = self._prepared(kind, run.folder)
        run.expected, _ = found_in(self.worker.workspace / run.folder)
        when = f"{site.nth}+" if self._lasting else f"{site.nth}"
        fault = f"inject={site.call}:error={error}:when={when}"
        try:
            with self.worker.traced("-e", f"trace={site.call}", "-e", fault, site=site) as threads:
                done, payload = self.worker.use(kind.tool, arguments)
        except _LOST as lost:
            return self._lost(run, f"no answer: {type(lost).__name__} {lost}")
        failed = next((line for one in threads for line in one.lines if INJECTED in line), "")
        run.hit = shown(failed)
        self._judge(run, done, payload)
        if self._kill or run.answer == _STUCK or gives_up_a_lock(failed):
            self._lost(run)
        else:
            self._go_on(run, arguments)
        return run

    def _judge(self, run: Run, done: bool, payload: dict[str, Any]) -> None:
        before = run.expected
        run.expected, _ = found_in(self.worker.workspace / run.folder)
        if done:
            run.answer = "done"
            run.problems += _of_success(run, before, payload)
        else:
            run.answer = f"{payload.get('error')} {payload.get('context', {}).get('reason')}"
            run.draft = payload.get("draft")
            run.problems += _of_refusal(run, before, payload, lasting=self._lasting)

    def _go_on(self, run: Run, arguments: dict[str, Any]) -> None:
        """The next write: what was refused is done when it is sent again; after what was done, another one."""
        tool = run.kind.tool
        if run.answer == "done":
            tool, arguments = "safe_write", {"path": f"{run.folder}/next", "content": "next"}
        try:
            done, payload = self.worker.use(tool, arguments)
        except _LOST as lost:
            self._lost(run, f"the next write got no answer: {type(lost).__name__}")
            return
        run.expected, _ = found_in(self.worker.workspace / run.folder)
        if not done:
            run.problems.append(f"the next write was refused: {payload}")
        elif run.answer != "done" and not run.kind.is_done(run.expected):
            run.problems.append("the next write is not there")

    def _lost(self, run: Run, *problems: str) -> Run:
        """A worker that is not to be used any more is replaced."""
        run.problems += problems
        self.worker.restart()
        self._warm()
        return run

    def finish(self) -> None:
        """Kill the worker; what its successor finds must be what was answered."""
        self.worker.restart()
        self._warm()
        journal = self.worker.journal()
        blobs = Blobs(self.worker.store / "blobs")
        try:
            broken = [f"journal: {problem.kind} {problem.detail}" for problem in journal.verify()]
            self.runs[-1].problems += broken
            journaled = {row.path.partition("/")[0] for row in journal.rows(Filter(), ALL_ROWS)}
            for run in self.runs:
                if run.answer == "done" and run.folder not in journaled:
                    run.problems.append("acknowledged, and not in the journal")
                run.problems += self._found_later(run, journal)
                run.problems += _of_draft(run, journal, ContentStore(journal, blobs))
        finally:
            blobs.close()
            journal.close()

    def _found_later(self, run: Run, journal: SqliteJournal) -> Iterator[str]:
        found, left = found_in(self.worker.workspace / run.folder)
        if run.answer == _STUCK and not run.kind.is_done(found):
            yield "a recovery did not complete what could not be taken back"
        if run.answer != _STUCK and contents(found) != contents(run.expected):
            yield "a recovery changed the files"
        if left:
            yield f"left lying about: {len(left)}"
        for name, content in contents(found).items():
            rows = journal.rows(Filter(path=f"{run.folder}/{name}"), 1)
            if rows and rows[0].new_sha != hashlib.sha256(content).digest():
                yield f"{name} is not what the journal says"


def _of_success(run: Run, before: Files, payload: dict[str, Any]) -> Iterator[str]:
    if not run.kind.is_done(run.expected):
        yield "acknowledged, and not done"
    for name, (mode, _) in before.items():
        if name in run.expected and run.expected[name][0] != mode and not payload.get("warnings"):
            yield f"{name} lost its mode unsaid"


def _of_refusal(run: Run, before: Files, payload: dict[str, Any], *, lasting: bool) -> Iterator[str]:
    if contents(run.expected) != contents(before) and run.answer != _STUCK:
        yield "refused, and the files are not as they were"
    if run.expected != before and not lasting:
        yield "refused, and modes or directories are not as they were"
    try:
        told = msgspec.convert(payload, Envelope, strict=True)
    except msgspec.ValidationError as error:
        yield f"not an envelope: {error}"
        return
    if told.context.get("reason") in (None, "unexpected"):
        yield f"not foreseen: {told.context}"
    is_full = run.error in _FULL and run.site.call in _MAKING and run.hit and run.answer != _STUCK
    if is_full and told.error != "quota_exceeded":
        yield f"a full disk was called {told.error}"


def _of_draft(run: Run, journal: SqliteJournal, store: ContentStore) -> Iterator[str]:
    if run.draft is None:
        return
    kept = journal.draft(run.draft)
    if kept is None:
        yield "a draft was promised that is not there"
        return
    try:
        store.load(kept.sha.hex())
    except (ToolError, StorageError) as error:
        yield f"a draft was promised that cannot be read: {error}"


def matrix(
    base: Path,
    kinds: Iterable[Kind],
    durability: str,
    errors: Sequence[str],
    *,
    every: int = 1,
    lasting: bool = False,
    kill: bool = False,
) -> list[Run]:
    """Every `every`-th pair of a system call and an error, in an order that never changes."""
    session = Session(base, durability, lasting=lasting, kill=kill)
    try:
        number = 0
        for kind in kinds:
            for site in session.sites(kind):
                for error in errors:
                    if number % every == 0 and not (lasting and _never_lasts(site, error)):
                        session.run(kind, site, error)
                    number += 1
        session.finish()
    finally:
        session.close()
    return session.runs


def _never_lasts(site: Site, error: str) -> bool:
    """Nor is a call interrupted for ever: whoever is interrupted tries again."""
    return site.call in _NEVER_LASTING or error == "EINTR"


def table(runs: Iterable[Run]) -> Iterator[str]:
    """What failed, how, and what was answered, with how often."""
    seen: Counter[tuple[str, str, str]] = Counter((run.hit, run.error, run.answer) for run in runs if run.hit)
    for (hit, error, answer), count in sorted(seen.items()):
        yield f"{hit:26} {error:7} {answer:44} {count:5}"


def main() -> int:
    kinds = (*KINDS, *HUGE_KINDS)
    names = [kind.name for kind in kinds]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", action="append", choices=names)
    parser.add_argument("--durability", action="append", choices=DURABILITIES)
    parser.add_argument("--error", action="append", choices=ERRORS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--lasting", action="store_true", help="the call goes on failing until the answer")
    parser.add_argument("--kill", action="store_true", help="after each run")
    options = parser.parse_args()
    if why := can_trace():
        print(why, file=sys.stderr)
        return 2
    began = time.monotonic()
    runs: list[Run] = []
    errors, how = options.error or ERRORS, {"lasting": options.lasting, "kill": options.kill}
    for durability in options.durability or DURABILITIES:
        for kind in kinds:
            if kind.name in (options.kind or names):
                with tempfile.TemporaryDirectory(prefix="perdure-syscalls-") as base:
                    runs += matrix(Path(base), [kind], durability, errors, every=options.every, **how)
    for line in table(runs):
        print(line)
    wrong = [run for run in runs if run.problems]
    refused = sum(run.answer not in ("", "done") for run in runs)
    met = sum(bool(run.hit) for run in runs)
    print(f"runs {len(runs)}  failures met {met}  refused {refused}  {time.monotonic() - began:.0f} s")
    print(f"violations {len(wrong)}")
    for run in wrong:
        print(f"  {run.kind.name}: {run.site.call} {run.site.nth} ({run.site.target}) {run.error}")
        for problem in run.problems:
            print(f"    {run.hit or 'not met'}: {run.answer}: {problem[:300]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

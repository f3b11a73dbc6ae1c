"""Seeded bugs of the time machine: `python -m harness.timeline.seeded_bugs [NAME]…` runs the trial that must find each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from harness.seeded_bugs import Function, SeededBugs, do_nothing, replace, wrap
from perdure.cli import hook_journal
from perdure.platform.files import open_beneath
from perdure.storage.journal import Row
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.storage.timeline import CallRecord
from perdure.workspace.contents import ContentStore
from perdure.workspace.recovery import recover
from perdure.workspace.timeline import change_rows, observation, scan
from perdure.workspace.timeline.attribution import Author, names
from perdure.workspace.timeline.call_log import CallLog
from perdure.workspace.timeline.observation import Observation
from perdure.workspace.timeline.planner import Plan, Planner
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.timeline.scan import Scanner
from perdure.workspace.timeline.watcher import FileWatcher
from perdure.workspace.undo import rewind

KILLS: Final = "kills --rounds 100 --seed 1"
AGENTS: Final = "agents --rounds 40 --seed 1"
CONDITIONS: Final = "conditions"
BUGS: Final = SeededBugs()


# --- kills ------------------------------------------------------------------------------------------------------------


@BUGS.add("tracked-first", KILLS)
def tracked_before_rows() -> None:
    """The tracked files are committed before the rows: a kill in between loses the changes."""

    def make(original: Function) -> Function:
        def look(self: Observation) -> None:
            original(self)
            files = [change.tracked for change in self._plan.changes if change.tracked is not None]
            if files:
                self._workspace.committer.transact(lambda: self._journal.track_files(files))

        return look

    wrap(Observation, "look", make)


@BUGS.add("contents-dropped", KILLS)
def contents_dropped() -> None:
    """The content of a removed file is dropped although its row names it."""
    replace(SqliteJournal, "keep_content", do_nothing)
    wrap(change_rows.RowWriter, "_append", _without_old_content)


def _without_old_content(original: Function) -> Function:
    def append(self: Any, change: Any, *more: Any) -> int:
        seq: int = original(self, change, *more)
        if change.after is None and change.before is not None and change.before.kind == "file":
            self._journal._write.execute("DELETE FROM contents WHERE sha = ?", (change.before.sha,))
        return seq

    return append


@BUGS.add("modes-forgotten", KILLS)
def modes_forgotten() -> None:
    """A change of permissions is no change."""

    def make(original: Function) -> Function:
        def plan(self: Any, entries: Any) -> Plan:
            found: Plan = original(self, entries)
            kept = [
                change
                for change in found.changes
                if change.before is None or change.after is None or change.before.sha != change.after.sha
            ]
            return found._replace(changes=kept)

        return plan

    wrap(Planner, "plan", make)


@BUGS.add("hook-fails-closed", KILLS)
def hook_fails_closed() -> None:
    """A hook that fails exits with 2, which blocks the call."""

    def make(original: Function) -> Function:
        def tell(message: str) -> None:
            original(message)
            os._exit(2)

        return tell

    wrap(hook_journal, "_tell", make)


@BUGS.add("silent-failure", KILLS)
def silent_failure() -> None:
    """A hook that fails does not say so."""
    replace(hook_journal, "_tell", do_nothing)


@BUGS.add("no-recovery", KILLS)
def no_recovery() -> None:
    """A killed undo is taken as done without a look at the files."""
    replace(recover, "_settle", lambda *_, **__: "settled")


@BUGS.add("ends-late", KILLS)
def ends_before_looking() -> None:
    """A call ends before the files are looked at, not after."""

    def make(original: Function) -> Function:
        def observe(self: Recorder, before: Any = None, after: Any = None) -> None:
            if before is not None:
                self._workspace.committer.transact(lambda: (before(), after()))
                after = None
            original(self, None, after)

        return observe

    wrap(Recorder, "_observe", make)


@BUGS.add("rewind-skips-others", KILLS)
def rewind_skips_others() -> None:
    """A rewind takes back the changes of clients only."""

    def make(original: Function) -> Function:
        def effective(rows: list[Row]) -> list[Row]:
            return [row for row in original(rows) if row.client != "another program"]

        return effective

    wrap(rewind, "_effective", make)


@BUGS.add("links-forgotten", KILLS)
def links_forgotten() -> None:
    """A new link is not recorded."""

    def make(original: Function) -> Function:
        def compare(self: Scanner, entry: Any, known: Any) -> None:
            if entry.kind == "link" and known is None:
                return
            original(self, entry, known)

        return compare

    wrap(Scanner, "_compare", make)


# --- agents -----------------------------------------------------------------------------------------------------------


@BUGS.add("first-call-only", AGENTS)
def first_call_only() -> None:
    """A change that several calls may have made is given to the first alone."""

    def make(original: Function) -> Function:
        def attribute(*args: Any) -> Author:
            found: Author = original(*args)
            return found._replace(calls=found.calls[:1])

        return attribute

    wrap(observation, "attribute", make)


@BUGS.add("names-ignored", AGENTS)
def names_ignored() -> None:
    """The paths that a command names do not tell calls apart."""

    def attribute(path: str, open_calls: Sequence[CallRecord], *_: Any) -> Author:
        return Author(tuple(open_calls))

    replace(observation, "attribute", attribute)


@BUGS.add("names-decide", AGENTS)
def names_decide() -> None:
    """A call that names nothing has no share in what another one names."""

    def make(original: Function) -> Function:
        def attribute(path: str, *args: Any) -> Author:
            found: Author = original(path, *args)
            naming = tuple(call for call in found.calls if names(call, path))
            return found._replace(calls=naming or found.calls)

        return attribute

    wrap(observation, "attribute", make)


@BUGS.add("left-for-later", AGENTS)
def left_for_later() -> None:
    """A file that changes while a call ends is left for the next observation."""
    replace(Observation, "_plan_again", lambda *_: Plan([], [], [], [], {}, []))


@BUGS.add("whole-session-stops", AGENTS)
def end_of_one_ends_all() -> None:
    """The end of one call ends the calls of all agents of its session."""

    def make(original: Function) -> Function:
        def end(self: CallLog, event: Any) -> None:
            original(self, event)
            self.abandon(event, whole_session=True)

        return end

    wrap(CallLog, "end", make)


# --- conditions -------------------------------------------------------------------------------------------------------


@BUGS.add("unreadable", CONDITIONS + " --only few_files")
def out_of_descriptors_is_unreadable() -> None:
    """A file that cannot be opened for want of a descriptor is taken for an unreadable one."""

    def open_folder(root: Any, path: str) -> int:
        return open_beneath(root.fd, path or ".", scan._FOLDER)

    replace(scan, "open_folder", open_folder)


@BUGS.add("watch-by-name", CONDITIONS + " --only remade_folder")
def watched_by_name() -> None:
    """A folder that was made anew under the same name is taken for the watched one."""

    def make(original: Function) -> Function:
        def collect(self: Recorder) -> None:
            original(self)
            self._is_watch_stale = False

        return collect

    wrap(Recorder, "_collect_changes", make)


@BUGS.add("events-dropped", CONDITIONS + " --only git_clean")
def events_dropped() -> None:
    """The events of the file system are lost, and nobody notices."""
    replace(FileWatcher, "drain", lambda *_: set())


@BUGS.add("times-only", CONDITIONS + " --only same_times")
def times_only() -> None:
    """A file counts as unchanged as long as its size and mtime are the same."""

    def is_unchanged(known: Any, info: os.stat_result) -> bool:
        return bool(known.mtime_ns == info.st_mtime_ns and known.size == info.st_size)

    replace(scan, "_is_unchanged", is_unchanged)


@BUGS.add("error-acknowledged", CONDITIONS + " --only errors")
def error_acknowledged() -> None:
    """A failed transaction of an observation is acknowledged."""

    def make(original: Function) -> Function:
        def observe(self: Recorder, *args: Any, **options: Any) -> None:
            with suppress(Exception):
                original(self, *args, **options)

        return observe

    wrap(Recorder, "_observe", make)


@BUGS.add("blobs-missing", CONDITIONS + " --only errors")
def blobs_missing() -> None:
    """Large contents are recorded and not kept."""

    def make(original: Function) -> Function:
        def take_file(self: ContentStore, fd: int) -> Any:
            content = original(self, fd)
            self._blobs.delete(content.sha256, written_before=time.time() + 1)
            return content

        return take_file

    wrap(ContentStore, "take_file", make)


def is_found(bug: str) -> bool:
    """Whether the trial of a bug finds something wrong, and does not break down itself."""
    trial, *options = BUGS[bug].trial.split()
    command = [sys.executable, "-m", f"harness.timeline.{trial}", *options, "--bug", bug]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode == 1 and "Traceback" not in done.stdout + done.stderr


def main() -> int:
    missed = []
    for name in sys.argv[1:] or BUGS:
        found = is_found(name)
        print(f"{name}: {'found' if found else 'NOT FOUND'}: {BUGS[name].description}", flush=True)
        missed += [] if found else [name]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The recorder of the time machine: it observes the workspace around each call and records what changed.

    lock out other observations ─▶ observe ─▶ one transaction: rows, tracked files, calls

An observation that fails leaves the tracked files as they were, so the next one finds the same changes again.
Contents of files are durable before the rows that name them, and before a hook that runs ahead of a call returns.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from perdure.platform.fault_points import passed, point
from perdure.platform.locks import lock_within
from perdure.storage.errors import LockTimeout
from perdure.storage.journal import Digest
from perdure.storage.process_lock import open_lock_file
from perdure.workspace.jobs import Job
from perdure.workspace.retention import FRESH_S
from perdure.workspace.timeline.call_log import CallLog, clean
from perdure.workspace.timeline.coverage import Coverage
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.observation import Observation
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.timeline.tracked import TrackedFiles
from perdure.workspace.workspace import Workspace

log = logging.getLogger(__name__)

LOCK_S: Final = 8.0
"""How long an observation waits for another one: less than a hook waits for a worker, and than its watchdog."""
MOST_CHANGED: Final = 5_000
"""Above this many changed paths the whole workspace is looked through."""

Step = Callable[[], object]


class ChangeSource(Protocol):
    def drain(self) -> set[str] | None:
        """The paths that have changed since the last call; None where that is not known."""

    def close(self) -> None: ...


class Recorder:
    """For one open workspace. `clock` is the time of day, in seconds.

    A recorder that lives long is given `watch`, which watches folders of the workspace: then an observation looks only at
    what has changed there. Such a recorder is used by one thread."""

    def __init__(
        self,
        workspace: Workspace,
        settings: TimelineSettings | None = None,
        clock: Callable[[], float] = time.time,
        watch: Callable[[Iterable[str]], ChangeSource] | None = None,
    ) -> None:
        self._workspace = workspace
        self._journal = workspace.journal
        self._settings = settings or workspace.timeline
        self._clock = clock
        self._coverage = Coverage(self._settings, workspace.roots.protection.private)
        self.calls = CallLog(workspace.journal, workspace.roots, clock)
        self._lock_path = os.path.join(workspace.folder, "observation.lock")
        self._tracked = TrackedFiles(workspace.journal)
        self._watch = watch
        self._watcher: ChangeSource | None = None
        self._watched: frozenset[str] = frozenset()
        self._is_watch_stale = False  # a watched folder may have been removed, or replaced by another
        self._unobserved: set[str] | None = None  # what has changed; None: look at everything

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, event: HookEvent) -> None:
        """Record what an event of a client's hook tells. Raises ToolError, StorageError or OSError where that
        fails."""
        if not self._settings.enabled:
            return
        event = clean(event)
        match event.kind:
            case "before_tool":
                self._begin(event)
            case "after_tool" | "failed_tool":
                self._end(event)
            case "prompt":
                self._observe(after=lambda: self.calls.begin_turn(event))
            case "batch_end":
                if self.calls.has_open(event):
                    self._observe(after=lambda: self.calls.abandon(event, whole_session=False))
            case "agent_stop":
                self._observe(after=lambda: self.calls.abandon(event, whole_session=False))
            case "session_start" | "session_end":
                self._observe(after=lambda: self.calls.abandon(event, whole_session=True))

    def observe(self) -> None:
        """Record what changed since the last observation. Not on the commit thread, which it waits for."""
        if self._settings.enabled:
            self._observe()

    def _begin(self, event: HookEvent) -> None:
        if not event.may_change_files or (event.host is not None and self.calls.has_hook(event)):
            return
        call = self.calls.new_call(event)
        if event.own_tool is not None:  # it writes its own rows
            self._workspace.committer.transact(lambda: self._journal.begin_call(call))
        else:
            self._observe(after=lambda: self._journal.begin_call(call))

    def _end(self, event: HookEvent) -> None:
        if not event.may_change_files or (event.host is not None and self.calls.has_hook(event)):
            return
        if event.own_tool is not None:
            self._workspace.committer.transact(lambda: self.calls.link_own_rows(event))
            return

        def begin_unseen() -> None:
            """The hook before the call did not come, or failed: what changed since the last observation is its."""
            if self.calls.find_open(event) is None:
                self._journal.begin_call(self.calls.new_call(event))

        self._observe(before=begin_unseen, after=lambda: self.calls.end(event))

    # --- observing -----------------------------------------------------------------------------------------

    def _observe(self, before: Step | None = None, after: Step | None = None) -> None:
        """`before` and `after` run in the transaction that records the changes, around it."""
        with self._only_observer():
            point("timeline.scan")
            self._tracked.load()
            self._collect_changes()
            observation = Observation(
                self._workspace, self._coverage, self._settings, self._clock, self._tracked, self._unobserved
            )
            try:
                observation.look()
                point("timeline.captured")
                if observation.has_news or before or after:
                    job = _RecordJob(self._workspace, lambda: self._record(observation, before, after))
                    self._workspace.committer.submit(job).result()
                    passed("timeline.recorded")
                    observation.update_tracked()
            except BaseException:
                self._tracked.forget()
                raise
            self._unobserved = set(observation.left)

    def maintain(self) -> None:
        """After a hook was answered, and while none comes: watch new folders, and take the events that wait."""
        if self._watch is None or len(self._workspace.roots) != 1 or not self._settings.enabled:
            return
        with self._only_observer():
            self._tracked.load()
            folders = self._tracked.folders()
            if folders == self._watched:
                self._collect_changes()
            is_stale = folders != self._watched or self._is_watch_stale
            if is_stale:
                self._renew_watch(folders)
        if is_stale:  # what changed in a new folder before it was watched
            self._observe()

    def _renew_watch(self, folders: frozenset[str]) -> None:
        self.close()
        assert self._watch is not None
        try:
            self._watcher = self._watch(folders)
        except (OSError, RuntimeError) as error:
            log.warning("the files are not watched, so each hook looks through all of them: %s", error)
        self._watched = folders
        self._is_watch_stale = False
        self._unobserved = None

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = None

    def _collect_changes(self) -> None:
        changed = self._watcher.drain() if self._watcher is not None else None
        if self._watcher is not None:
            self._is_watch_stale |= changed is None or not self._watched.isdisjoint(changed)
        if changed is None or self._unobserved is None:
            self._unobserved = None
        else:
            self._unobserved |= changed
            if len(self._unobserved) > MOST_CHANGED or any(map(_changes_coverage, self._unobserved)):
                self._unobserved = None

    def _record(self, observation: Observation, before: Step | None, after: Step | None) -> list[Digest]:
        """In the transaction. Returns the contents whose files are to be removed."""
        if before is not None:
            before()
        unneeded = observation.record()
        if after is not None:
            after()
        self.calls.give_up_dead()
        return unneeded

    @contextmanager
    def _only_observer(self) -> Iterator[None]:
        """One observation at a time, in all processes: between two of them no call begins or ends."""
        fd = open_lock_file(self._lock_path)
        try:
            if not lock_within(fd, LOCK_S):
                raise LockTimeout("observation")
            yield
        finally:
            os.close(fd)


class _RecordJob(Job):
    """Contents that nothing names any more go after COMMIT; one that was written just now may be about to be named
    again."""

    def __init__(self, workspace: Workspace, work: Callable[[], list[Digest]]) -> None:
        super().__init__()
        self._workspace = workspace
        self._work = work

    def stage(self) -> None:
        self.result = self._work()

    def apply(self) -> None:
        before = time.time() - FRESH_S
        for sha in self.result:
            if not self._workspace.journal.has_content(sha):
                self._workspace.blobs.delete(sha.hex(), written_before=before)


def _changes_coverage(path: str) -> bool:
    return path.rpartition("/")[2] == ".gitignore" or path == ".git/info/exclude"

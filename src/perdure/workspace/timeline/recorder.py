"""The recorder of the time machine: it observes the workspace around each call and records what changed.

    lock out other observations ─▶ scan ─▶ read what is new ─▶ one transaction: rows, tracked files, calls

An observation that fails leaves the tracked files as they were, so the next one finds the same changes again.
Contents of files are durable before the rows that name them, and before a hook that runs ahead of a call returns.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, Protocol

import msgspec

from perdure import risk
from perdure.platform.fault_points import passed, point
from perdure.platform.locks import lock_within
from perdure.platform.process_tree import has_ended
from perdure.storage.errors import LockTimeout
from perdure.storage.journal import Digest, Row
from perdure.storage.process_lock import open_lock_file
from perdure.storage.timeline import CallRecord, NewCall, NotCovered, TrackedFile
from perdure.workspace.jobs import Job
from perdure.workspace.retention import FRESH_S
from perdure.workspace.timeline import git_head
from perdure.workspace.timeline.attribution import Author, attribute, command_words
from perdure.workspace.timeline.capture import Captured, ContentReader
from perdure.workspace.timeline.change_rows import Heads, RowWriter
from perdure.workspace.timeline.coverage import Coverage
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.git_objects import GitObjects, read_blobs
from perdure.workspace.timeline.observation import LARGE, Plan, PlannedChange, Planner, is_capture_pending
from perdure.workspace.timeline.partial_scan import PartialScanner
from perdure.workspace.timeline.scan import Entry, Scan, Scanner, examine, parents
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.timeline.tracked import TrackedFiles
from perdure.workspace.workspace import Workspace, new_transaction_id

log = logging.getLogger(__name__)

CAPTURE_S: Final = 5.0
"""How long an observation may take to capture files that were never seen before."""
LOCK_S: Final = 20.0
GIT_FILES: Final = 20_000
"""From so many files on, `capture = "auto"` makes no copy of what git has."""
BATCH_FILES: Final = 2000
BATCH_BYTES: Final = 32 << 20
DAY_US: Final = 86_400 * 1_000_000
UNSEEN_US: Final = 60 * 1_000_000
"""How far back the rows of an own tool can be whose beginning no hook told."""
ENDED_CALLS: Final = 200
"""How many ended calls are looked at for one whose process goes on in the background."""
COMMAND_MAX: Final = 4000
MOST_CHANGED: Final = 5_000
"""Above this many changed paths the whole workspace is looked through."""
MOST_REMOVED: Final = 20
NAME_MAX: Final = 200
MOST_PATHS: Final = 1000
_SCANNED_COMMAND: Final = 65_536
_MOST_NOT_COVERED: Final = 10_000
_ROW_ID: Final = re.compile(r"\b(?:journal|journal_id)\b\W{0,4}(\d{1,18})\b")
_TRANSACTION_ID: Final = re.compile(r"\bt_[0-9a-f]{16}\b")

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
        self._lock_path = os.path.join(workspace.folder, "observation.lock")
        self._tracked = TrackedFiles(workspace.journal)
        self._watch = watch
        self._watcher: ChangeSource | None = None
        self._watched: frozenset[str] = frozenset()
        self._unobserved: set[str] | None = None  # what has changed; None: look at everything

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, event: HookEvent) -> None:
        """Record what an event of a client's hook tells. Raises ToolError, StorageError or OSError where that
        fails."""
        if not self._settings.enabled:
            return
        event = _clean(event)
        match event.kind:
            case "before_tool":
                self._begin(event)
            case "after_tool" | "failed_tool":
                self._end(event)
            case "prompt":
                self._observe(after=lambda: self._begin_turn(event))
            case "batch_end":
                if any(_is_of_agent(call, event) for call in self._journal.open_calls()):
                    self._observe(after=lambda: self._abandon(event, whole_session=False))
            case "agent_stop":
                self._observe(after=lambda: self._abandon(event, whole_session=False))
            case "session_start" | "session_end":
                self._observe(after=lambda: self._abandon(event, whole_session=True))

    def observe(self) -> None:
        """Record what changed since the last observation. Not on the commit thread, which it waits for."""
        if self._settings.enabled:
            self._observe()

    def _begin(self, event: HookEvent) -> None:
        if not event.may_change_files:
            return
        call = self._new_call(event)
        if event.own_tool is not None:  # it writes its own rows
            self._workspace.committer.transact(lambda: self._journal.begin_call(call))
        else:
            self._observe(after=lambda: self._journal.begin_call(call))

    def _end(self, event: HookEvent) -> None:
        if not event.may_change_files:
            return
        if event.own_tool is not None:
            self._workspace.committer.transact(lambda: self._link_own_rows(event))
            return
        call = self._new_call(event)

        def begin_unseen() -> None:
            """The hook before the call did not come, or failed: what changed since the last observation is its."""
            if self._find_open(event) is None:
                self._journal.begin_call(call)

        self._observe(before=begin_unseen, after=lambda: self._end_call(event))

    def _new_call(self, event: HookEvent) -> NewCall:
        """Calls of Perdure's own tools have no transaction: their rows have one, or need none."""
        return NewCall(
            client=event.client,
            session=event.session,
            tool=event.tool or event.own_tool or "",
            txn=None if event.own_tool is not None else new_transaction_id(),
            agent=event.agent,
            turn=self._journal.current_turn(event.client, event.session),
            call_id=event.call_id,
            command=_shorten(_redact(event.command)) if event.command is not None else None,
            paths=self._named_paths(event),
            process=event.process,
        )

    def _find_open(self, event: HookEvent) -> CallRecord | None:
        """The call that an event is about: by the client's id of it, else the newest of the same agent and tool."""
        calls = [call for call in self._journal.open_calls() if _is_of_session(call, event)]
        if event.call_id is not None:
            calls = [call for call in calls if call.call_id == event.call_id]
        else:
            tool = event.tool or event.own_tool or ""
            calls = [call for call in calls if (call.agent, call.tool) == (event.agent, tool)]
        return calls[-1] if calls else None

    def _end_call(self, event: HookEvent) -> None:
        call = self._find_open(event)
        if call is None:
            return
        if call.seq is None and not call.paths:
            self._journal.forget_call(call.id)
        else:  # one that names paths may have left a process behind that changes them later
            self._journal.update_call(call.id, status="done")

    def _begin_turn(self, event: HookEvent) -> None:
        self._abandon(event, whole_session=False)
        self._journal.begin_turn(event.client, event.session)
        self._journal.forget_calls(int(self._clock() * 1_000_000) - DAY_US)

    def _abandon(self, event: HookEvent, *, whole_session: bool) -> None:
        """The ends of these calls will not come: of an agent that has stopped, or of all agents of a session."""
        for call in self._journal.open_calls():
            if _is_of_agent(call, event) or (whole_session and _is_of_session(call, event)):
                self._give_up(call)

    def _give_up(self, call: CallRecord) -> None:
        if call.seq is None and not call.paths:
            self._journal.forget_call(call.id)
        else:
            self._journal.update_call(call.id, status="unfinished")

    def _give_up_dead_calls(self) -> None:
        """Calls of a client that is gone, and those older than a day."""
        before = int(self._clock() * 1_000_000) - DAY_US
        for call in self._journal.open_calls():
            if call.begun < before or (call.process is not None and has_ended(call.process)):
                self._give_up(call)

    def _link_own_rows(self, event: HookEvent) -> None:
        call = self._find_open(event)
        since = call.begun if call is not None else int(self._clock() * 1_000_000) - UNSEEN_US
        if call is None:
            call = self._journal.begin_call(self._new_call(event))
        changes = list(self._own_changes(event.response, since))
        if not changes:
            self._journal.forget_call(call.id)
            return
        for number, row in enumerate(changes):
            if number:
                call = self._journal.begin_call(self._new_call(event))
            self._journal.update_call(call.id, status="done", seq=row.seq, txn=row.txn)

    def _own_changes(self, response: object, since: int) -> Iterator[Row]:
        """The first row of each change that a response of Perdure's own tools names and no other call has made. A response
        can name older rows, too: those that it lists, or has taken back."""
        seen: set[int] = set()
        for name in _named_ids(response):
            if name.startswith("t_"):
                rows = self._journal.transaction(name)
                row = rows[0] if rows else None
            else:
                row = self._journal.row(int(name))
                if row is not None and row.txn is not None:
                    row = self._journal.transaction(row.txn)[0]
            if row is None or row.ts < since or row.seq in seen:
                continue
            seen.add(row.seq)
            change = self._journal.change(str(row.seq))
            if change is not None and change.call is None:
                yield row

    def _named_paths(self, event: HookEvent) -> tuple[str, ...]:
        """The paths that the input of a call names, as rows name them; those outside of the workspace are left
        out."""
        words = [(path, event.cwd) for path in event.paths]
        if event.command is not None:
            words += command_words(_redact(event.command), event.cwd)
        found: dict[str, None] = {}
        for word, cwd in words[:MOST_PATHS]:
            named = self._journal_path(os.path.normpath(os.path.join(cwd, word)))
            if named and _is_text(named):
                found[named] = None
        return tuple(found)

    def _journal_path(self, absolute: str) -> str | None:
        parts = [part for part in absolute.split("/") if part]
        best: tuple[int, str] | None = None
        for number, root in enumerate(self._workspace.roots):
            inside = root.beneath(parts)
            if inside is not None and (best is None or len(inside) < best[0]):
                best = len(inside), (f"@{number}/" if number else "") + "/".join(inside)
        return best[1] if best is not None else None

    # --- observing -----------------------------------------------------------------------------------------

    def _observe(self, before: Step | None = None, after: Step | None = None) -> None:
        """`before` and `after` run in the transaction that records the changes, around it."""
        with self._only_observer():
            point("timeline.scan")
            self._tracked.load()
            self._collect_changes()
            observation = _Observation(
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
            is_stale = folders != self._watched
            if is_stale:
                self._renew_watch(folders)
            else:
                self._collect_changes()
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
        self._unobserved = None

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._watcher = None

    def _collect_changes(self) -> None:
        changed = self._watcher.drain() if self._watcher is not None else None
        if changed is None or self._unobserved is None:
            self._unobserved = None
        else:
            self._unobserved |= changed
            if len(self._unobserved) > MOST_CHANGED or any(map(_changes_coverage, self._unobserved)):
                self._unobserved = None

    def _record(self, observation: _Observation, before: Step | None, after: Step | None) -> list[Digest]:
        """In the transaction. Returns the contents whose files are to be removed."""
        if before is not None:
            before()
        unneeded = observation.record()
        if after is not None:
            after()
        self._give_up_dead_calls()
        return unneeded

    @contextmanager
    def _only_observer(self) -> Iterator[None]:
        """One observation at a time, in all processes: between two of them no call begins or ends."""
        fd = open_lock_file(self._lock_path)
        try:
            if not lock_within(fd, LOCK_S):
                raise LockTimeout
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


class _Observation:
    """One look at the workspace, and what is recorded of it."""

    def __init__(
        self,
        workspace: Workspace,
        coverage: Coverage,
        settings: TimelineSettings,
        clock: Callable[[], float],
        tracked: TrackedFiles,
        changed: set[str] | None,
    ) -> None:
        self._workspace = workspace
        self._journal = workspace.journal
        self._coverage = coverage
        self._settings = settings
        self._clock = clock
        self._all_tracked = tracked
        self._changed = changed
        self._captured: list[TrackedFile] = []
        self._tracking: list[TrackedFile] = []
        self._untracking: list[str] = []
        self.left: set[str] = set()
        """Paths that were changed while they were being recorded."""
        self._git: GitObjects | None = None
        self._reader = ContentReader(workspace.roots, workspace.store, settings.secrets)
        self._last = self._journal.last_observation()
        self._left_out = self._journal.not_covered()
        self._tracked = tracked.by_path
        self._heads = Heads(None, None)
        self._plan = Plan([], [], [], [], {})
        self._not_covered: list[NotCovered] = []
        self._scanner: PartialScanner | None = None

    @property
    def has_news(self) -> bool:
        plan = self._plan
        return bool(
            plan.changes
            or plan.refreshed
            or plan.untracked
            or self._last is None
            or self._last.head != self._heads.after
            or self._not_covered != self._left_out
        )

    def look(self) -> None:
        """Scan, read what differs, and capture what was never seen: durably, in transactions of its own."""
        deadline = time.monotonic() + CAPTURE_S
        head = git_head.read_head(self._workspace.roots[0].path)
        self._heads = Heads(self._last.head if self._last is not None else None, head)
        scan = self._scan(deadline)
        self._fetch_from_git(scan)
        planner = Planner(
            self._journal,
            self._reader,
            self._tracked,
            self._left_out,
            is_first=self._last is None,
            room=self._coverage.max_total - sum(file.size for file in self._tracked.values()),
            large_room=self._large_room(scan),
        )
        self._plan = planner.plan(scan)
        point("timeline.planned")
        if self._plan.unread and self._uses_git(scan):
            self._git = GitObjects(self._workspace.roots[0].path)
        pending = self._capture(self._plan.unread, self._plan.not_covered, deadline)
        places = {place.path: place for place in scan.not_covered} | self._plan.not_covered | pending
        if self._scanner is not None:
            places = self._scanner.unexamined(self._left_out) | places
        self._not_covered = _summarize(places.values())

    def _large_room(self, scan: Scan) -> int:
        """The store may hold the covered files and as much of their history."""
        if not any(entry.size > LARGE for entry in (*scan.new, *scan.differing)):
            return 0
        stored: int = self._workspace.committer.transact(self._journal.stored_bytes)
        return 2 * self._coverage.max_total - stored

    def _scan(self, deadline: float) -> Scan:
        unwalked = {
            place.path
            for place in self._left_out
            if place.reason == "not_yet" and not is_capture_pending(place)
        }
        is_bounded = self._last is None or bool(unwalked)

        def is_known(folder: str) -> bool:
            return self._last is not None and unwalked.isdisjoint((folder, *parents(folder), ""))

        if self._changed is not None and not is_bounded and len(self._workspace.roots) == 1:
            self._scanner = PartialScanner(
                self._workspace.roots,
                self._coverage,
                self._all_tracked,
                self._changed | self._all_tracked.racy(),
            )
            return self._scanner.run()
        return Scanner(
            self._workspace.roots,
            self._coverage,
            self._tracked,
            deadline if is_bounded else None,
            is_known,
        ).run()

    # --- first captures ------------------------------------------------------------------------------------

    def _capture(
        self,
        entries: list[Entry],
        reasons: dict[str, NotCovered],
        deadline: float,
    ) -> dict[str, NotCovered]:
        """Keep the contents of files that were never seen. Returns those that there was no time for."""
        waiting: dict[str, NotCovered] = {}
        batch: list[Captured] = []
        unread: list[TrackedFile] = []
        size = 0
        for entry in entries:
            if entry.kind == "directory":
                unread.append(entry.tracked(None, 0))
                continue
            if time.monotonic() > deadline:
                unread.append(entry.tracked(None, time.time_ns()))
                waiting[entry.path] = NotCovered(entry.path, "not_yet", 1)
                continue
            found = self._reader.read(entry)
            if isinstance(found, str):
                reasons[entry.path] = NotCovered(entry.path, found, 1)
            elif found is not None:
                batch.append(self._find_in_git(found))
                size += found.content.size if found.content.data is not None else 0
            if len(batch) >= BATCH_FILES or size > BATCH_BYTES:
                self._keep(batch, unread)
                batch, unread, size = [], [], 0
        if batch or unread:
            self._keep(batch, unread)
        return waiting

    def _keep(self, batch: list[Captured], unread: list[TrackedFile]) -> None:
        store, journal = self._workspace.store, self._journal
        batch = self._check_git(batch)

        def keep() -> None:
            kept = [one for one in batch if not one.was_kept or store.has(one.content.sha256)]
            for one in kept:
                if not one.was_kept and one.git_oid is None:
                    store.record(one.content, by_row=False)
            journal.track_files([one.tracked() for one in kept] + unread)
            self._captured += [one.tracked() for one in kept] + unread

        point("timeline.capture")
        self._workspace.committer.transact(keep)
        self._reader.release()

    # --- contents that git has -----------------------------------------------------------------------------

    def _uses_git(self, scan: Scan) -> bool:
        if self._settings.capture == "auto":
            return scan.files >= GIT_FILES
        return self._settings.capture == "git"

    def _find_in_git(self, captured: Captured) -> Captured:
        data = captured.content.data
        if self._git is None or data is None or captured.entry.kind != "file":
            return captured
        return captured._replace(git_oid=self._git.find_clean(captured.entry.path, data))

    def _check_git(self, batch: list[Captured]) -> list[Captured]:
        oids = [one.git_oid for one in batch if one.git_oid is not None]
        if self._git is None or not oids:
            return batch
        missing = self._git.find_missing(oids)
        return [one._replace(git_oid=None) if one.git_oid in missing else one for one in batch]

    def _fetch_from_git(self, scan: Scan) -> None:
        """Keep the contents of files that git had and that are changed or gone now."""
        paths = [entry.path for entry in (*scan.differing, *scan.outgrown)]
        files = [*map(self._tracked.__getitem__, paths), *scan.gone]
        wanted = {
            file.git_oid: file
            for file in files
            if file.git_oid is not None and file.sha is not None and not self._journal.has_content(file.sha)
        }
        batch: list[str] = []
        size = 0
        for oid, file in wanted.items():
            batch.append(oid)
            size += file.size
            if size > BATCH_BYTES:
                self._keep_blobs(batch, wanted)
                batch, size = [], 0
        if batch:
            self._keep_blobs(batch, wanted)

    def _keep_blobs(self, oids: list[str], wanted: dict[str, TrackedFile]) -> None:
        contents = [
            content
            for oid, data in read_blobs(self._workspace.roots[0].path, oids)
            if oid in wanted and (content := self._workspace.store.take(data)).digest == wanted[oid].sha
        ]
        if len(contents) < len(oids):
            log.warning("git no longer has the content of %d changed files", len(oids) - len(contents))

        def keep() -> None:
            for content in contents:
                self._workspace.store.record(content, by_row=False)

        self._workspace.committer.transact(keep)

    # --- recording -----------------------------------------------------------------------------------------

    def record(self) -> list[Digest]:
        """In the transaction, under the workspace's lock."""
        journal, plan = self._journal, self._plan
        changes = [change for change in plan.changes if self._is_still(change)]
        self.left = {change.path for change in plan.changes} - {change.path for change in changes}
        if changes:
            writer = RowWriter(
                journal, self._workspace.store, self._heads, self._removed_uncovered(), new_transaction_id
            )
            writer.write(changes, self._attribution())
        self._tracking = [change.tracked for change in changes if change.tracked is not None] + plan.refreshed
        self._untracking = [path for path in plan.untracked if path not in self.left]
        if self._tracking:
            journal.track_files(self._tracking)
        unneeded = journal.untrack_files(self._untracking) if self._untracking else []
        if self._not_covered != self._left_out:
            journal.set_not_covered(self._not_covered)
        if self._last is None or changes or self._last.head != self._heads.after:
            journal.record_observation(self._heads.after)
        point("timeline.commit")
        return unneeded

    def update_tracked(self) -> None:
        """After COMMIT."""
        self._all_tracked.apply(self._captured + self._tracking, self._untracking)

    def _removed_uncovered(self) -> list[str]:
        """What was named as not covered and is gone: `.git`, dependencies, large files. It cannot be brought back."""
        named = {place.path for place in self._not_covered}
        gone = (
            place.path
            for place in self._left_out
            if place.path not in named
            and place.reason in _CANNOT_RETURN
            and examine(self._workspace.roots, place.path) is None
        )
        return list(islice(gone, MOST_REMOVED))

    def _attribution(self) -> Callable[[str], Author]:
        open_calls = self._journal.open_calls()
        ended_calls = self._journal.ended_calls(ENDED_CALLS)
        now = int(self._clock() * 1_000_000)
        return lambda path: attribute(path, open_calls, ended_calls, now)

    def _is_still(self, change: PlannedChange) -> bool:
        """Whether nothing happened to the file since it was planned. If so it is left for the next observation."""
        last = self._journal.last_of(change.path)
        if (last.seq if last is not None else None) != change.last_seq:
            return False
        if (
            change.content is not None
            and change.content.was_kept
            and not self._workspace.store.has(change.content.content.sha256)
        ):
            return False
        try:
            info = examine(self._workspace.roots, change.path)
        except OSError:
            return False
        if change.entry is None:
            return info is None or (info.st_mode & 0o170000) not in _COVERED_KINDS
        return info is not None and change.entry.matches(info)


_CANNOT_RETURN: Final = ("git", "dependencies", "settings", "ignored", "too_large", "max_total")
_COVERED_KINDS: Final = (0o100000, 0o040000, 0o120000)


def _changes_coverage(path: str) -> bool:
    return path.rpartition("/")[2] == ".gitignore" or path == ".git/info/exclude"


def _is_of_session(call: CallRecord, event: HookEvent) -> bool:
    return (call.client, call.session) == (event.client, event.session)


def _is_of_agent(call: CallRecord, event: HookEvent) -> bool:
    return _is_of_session(call, event) and call.agent == event.agent


def _summarize(places: Iterable[NotCovered]) -> list[NotCovered]:
    """Single files that wait for their first capture are counted by their top folder; so are all files where there
    are very many."""
    counts: dict[tuple[str, str], int] = {}
    found: dict[str, NotCovered] = {}
    all_places = list(places)
    is_long = len(all_places) > _MOST_NOT_COVERED
    for place in all_places:
        is_pending = is_capture_pending(place)
        folder = place.path.partition("/")[0] if is_pending else place.path.rpartition("/")[0]
        is_single = place.files == 1 and (is_long or is_pending)
        if is_single and folder and folder != place.path:
            counts[folder, place.reason] = counts.get((folder, place.reason), 0) + 1
        else:
            found[place.path] = place
    for (folder, reason), count in counts.items():
        found.setdefault(folder, NotCovered(folder, reason, count))
    return [found[path] for path in sorted(found)]


def _clean(event: HookEvent) -> HookEvent:
    """An event whose names are text of a bounded length, as the journal can keep it."""

    def clean(text: str | None) -> str | None:
        return text[:NAME_MAX].encode("utf-8", "replace").decode() if text is not None else None

    return msgspec.structs.replace(
        event,
        client=clean(event.client),
        session=clean(event.session),
        agent=clean(event.agent),
        tool=clean(event.tool),
        call_id=clean(event.call_id),
    )


def _redact(command: str) -> str:
    """A command line without its secrets."""
    text = command[:_SCANNED_COMMAND].encode("utf-8", "replace").decode()
    return risk.redact(text, risk.scan(text))


def _shorten(command: str) -> str:
    return command if len(command) <= COMMAND_MAX else command[: COMMAND_MAX - 1] + "…"


def _named_ids(response: object) -> Iterator[str]:
    """The ids of rows and transactions in the answer of a tool: fields of its structured content, or words of its
    text."""
    pending: list[Any] = [response]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key in ("transaction_id", "journal_id"):
                name = value.get(key)
                if isinstance(name, str | int) and _is_id(str(name)):
                    yield str(name)
            ids = value.get("ids")
            yield from (str(name) for name in (ids if isinstance(ids, list) else ()) if _is_id(str(name)))
            pending += reversed(list(value.values()))
        elif isinstance(value, list | tuple):
            pending += reversed(value)
        elif isinstance(value, str):
            yield from _TRANSACTION_ID.findall(value)
            yield from _ROW_ID.findall(value)


def _is_id(text: str) -> bool:
    return bool(_TRANSACTION_ID.fullmatch(text)) or (text.isascii() and text.isdigit() and len(text) <= 18)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True

"""One observation of a workspace: what differs from the tracked files, and its record in the journal.

    scan ─▶ read what differs ─▶ capture what was never seen ─▶ under the workspace's lock: rows and tracked files

What was planned outside of the lock is checked again under it; a file that was changed in between is left for the next
observation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from perdure.platform.fault_points import point
from perdure.storage.journal import Digest
from perdure.storage.timeline import NotCovered, TrackedFile
from perdure.workspace.timeline import git_head
from perdure.workspace.timeline.attribution import Author, attribute
from perdure.workspace.timeline.capture import ContentReader
from perdure.workspace.timeline.change_rows import Heads, RowWriter
from perdure.workspace.timeline.coverage import Coverage
from perdure.workspace.timeline.first_capture import FirstCapture
from perdure.workspace.timeline.git_contents import fetch_from_git
from perdure.workspace.timeline.git_objects import GitObjects
from perdure.workspace.timeline.not_covered import CANNOT_RETURN, is_capture_pending, summarize
from perdure.workspace.timeline.partial_scan import PartialScanner
from perdure.workspace.timeline.planner import LARGE, Plan, PlannedChange, Planner
from perdure.workspace.timeline.scan import Scan, Scanner, examine, parents
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.timeline.tracked import TrackedFiles
from perdure.workspace.workspace import Workspace, new_transaction_id

CAPTURE_S: Final = 5.0
"""How long an observation may take to capture files that were never seen before."""
GIT_FILES: Final = 20_000
"""From so many files on, `capture = "auto"` makes no copy of what git has."""
ENDED_CALLS: Final = 200
"""How many ended calls are looked at for one whose process goes on in the background."""
MOST_REMOVED: Final = 20
_COVERED_KINDS: Final = (0o100000, 0o040000, 0o120000)


class Observation:
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
        self._tracking: list[TrackedFile] = []
        self._untracking: list[str] = []
        self.left: set[str] = set()
        """Paths that were changed while they were being recorded."""
        self._capture: FirstCapture | None = None
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
        fetch_from_git(self._workspace, self._tracked, scan)
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
        git = (
            GitObjects(self._workspace.roots[0].path) if self._plan.unread and self._uses_git(scan) else None
        )
        self._capture = FirstCapture(self._workspace, self._reader, git, deadline)
        pending = self._capture.run(self._plan.unread, self._plan.not_covered)
        places = {place.path: place for place in scan.not_covered} | self._plan.not_covered | pending
        if self._scanner is not None:
            places = self._scanner.unexamined(self._left_out) | places
        self._not_covered = summarize(places.values())

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

    def _uses_git(self, scan: Scan) -> bool:
        if self._settings.capture == "auto":
            return scan.files >= GIT_FILES
        return self._settings.capture == "git"

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
        captured = self._capture.tracked if self._capture is not None else []
        self._all_tracked.apply(captured + self._tracking, self._untracking)

    def _removed_uncovered(self) -> list[str]:
        """What was named as not covered and is gone: `.git`, dependencies, large files. It cannot be brought back."""
        named = {place.path for place in self._not_covered}
        gone = (
            place.path
            for place in self._left_out
            if place.path not in named
            and place.reason in CANNOT_RETURN
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

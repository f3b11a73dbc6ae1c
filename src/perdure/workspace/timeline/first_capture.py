"""Keeping the contents of files that were never seen before: in the store, or as the blobs in which git has them."""

from __future__ import annotations

import time
from typing import Final

from perdure.platform.fault_points import point
from perdure.storage.timeline import NotCovered, TrackedFile
from perdure.workspace.timeline.capture import Captured, ContentReader
from perdure.workspace.timeline.git_objects import GitObjects
from perdure.workspace.timeline.scan import Entry
from perdure.workspace.workspace import Workspace

BATCH_FILES: Final = 2000
BATCH_BYTES: Final = 32 << 20


class FirstCapture:
    """For one observation. What it captures is durable, in transactions of its own. `git` is given where contents that git
    has need no copy."""

    def __init__(
        self, workspace: Workspace, reader: ContentReader, git: GitObjects | None, deadline: float
    ) -> None:
        self._workspace = workspace
        self._reader = reader
        self._git = git
        self._deadline = deadline
        self.tracked: list[TrackedFile] = []

    def run(self, entries: list[Entry], reasons: dict[str, NotCovered]) -> dict[str, NotCovered]:
        """Keep the contents of files that were never seen. Returns those that there was no time for."""
        waiting: dict[str, NotCovered] = {}
        batch: list[Captured] = []
        unread: list[TrackedFile] = []
        size = 0
        for entry in entries:
            if entry.kind == "directory":
                unread.append(entry.tracked(None, 0))
                continue
            if time.monotonic() > self._deadline:
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
        store, journal = self._workspace.store, self._workspace.journal
        batch = self._check_git(batch)

        def keep() -> None:
            kept = [one for one in batch if not one.was_kept or store.has(one.content.sha256)]
            for one in kept:
                if not one.was_kept and one.git_oid is None:
                    store.record(one.content, by_row=False)
            journal.track_files([one.tracked() for one in kept] + unread)
            self.tracked += [one.tracked() for one in kept] + unread

        point("timeline.capture")
        self._workspace.committer.transact(keep)
        self._reader.release()

    def _find_in_git(self, captured: Captured) -> Captured:
        data = captured.content.data
        is_sealed = captured.content.sealed is not None
        if self._git is None or data is None or is_sealed or captured.entry.kind != "file":
            return captured
        return captured._replace(git_oid=self._git.find_clean(captured.entry.path, data))

    def _check_git(self, batch: list[Captured]) -> list[Captured]:
        oids = [one.git_oid for one in batch if one.git_oid is not None]
        if self._git is None or not oids:
            return batch
        missing = self._git.find_missing(oids)
        return [one._replace(git_oid=None) if one.git_oid in missing else one for one in batch]

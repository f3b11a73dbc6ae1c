"""A scan of the places that have changed, as a file watcher tells them, instead of the whole workspace."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from perdure.storage.timeline import NotCovered, TrackedFile
from perdure.workspace.paths.roots import Roots
from perdure.workspace.timeline.coverage import Coverage
from perdure.workspace.timeline.scan import Scan, Scanner, WalkedFolder, examine, open_folder
from perdure.workspace.timeline.tracked import TrackedFiles


class PartialScanner(Scanner):
    """`changed` are paths beneath the one root. A folder among them is looked through as a whole."""

    def __init__(
        self, roots: Roots, coverage: Coverage, tracked: TrackedFiles, changed: Iterable[str]
    ) -> None:
        self._tracked = tracked
        self._whole, self._listed = _select(roots, tracked, changed)
        super().__init__(roots, coverage, self._affected())
        self._walked: dict[str, WalkedFolder | None] = {}

    def run(self) -> Scan:
        for path in sorted(self._listed):
            if (folder := self._find(path)) is not None:
                self._list(folder)
        for path in sorted(self._whole):
            if (folder := self._find(path)) is not None:
                self._walk_from(self._roots[0], "", folder)
        return self._result()

    def unexamined(self, left_out: Iterable[NotCovered]) -> dict[str, NotCovered]:
        """Of what an earlier scan left out, the places that this one has not looked at."""
        return {
            place.path: place
            for place in left_out
            if place.path.rpartition("/")[0] not in self._listed
            and not _is_beneath_any(place.path, self._whole)
        }

    def _affected(self) -> dict[str, TrackedFile]:
        affected = {file.path: file for path in self._listed for file in self._tracked.children(path)}
        for path in self._whole:
            affected.update((file.path, file) for file in self._tracked.beneath(path))
        return affected

    def _list(self, folder: WalkedFolder) -> None:
        """One folder. Those in it that are not tracked yet are walked."""
        for inner in self._enter(self._roots[0], "", folder):
            if inner.path not in self._tracked.by_path and not _is_beneath_any(inner.path, self._whole):
                self._walk_from(self._roots[0], "", inner)

    def _find(self, path: str) -> WalkedFolder | None:
        """A folder as a walk from the root would meet it; None where that leaves it out, or where it is none."""
        if path in self._walked:
            return self._walked[path]
        found: WalkedFolder | None = None
        if not path:
            found = self._top(self._roots[0])
        else:
            above, _, name = path.rpartition("/")
            parent = self._find(above)
            if parent is not None and _is_folder(self._roots, path):
                found = self._folder("", path, name, self._with_patterns(parent), self._roots[0])
        self._walked[path] = found
        return found

    def _with_patterns(self, folder: WalkedFolder) -> WalkedFolder:
        try:
            fd = open_folder(self._roots[0], folder.path)
        except OSError:
            return folder
        try:
            return self._add_patterns(fd, folder)
        finally:
            os.close(fd)


def _select(roots: Roots, tracked: TrackedFiles, changed: Iterable[str]) -> tuple[set[str], set[str]]:
    """The folders to look through as a whole, and those to list."""
    whole: set[str] = set()
    listed: set[str] = set()
    for path in changed:
        if path == ".git" or path.startswith(".git/"):
            continue
        if not path:
            listed.add("")
            continue
        listed.add(path.rpartition("/")[0])
        known = tracked.by_path.get(path)
        if (known is not None and known.kind == "directory") or _is_folder(roots, path):
            whole.add(path)
    return whole, {path for path in listed if not _is_beneath_any(path, whole)}


def _is_beneath_any(path: str, folders: set[str]) -> bool:
    while path:
        if path in folders:
            return True
        path = path.rpartition("/")[0]
    return False


def _is_folder(roots: Roots, path: str) -> bool:
    try:
        info = examine(roots, path)
    except OSError:
        return False
    return info is not None and stat.S_ISDIR(info.st_mode)

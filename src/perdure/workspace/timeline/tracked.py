"""The tracked files in memory, for a recorder that lives longer than one observation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.storage.journal import Journal
from perdure.storage.timeline import TrackedFile
from perdure.workspace.timeline.scan import RACY


class TrackedFiles:
    """A copy of the journal's table. `load` reads it anew where another process has changed the table."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._version: int | None = None
        self._children: dict[str, set[str]] | None = None
        self._racy: set[str] = set()
        self.by_path: dict[str, TrackedFile] = {}

    def load(self) -> None:
        """Under the lock of observations."""
        version = self._journal.tracked_version()
        if version != self._version:
            self.by_path = {file.path: file for file in self._journal.tracked_files()}
            self._children = None
            self._racy = {path for path, file in self.by_path.items() if file.ctime_ns == RACY}
            self._version = version

    def forget(self) -> None:
        """What was planned did not happen, or only a part of it."""
        self._version = None

    def apply(self, tracked: Iterable[TrackedFile], untracked: Iterable[str]) -> None:
        """After COMMIT: the same changes as in the table."""
        for path in untracked:
            self._racy.discard(path)
            if self.by_path.pop(path, None) is not None and self._children is not None:
                self._children[_folder(path)].discard(path)
        for file in tracked:
            self.by_path[file.path] = file
            (self._racy.add if file.ctime_ns == RACY else self._racy.discard)(file.path)
            if self._children is not None:
                self._children.setdefault(_folder(file.path), set()).add(file.path)
        self._version = self._journal.tracked_version()

    def children(self, folder: str) -> list[TrackedFile]:
        """The files directly in a folder."""
        return [self.by_path[path] for path in self._index().get(folder, ())]

    def beneath(self, folder: str) -> Iterator[TrackedFile]:
        """All files in a folder, at any depth."""
        pending = [folder]
        while pending:
            for file in self.children(pending.pop()):
                yield file
                if file.kind == "directory":
                    pending.append(file.path)

    def folders(self) -> frozenset[str]:
        """All that are tracked, "" for the root."""
        return frozenset({"", *(file.path for file in self.by_path.values() if file.kind == "directory")})

    def racy(self) -> set[str]:
        """Files that were changed just before they were read: they are to be read again."""
        return set(self._racy)

    def _index(self) -> dict[str, set[str]]:
        if self._children is None:
            self._children = {}
            for path in self.by_path:
                self._children.setdefault(_folder(path), set()).add(path)
        return self._children


def _folder(path: str) -> str:
    return path.rpartition("/")[0]

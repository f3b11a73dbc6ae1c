"""One planned change of a file, made on disk or taken back."""

from __future__ import annotations

from perdure.storage.files.fingerprint import Expected
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.files.pending import Landed, PendingFile
from perdure.workspace import removal
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.paths.roots import Place


class FileChange:
    """One file from what it is to what it shall be; None stands for no file."""

    def __init__(
        self,
        place: Place,
        before: Expected | None,
        facts: FileMetadata | None,
        after: Content | None,
        old: Content | None = None,
        old_facts: FileMetadata | None = None,
    ) -> None:
        self.place = place
        self.before = before
        self.facts = facts
        self.after = after
        self.old = old
        self.old_facts = old_facts
        self.made: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.left: str | None = None
        self._pending: PendingFile | None = None

    def prepare(self, store: ContentStore, *, sync: bool) -> None:
        """Write the new file, without its name."""
        if self.after is None or self._pending is not None:
            return
        self.place.reopen()
        if self.place.missing:
            self.made = self.place.make_parents(sync=sync)
        self._pending = self._filled(self.after, self.facts, store, sync=sync)

    def apply(self, store: ContentStore, *, sync: bool) -> None:
        self.prepare(store, sync=sync)
        self.place.reopen()
        if (landed := self._put(self._pending, self.before, sync=sync)) is not None:
            self.warnings, self.left = landed.warnings, landed.left

    def revert(self, store: ContentStore, *, sync: bool) -> None:
        now = Expected(self.after.sha256) if self.after is not None else None
        self.place.reopen()
        back = self._filled(self.old, self.old_facts, store, sync=sync) if self.old is not None else None
        self._put(back, now, sync=sync)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.discard()
        self.place.close()

    def _filled(
        self, content: Content, facts: FileMetadata | None, store: ContentStore, *, sync: bool
    ) -> PendingFile:
        pending = PendingFile(self.place.dir_fd, self.place.name, like=facts, sync=sync)
        try:
            store.fill(pending, content)
            pending.seal()
        except BaseException:
            pending.discard()
            raise
        return pending

    def _put(self, pending: PendingFile | None, before: Expected | None, *, sync: bool) -> Landed | None:
        if pending is not None:
            with pending:
                return pending.create() if before is None else pending.replace_if(before)
        if before is not None:
            removal.remove(self.place.dir_fd, self.place.name, before, sync=sync)
        return None


def ancestors(path: str) -> list[str]:
    """The directories from a root to a file, the root itself as an empty path."""
    names = path.split("/")[:-1]
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]

"""One call's view of the files while it is planned: what is on disk, and what the call makes of it.

Planning happens under the workspace's lock and inside the journal's transaction. Several operations of one
call on one file see each other's results; each gets its row, and only the last content is put on disk.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_tool
from perdure.storage.errors import FileChanging, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.fingerprint import Expected, Identity, seen
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.journal import Digest, Journal, NewRow, Row
from perdure.workspace.apply import FileChange
from perdure.workspace.contents import INLINE, Content, ContentStore
from perdure.workspace.deferred import LARGE, DeferredWork
from perdure.workspace.jobs import Claims
from perdure.workspace.paths.roots import Directories, Place, Roots

T = TypeVar("T")

MOST_IN_MEMORY: Final = 64 * 1024 * 1024
DIRECTORIES_MAX: Final = 256
"""Held open by one call."""
_LOOKS: Final = ("read", "write")
"""What is there may have become unfit for writing; only to write is a path looked up that leads to nothing."""


class Sighting(NamedTuple):
    """What a session knows of a file after its call, and knew when that was planned."""

    path: str
    sha: Digest | None
    before: Digest | None


class Check(Protocol):
    """Refuses a file that must not be used now."""

    def __call__(self, path: str, *, deferred: DeferredWork) -> None: ...


class Captured(NamedTuple):
    """A file that was read. `was_kept`: its content was in the store already, and can have been dropped since."""

    expected: Expected
    content: Content
    was_kept: bool


class PlannedFile:
    """A file as it is on disk and as it will be after what was planned so far."""

    def __init__(self, path: str, place: Place, before: Expected | None, facts: FileMetadata | None) -> None:
        self.path = path
        self.place = place
        self.before = before
        self.facts = self.facts_on_disk = self.facts_told = facts
        self.old: Content | None = None
        self.now: Content | None = None
        self.changed = False

    @property
    def sha256(self) -> str | None:
        return self.now.sha256 if self.now is not None else None


class PlanView:
    """What one call plans. `journal_path` is how rows name files: as given for the first root, `@N/…` for others."""

    def __init__(
        self,
        roots: Roots,
        store: ContentStore,
        journal: Journal,
        claims: Claims,
        deferred: DeferredWork,
        *,
        check: Check,
        paths: frozenset[str],
        client: str,
        session: str,
    ) -> None:
        self._roots = roots
        self._store = store
        self._journal = journal
        self.claims = claims
        self.deferred = deferred
        self._check = check
        self._paths = paths
        self._client = client
        self._session = session
        self._known: dict[str, PlannedFile] = {}
        self._directories = Directories()
        self.rows: list[Row] = []

    def lookup(self, path: str, *, force: bool = False, follow: bool = True) -> PlannedFile:
        place = self._roots.locate(
            self._roots.anchored(path), force=force, follow=follow, directories=self._directories
        )
        name = journal_path(place)
        if name in self._known:
            place.close()
            return self._known[name]
        try:
            self._check(name, deferred=self.deferred)
            self.claims.claim(*_claimed(name, place))
            known = self._seen(name, place)
        except BaseException:
            place.close()
            raise
        self._known[name] = known
        if len(self._directories) > DIRECTORIES_MAX:
            place.close()  # it is opened again when the change is made
        return known

    def _seen(self, name: str, place: Place) -> PlannedFile:
        if place.found is None:
            return PlannedFile(name, place, None, None)
        fd = place.open()
        try:
            # Whatever is replaced can be had back, also what another program wrote.
            if os.fstat(fd).st_size >= LARGE:
                captured = self._captured(name, fd)
            else:
                captured = capture(self._store, fd)
            known = PlannedFile(name, place, captured.expected, metadata.capture(fd))
        finally:
            os.close(fd)
        known.now = known.old = captured.content
        return known

    def _captured(self, name: str, fd: int) -> Captured:
        """A large file, which was read outside the lock; nothing but its identity is looked at here, unless it was
        changed so recently that a second change would not show."""
        captured: Captured | None = self.deferred.find(_key(Identity.of(os.fstat(fd))))
        if captured is not None and (not captured.was_kept or self._store.has(captured.content.sha256)):
            identity = captured.expected.identity
            if (identity is not None and identity.is_settled) or captured.expected.matches(fd):
                return captured
        return self.deferred.request(("files", name), lambda: self._capture_all({name, *self._paths}))

    def _capture_all(self, paths: Iterable[str]) -> None:
        """Outside the lock: every large file that the call names."""
        for path in paths:
            # What is wrong with a path is said where it is planned.
            with (
                suppress(ToolError, StorageError),
                self._roots.locate(self._roots.anchored(path), force=True) as place,
            ):
                if place.found is not None and place.found.st_size >= LARGE:
                    self._capture(place)

    def _capture(self, place: Place) -> None:
        fd = place.open()
        try:
            captured = capture(self._store, fd)
            if captured.expected.identity is not None:
                self.deferred.add(_key(captured.expected.identity), captured)
        finally:
            os.close(fd)

    def absolute(self, known: PlannedFile) -> str:
        return self._roots.absolute(known.place)

    def data(self, known: PlannedFile) -> bytes:
        """Its whole content, in memory. Refused above `MOST_IN_MEMORY`."""
        if known.now is None:
            return b""
        check_in_memory(known.now.size, known.path)
        return b"".join(self._store.pieces(known.now))

    def derive(self, known: PlannedFile, name: str, work: Callable[[], T]) -> T:
        """What becomes of a file's content. Where that is no small one, the work is done outside the lock: its result is
        the same as long as the content is."""
        if known.now is None or known.now.size < INLINE:
            return work()
        return self.deferred.result((name, known.path, known.sha256), work)

    def stage(
        self,
        known: PlannedFile,
        after: Content | None,
        *,
        op: str,
        mode: str,
        key: str | None = None,
        txn: str | None = None,
        undoes: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> Row:
        """Plan one step of one file and write its row."""
        before = known.now
        if before is not None and not known.changed:
            self._store.record(before)
        if after is not None:
            self._store.record(after)
        facts = dict(detail or {})
        if known.facts is not None and (after is None or known.facts is not known.facts_on_disk):
            facts["file_mode"] = known.facts.mode  # cannot be read from the disk afterwards
            if after is not None and before is not None and _mode(known.facts_told) != known.facts.mode:
                facts["mode_before"] = _mode(known.facts_told)
        known.facts_told = known.facts
        row = self._journal.append(
            NewRow(
                path=known.path,
                op=op,
                mode=mode,
                old_sha=before.digest if before is not None else None,
                new_sha=after.digest if after is not None else None,
                bytes=after.size if after is not None else 0,
                client=self._client,
                session=self._session,
                key=key,
                txn=txn,
                undoes=undoes,
                detail=facts,
            )
        )
        self.rows.append(row)
        known.now = after
        known.changed = True
        return row

    def changed(self) -> list[PlannedFile]:
        """The files that a step was planned for."""
        return [known for known in self._known.values() if known.changed]

    def changes(self) -> list[FileChange]:
        """What must happen on disk. Files that end as they were are left alone."""
        found = []
        for known in self._known.values():
            same = (known.old.sha256 if known.old else None) == known.sha256
            if same and known.now is not None:
                same = _mode(known.facts) == _mode(known.facts_on_disk)
            if known.changed and not same:
                found.append(
                    FileChange(
                        known.place, known.before, known.facts, known.now, known.old, known.facts_on_disk
                    )
                )
            else:
                known.place.close()
        # Removals last: until everything new is there, nothing old is gone.
        return sorted(found, key=lambda change: change.after is None)

    def close(self) -> None:
        for known in self._known.values():
            known.place.close()

    def sightings(self) -> list[Sighting]:
        return [
            Sighting(
                known.path,
                known.now.digest if known.now else None,
                known.old.digest if known.old else None,
            )
            for known in self._known.values()
            if known.changed
        ]


def check_in_memory(size: int, path: str) -> None:
    """What is edited, merged or compared is held in memory."""
    if size > MOST_IN_MEMORY:
        raise refuse(
            "quota_exceeded",
            "too_large",
            f"{path} has {size:,} bytes; the limit for reading, editing and merging is {MOST_IN_MEMORY:,}.",
            next_step=call_tool("read", path=path, encoding="base64", max_bytes=262144),
            suggested_action="split",
            reason_hint="size_limit",
            path=path,
            bytes=size,
        )


def capture(store: ContentStore, fd: int) -> Captured:
    """Read an open file and see to it that its content is kept."""
    expected = seen(fd)
    was_kept = store.has(expected.sha256)
    content = store.find_or_mend(fd, expected.sha256) if was_kept else store.take_file(fd)
    if content.sha256 != expected.sha256:
        raise FileChanging
    return Captured(expected, content, was_kept)


def _key(identity: Identity) -> Hashable:
    return identity.dev, identity.ino, identity.size, identity.mtime_ns, identity.ctime_ns


def canonical(roots: Roots, path: str) -> str:
    """The journal's name for a file that may be gone, or whose name something else has by now."""
    for purpose in _LOOKS:
        try:
            with roots.locate(roots.anchored(path), purpose=purpose, force=True) as place:
                return journal_path(place)
        except ToolError as error:
            if error.envelope.context.get("reason") in ("special_file", "is_directory"):
                break
            if purpose == "write" or error.envelope.error != "not_found":
                raise
    return path


def _claimed(name: str, place: Place) -> Iterator[Hashable]:
    """One file has one claim under all its spellings, also where the file system does not tell cases apart."""
    yield unicodedata.normalize("NFC", name).casefold()
    if place.found is not None:
        yield place.found.st_dev, place.found.st_ino


def _mode(facts: FileMetadata | None) -> int | None:
    return facts.mode if facts is not None else None


def journal_path(place: Place) -> str:
    return place.path if place.root == 0 else f"@{place.root}/{place.path}"

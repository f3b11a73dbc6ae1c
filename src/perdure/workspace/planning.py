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
from perdure.storage.files.fingerprint import Expected, ExpectedEntry, ExpectedLink, Identity, seen
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.journal import Digest, Journal, NewRow, Row
from perdure.storage.timeline import FileKind
from perdure.workspace.apply import EntryChange, ancestors, entry_changes, in_order
from perdure.workspace.contents import INLINE, Content, ContentStore
from perdure.workspace.deferred import LARGE, DeferredWork
from perdure.workspace.entries import DIRECTORY, EntryState, kind_of, kinds_detail, look
from perdure.workspace.jobs import Claims
from perdure.workspace.paths.roots import Directories, Place, Roots
from perdure.workspace.timeline.overwritten import record_overwritten

T = TypeVar("T")

MOST_IN_MEMORY: Final = 64 * 1024 * 1024
DIRECTORIES_MAX: Final = 64
"""Held open by one call."""
IDLE_DIRECTORIES: Final = 8
IN_MEMORY_MAX: Final = 128
"""Of how many files one call holds the contents."""
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


class CheckOthers(Protocol):
    """Refuses a path that another client holds. Returns the tokens of reservations that a person overrides."""

    def __call__(self, path: str) -> tuple[int, ...]: ...


class Captured(NamedTuple):
    """A file that was read. `was_kept`: its content was in the store already, and can have been dropped since."""

    expected: Expected
    content: Content
    was_kept: bool


class PlannedFile:
    """A file, link or directory as it is on disk and as it will be after what was planned so far."""

    def __init__(
        self,
        path: str,
        place: Place,
        before: ExpectedEntry | None,
        facts: FileMetadata | None,
        kind: FileKind = "file",
    ) -> None:
        self.path = path
        self.place = place
        self.before = before
        self.facts = self.facts_on_disk = self.facts_told = facts
        self.kind = self.kind_on_disk = kind
        self.old: Content | None = None
        self.now: Content | None = None
        self.changed = False

    @property
    def sha256(self) -> str | None:
        return self.now.sha256 if self.now is not None else None

    @property
    def state(self) -> EntryState | None:
        return EntryState(self.kind, self.now.digest) if self.now is not None else None

    @property
    def is_directory(self) -> bool:
        return self.now is not None and self.kind == "directory"

    def forget_plan(self) -> None:
        """As it is on disk. For a plan that is tried first, and staged once it is known to fit."""
        self.now, self.kind, self.facts = self.old, self.kind_on_disk, self.facts_on_disk


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
        check_others: CheckOthers,
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
        self.check_others = check_others
        self._paths = paths
        self._client = client
        self._session = session
        self._known: dict[str, PlannedFile] = {}
        self.directories = Directories(IDLE_DIRECTORIES)
        self.rows: list[Row] = []

    def lookup(self, path: str, *, force: bool = False, follow: bool = True) -> PlannedFile:
        place = self._roots.locate(
            self._roots.anchored(path), force=force, follow=follow, directories=self.directories
        )
        name = journal_path(place)
        if name in self._known:
            place.close()
            return self._known[name]
        try:
            self._check(name, deferred=self.deferred)
            self.claims.claim(*_claimed(name, place))
            planned = self._seen(name, place)
        except BaseException:
            place.close()
            raise
        self._known[name] = planned
        if len(self.directories) > DIRECTORIES_MAX:
            place.close()  # it is opened again when the change is made
        return planned

    def lookup_entry(self, path: str) -> PlannedFile:
        """As `lookup`, for a path of a row: whichever kind of entry is there, and through no link."""
        if (planned := self._known.get(path)) is not None:
            return planned
        place = self._roots.locate_entry(path, directories=self.directories)
        try:
            self._check(path, deferred=self.deferred)
            self.claims.claim(*_claimed(path, place))
            planned = self._seen(path, place)
            if len(self._known) >= IN_MEMORY_MAX and planned.old is not None and planned.old.data is not None:
                # Its content is read again when it is needed.
                if not planned.old.is_kept:
                    self._store.record(planned.old)
                planned.now = planned.old = planned.old.without_data()
        except BaseException:
            place.close()
            raise
        self._known[path] = planned
        if len(self.directories) > DIRECTORIES_MAX:
            place.close()
        return planned

    def _seen(self, name: str, place: Place) -> PlannedFile:
        if place.found is None:
            return PlannedFile(name, place, None, None)
        kind = kind_of(place.found)
        if kind != "file":
            found = look(place)
            planned = PlannedFile(name, place, found.expected, found.facts, kind)
            target = found.expected.target if isinstance(found.expected, ExpectedLink) else None
            planned.now = planned.old = self._store.take(target) if target is not None else DIRECTORY
            return planned
        fd = place.open()
        try:
            # Every replaced content is kept for undo, also one that another program wrote.
            if os.fstat(fd).st_size >= LARGE:
                captured = self._captured(name, fd)
            else:
                captured = capture(self._store, fd)
            planned = PlannedFile(name, place, captured.expected, metadata.capture(fd))
        finally:
            os.close(fd)
        planned.now = planned.old = captured.content
        return planned

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

    def absolute(self, planned: PlannedFile) -> str:
        return self._roots.absolute(planned.place)

    def data(self, planned: PlannedFile) -> bytes:
        """Its whole content, in memory. Refused above `MOST_IN_MEMORY`."""
        if planned.now is None:
            return b""
        check_in_memory(planned.now.size, planned.path)
        return b"".join(self._store.pieces(planned.now))

    def derive(self, planned: PlannedFile, name: str, work: Callable[[], T]) -> T:
        """What becomes of a file's content. Where that is no small one, the work is done outside the lock: its result is
        the same as long as the content is."""
        if planned.now is None or planned.now.size < INLINE:
            return work()
        return self.deferred.result((name, planned.path, planned.sha256), work)

    def stage(
        self,
        planned: PlannedFile,
        after: Content | None,
        *,
        op: str,
        mode: str,
        key: str | None = None,
        txn: str | None = None,
        undoes: int | None = None,
        detail: dict[str, Any] | None = None,
        kind: FileKind | None = None,
    ) -> Row:
        """Plan one step of one file and write its row. `kind` is what it becomes, if that is not what it is."""
        if not planned.changed:
            self._record_overwritten(planned)
        overridden = self.check_others(planned.path)
        before, kind_before = planned.now, planned.kind
        kind = kind or planned.kind
        if before is not None and not planned.changed:
            self._store.record(before)
        if after is not None:
            self._store.record(after)
        facts = dict(detail or {})
        if overridden:
            facts["overridden_reservations"] = overridden
        facts |= kinds_detail(kind_before if before else None, kind if after else None)
        if planned.facts is not None and (after is None or planned.facts is not planned.facts_on_disk):
            facts["file_mode"] = planned.facts.mode  # cannot be read from the disk afterwards
            if after is not None and before is not None and _mode(planned.facts_told) != planned.facts.mode:
                facts["mode_before"] = _mode(planned.facts_told)
        if (
            before is not None
            and after is not None
            and kind != kind_before
            and planned.facts_told is not None
        ):
            facts["mode_before"] = planned.facts_told.mode
        planned.facts_told = planned.facts
        row = self._journal.append(
            NewRow(
                path=planned.path,
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
        planned.now = after
        planned.kind = kind
        planned.changed = True
        return row

    def _record_overwritten(self, planned: PlannedFile) -> None:
        found = planned.old
        record_overwritten(
            self._journal,
            planned.path,
            EntryState(planned.kind_on_disk, found.digest) if found is not None else None,
            found.size if found is not None else 0,
            _mode(planned.facts_on_disk),
        )

    def changed(self) -> list[PlannedFile]:
        """The files that a step was planned for."""
        return [planned for planned in self._known.values() if planned.changed]

    def planned(self) -> Iterable[PlannedFile]:
        """Everything that was looked up."""
        return self._known.values()

    def find(self, path: str) -> PlannedFile | None:
        """What was looked up under this path."""
        return self._known.get(path)

    def changes(self) -> list[EntryChange]:
        """What must happen on disk, in order. Files that end as they were are left alone."""
        found: list[EntryChange] = []
        for planned in self._known.values():
            same = (planned.old.sha256 if planned.old else None) == planned.sha256
            if same and planned.now is not None:
                same = planned.kind == planned.kind_on_disk
                same = same and (
                    planned.kind == "link" or _mode(planned.facts) == _mode(planned.facts_on_disk)
                )
            if planned.changed and not same:
                found += entry_changes(
                    planned.place,
                    planned.before,
                    planned.facts,
                    planned.now,
                    planned.old,
                    planned.facts_on_disk,
                    kind=planned.kind,
                    old_kind=planned.kind_on_disk,
                )
            else:
                planned.place.close()
        made = {(one.place.root, one.place.path) for one in found if one.makes_directory}
        if made:
            for change in found:
                parents = ((change.place.root, folder) for folder in ancestors(change.place.path))
                change.waits_for_parent = any(parent in made for parent in parents)
        return in_order(found)

    def close(self) -> None:
        for planned in self._known.values():
            planned.place.close()
        self.directories.close()

    def sightings(self) -> list[Sighting]:
        return [
            Sighting(
                planned.path,
                planned.now.digest if planned.now else None,
                planned.old.digest if planned.old else None,
            )
            for planned in self._known.values()
            if planned.changed
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

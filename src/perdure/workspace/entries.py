"""The kinds of entries in a workspace: regular files, symbolic links, directories; as rows tell of them, and on disk.

A link's content is its target, a directory's is empty. A row's detail has `kind` for what is no regular file, and
`kind_before` where the entry was of another kind.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from perdure.platform import directories
from perdure.present.tool_errors import os_refusal
from perdure.storage.digest import sha256_of
from perdure.storage.files import metadata
from perdure.storage.files.fingerprint import (
    Expected,
    ExpectedDirectory,
    ExpectedEntry,
    ExpectedLink,
    seen,
)
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.files.swap import list_directory, open_if_regular, read_link
from perdure.storage.journal import Digest, Row
from perdure.storage.timeline import FileKind
from perdure.text.printable import make_printable
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.paths.roots import Place

DIRECTORY: Final = Content(hashlib.sha256(b"").hexdigest(), 0, b"")


class EntryState(NamedTuple):
    """The kind and content of the entry at a name, without its mode."""

    kind: FileKind
    sha: Digest


class Look(NamedTuple):
    """What was found at a place."""

    state: EntryState | None
    expected: ExpectedEntry | None
    facts: FileMetadata | None


def state_before(row: Row) -> EntryState | None:
    if row.old_sha is None:
        return None
    return EntryState(row.detail.get("kind_before", row.detail.get("kind", "file")), row.old_sha)


def state_after(row: Row) -> EntryState | None:
    return EntryState(row.detail.get("kind", "file"), row.new_sha) if row.new_sha is not None else None


def mode_before(row: Row) -> int | None:
    """The mode before a row's change, where the row keeps it."""
    found = row.detail.get("mode_before", row.detail.get("file_mode") if row.new_sha is None else None)
    return int(found) if found is not None else None


def kind_of(info: os.stat_result) -> FileKind:
    """Of an entry that `Roots.locate_entry` found: it refuses every other kind."""
    if stat.S_ISLNK(info.st_mode):
        return "link"
    return "directory" if stat.S_ISDIR(info.st_mode) else "file"


def kinds_detail(before: FileKind | None, after: FileKind | None) -> dict[str, Any]:
    """What a row keeps of the kinds. None stands for nothing."""
    kind = after or before or "file"
    detail: dict[str, Any] = {"kind": kind} if kind != "file" else {}
    if before is not None and before != kind:
        detail["kind_before"] = before
    return detail


def look(place: Place) -> Look:
    """Read what is at a place."""
    if place.found is None:
        return Look(None, None, None)
    match kind_of(place.found):
        case "link":
            target = link_target(place)
            return Look(EntryState("link", hashlib.sha256(target).digest()), ExpectedLink(target), None)
        case "directory":
            return Look(
                EntryState("directory", DIRECTORY.digest), ExpectedDirectory(), directory_facts(place)
            )
        case "file":
            fd = place.open()
            try:
                expected = seen(fd)
                state = EntryState("file", bytes.fromhex(expected.sha256))
                return Look(state, expected, metadata.capture(fd))
            finally:
                os.close(fd)


def link_target(place: Place) -> bytes:
    try:
        target = read_link(place.dir_fd, place.name)
    except OSError as error:
        raise os_refusal(error, path=make_printable(place.path)) from None
    if target is None:
        raise os_refusal(BlockingIOError(), path=make_printable(place.path))
    return target


def directory_facts(place: Place) -> FileMetadata:
    assert place.found is not None
    return metadata.of_mode(stat.S_IMODE(place.found.st_mode))


def look_mode(place: Place) -> int | None:
    """The mode of the directory at a place; None where there is none."""
    if place.found is None or kind_of(place.found) != "directory":
        return None
    return stat.S_IMODE(place.found.st_mode)


def names_in(place: Place) -> Iterable[str]:
    """The entries of the directory at a place; of one that cannot be listed, one that no program made."""
    try:
        return list_directory(place.dir_fd, place.name)
    except PermissionError:
        return ("",)
    except OSError as error:
        raise os_refusal(error, path=make_printable(place.path)) from None


def expectation(content: Content | None, kind: FileKind, store: ContentStore) -> ExpectedEntry | None:
    """What should be at a place that was made so."""
    if content is None:
        return None
    match kind:
        case "file":
            return Expected(content.sha256)
        case "link":
            return ExpectedLink(b"".join(store.pieces(content)))
        case "directory":
            return ExpectedDirectory()


def content_of(state: EntryState | None, store: ContentStore) -> Content | None:
    """From the store; a directory has none. Raises a `not_found` where it is not kept."""
    if state is None:
        return None
    return DIRECTORY if state.kind == "directory" else store.find_kept(state.sha.hex())


def state_at(dir_fd: int, name: str) -> EntryState | None:
    """The state of the entry at a name; None if there is none, or if it is neither file, link nor directory."""
    try:
        info = directories.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(info.st_mode):
        return EntryState("directory", DIRECTORY.digest)
    if stat.S_ISLNK(info.st_mode):
        target = read_link(dir_fd, name)
        return EntryState("link", hashlib.sha256(target).digest()) if target is not None else None
    file = open_if_regular(dir_fd, name)
    if file is None:
        return None
    with file:
        return EntryState("file", bytes.fromhex(sha256_of(file.fileno())))

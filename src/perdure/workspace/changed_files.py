"""The rows of one change as what became of each file: a file that was changed several times is one, and so is a move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from perdure.storage.journal import Digest, Row
from perdure.storage.timeline import FileKind

FileOp = Literal["create", "change", "delete", "rename", "mode", "link"]
_TYPES: Final[dict[FileKind, int]] = {"file": 0o100000, "link": 0o120000, "directory": 0o040000}


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file before and after a change. `source` is where it was moved from; modes are as git writes them, None where no
    row tells."""

    path: str
    source: str | None = None
    old_sha: Digest | None
    new_sha: Digest | None
    kind: FileKind = "file"
    kind_before: FileKind = "file"
    mode: int | None = None
    mode_before: int | None = None
    bytes: int

    @property
    def op(self) -> FileOp:
        if self.source is not None:
            return "rename"
        if self.new_sha is None:
            return "delete"
        if self.kind == "link":
            return "link"
        if self.old_sha is None:
            return "create"
        is_same = (self.old_sha, self.kind_before) == (self.new_sha, self.kind)
        return "mode" if is_same and self.mode is not None else "change"

    @property
    def git_mode(self) -> int | None:
        return _git_mode(self.kind, self.mode)

    @property
    def git_mode_before(self) -> int | None:
        return _git_mode(self.kind_before, self.mode_before)


def _git_mode(kind: FileKind, mode: int | None) -> int | None:
    """A link has no permissions of its own, in git as on Linux."""
    if kind == "link":
        return _TYPES[kind]
    return _TYPES[kind] | mode if mode is not None else None


def fold(rows: Iterable[Row]) -> list[ChangedFile]:
    """In the order in which they were first changed. A directory that came or went with a file in it is left out."""
    files: dict[str, ChangedFile] = {}
    sources: dict[str, str] = {}  # the new path by the old one
    for row in rows:
        files[row.path] = _extended(files.get(row.path), row)
        if (source := row.detail.get("moved_from")) is not None and row.new_sha is not None:
            sources[source] = row.path
    for source, path in sources.items():
        if (before := files.get(source)) is not None:
            files[path] = msgspec.structs.replace(
                files[path],
                source=source,
                old_sha=before.old_sha,
                kind_before=before.kind_before,
                mode_before=before.mode_before,
            )
    return [
        file
        for file in _without_implied(list(files.values()))
        if not (file.path in sources and file.new_sha is None)
    ]


def _extended(before: ChangedFile | None, row: Row) -> ChangedFile:
    """What was there before one row of the change, and what there is after the next."""
    kind: FileKind = row.detail.get("kind", "file")
    mode = row.detail.get("file_mode") if row.new_sha is not None else None
    if before is not None:
        return msgspec.structs.replace(
            before,
            new_sha=row.new_sha,
            kind=kind,
            mode=mode if mode is not None else before.mode,
            bytes=row.bytes,
        )
    return ChangedFile(
        path=row.path,
        old_sha=row.old_sha,
        new_sha=row.new_sha,
        kind=kind,
        kind_before=row.detail.get("kind_before", kind),
        mode=mode,
        # Of a file that is gone, `file_mode` is the mode that it had.
        mode_before=row.detail.get("mode_before" if row.new_sha is not None else "file_mode"),
        bytes=row.bytes,
    )


def _without_implied(files: list[ChangedFile]) -> list[ChangedFile]:
    came = _folders(file.path for file in files if file.old_sha is None or file.source is not None)
    went = _folders(file.path for file in files if file.new_sha is None)
    return [
        file
        for file in files
        if not (
            (file.kind == "directory" and file.old_sha is None and file.path in came)
            or (file.kind == "directory" and file.new_sha is None and file.path in went)
        )
    ]


def _folders(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found

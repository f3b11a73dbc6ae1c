"""The content of a file, link or directory as it is on disk now."""

from __future__ import annotations

import os

from perdure.platform.descriptors import pread
from perdure.protocol.envelope import ToolError
from perdure.storage.journal import Journal
from perdure.workspace.entries import kind_of, link_target
from perdure.workspace.paths.roots import Roots
from perdure.workspace.planning import check_in_memory


def read_file(roots: Roots, journal: Journal, path: str) -> bytes | None:
    """A link that has rows is not followed. None where there is nothing. Refused above `MOST_IN_MEMORY`."""
    last = journal.last_of(path)
    if last is not None and {"kind", "kind_before"} & last.detail.keys():
        return _read_entry(roots, path)
    try:
        with roots.locate(roots.anchored(path), purpose="read") as place:
            fd = place.open()
            try:
                check_in_memory(size := os.fstat(fd).st_size, path)
                return pread(fd, size, 0)
            finally:
                os.close(fd)
    except ToolError as error:
        if error.envelope.error == "not_found":
            return None
        raise


def _read_entry(roots: Roots, path: str) -> bytes | None:
    """Of a path that was a link or a directory: the target, nothing, or the content of a file."""
    with roots.locate_entry(path) as place:
        if place.found is None:
            return None
        match kind_of(place.found):
            case "link":
                return link_target(place)
            case "directory":
                return b""
            case "file":
                check_in_memory(place.found.st_size, path)
                fd = place.open()
                try:
                    return pread(fd, place.found.st_size, 0)
                finally:
                    os.close(fd)

"""Names that a caller may have meant: files like one that does not exist, and what is in a directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import islice
from typing import Final

from perdure.platform import directories
from perdure.present.tool_errors import os_refusal
from perdure.protocol.envelope import ToolError
from perdure.protocol.next_step import FILL, call_again, call_tool, either
from perdure.text.printable import make_printable

MOST_LOOKED_AT: Final = 1000
MOST_SHOWN: Final = 3
MOST_LISTED: Final = 5
_ALIKE: Final = 0.6
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})


def similar_files(root_fd: int, path: str) -> list[str]:
    """Files of the workspace with a similar name, the most similar first. Only so many files are looked at."""
    from difflib import SequenceMatcher  # here, since a worker starts without it

    folder, _, name = path.rpartition("/")
    stem, _, suffix = name.casefold().rpartition(".")
    matcher = SequenceMatcher(b=stem or suffix)
    ranked: list[tuple[float, str]] = []
    for candidate in islice(_files(root_fd), MOST_LOOKED_AT):
        inside, _, other = candidate.rpartition("/")
        other_stem, _, other_suffix = other.casefold().rpartition(".")
        matcher.set_seq1(other_stem or other_suffix)
        if matcher.real_quick_ratio() < _ALIKE or matcher.quick_ratio() < _ALIKE:
            continue
        if (score := matcher.ratio()) >= _ALIKE:
            ranked.append((score + (0.1 if inside == folder else 0.0), candidate))
    ranked.sort(key=lambda pair: (-pair[0], pair[1]))
    return [make_printable(candidate) for _, candidate in ranked[:MOST_SHOWN]]


def list_names(dir_fd: int, name: str) -> list[str]:
    """Some names in a directory, with a slash after those of directories."""
    try:
        fd = directories.open(name, os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW, dir_fd=dir_fd)
        try:
            with os.scandir(fd) as entries:
                some = list(islice(entries, MOST_LOOKED_AT))
                names = sorted(
                    entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "") for entry in some
                )
        finally:
            os.close(fd)
    except OSError:
        return []
    return [make_printable(entry) for entry in names if not entry.startswith(".")][:MOST_LISTED]


def _files(root_fd: int) -> Iterator[str]:
    for folder, folders, files, _ in directories.fwalk(".", dir_fd=root_fd, onerror=lambda _: None):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        inside = folder.removeprefix(".").lstrip("/")
        for name in sorted(files):
            if not name.startswith("."):
                yield f"{inside}/{name}" if inside else name


def missing_file(root_fd: int, path: str, next_step: str = "") -> ToolError:
    """The refusal for a file that does not exist, with those that may have been meant."""
    try:
        similar = similar_files(root_fd, path)
    except OSError:
        similar = []
    known = make_printable(path)
    hint = f" (similar: {', '.join(similar)})" if similar else ""
    create = call_tool("safe_write", path=known, content=FILL)
    return os_refusal(
        FileNotFoundError(errno.ENOENT, ""),
        message=f"{known} does not exist{hint}.",
        next_step=next_step or either(call_again(path=similar[0] if similar else FILL), create),
        path=known,
        similar=similar,
    )


def directory_in_place(dir_fd: int, name: str, path: str) -> ToolError:
    """The refusal for a path that names a directory, with some of what is in it."""
    names = list_names(dir_fd, name)
    holds = f" (it has {', '.join(names)})" if names else ""
    return os_refusal(
        IsADirectoryError(errno.EISDIR, ""),
        message=f"{make_printable(path)} is a directory, not a file{holds}.",
        path=make_printable(path),
    )

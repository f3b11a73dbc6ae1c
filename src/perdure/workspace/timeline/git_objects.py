"""Contents that git has already: a clean tracked file needs no copy of its own until it changes.

Which blob git has for a path is read from its index, without running git. A file counts as clean where its own
bytes have the hash of that blob, so filters and line endings cannot deceive. Blobs are read by `git cat-file`,
which runs no hook and fetches nothing."""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from perdure.storage.files.bounded_read import read_bounded
from perdure.workspace.timeline.git_head import common_folder, git_folder

_INDEX_MAX: Final = 1 << 30
_CONFIG_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 30
_HEADER: Final = struct.Struct(">4sII")
_BEFORE_OID: Final = 40
_EXTENDED: Final = 0x4000
_STAGE: Final = 0x3000
_REGULAR: Final = 0o100000


class GitObjects:
    """The blobs of the repository at a root."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._oids = read_index(root)

    def __bool__(self) -> bool:
        return bool(self._oids)

    def find_clean(self, path: str, data: bytes) -> str | None:
        """The blob of a path where git has exactly this content."""
        oid = self._oids.get(path)
        if oid is None:
            return None
        digest = hashlib.sha1 if len(oid) == 40 else hashlib.sha256
        is_same = digest(b"blob %d\0" % len(data) + data).hexdigest() == oid
        return oid if is_same else None

    def find_missing(self, oids: Sequence[str]) -> set[str]:
        """Those that git does not have after all."""
        lines = _run(self._root, "--batch-check", oids).decode("ascii", "replace").split("\n")
        present = {line.split(" ")[0] for line in lines if " blob " in line}
        return set(oids) - present


def read_blobs(root: str, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The contents of blobs, without those that git does not have."""
    output = _run(root, "--batch", oids)
    at = 0
    while (end := output.find(b"\n", at)) >= 0:
        header = output[at:end].decode("ascii", "replace").split(" ")
        at = end + 1
        if len(header) == 3 and header[2].isdigit():
            size = int(header[2])
            yield header[0], output[at : at + size]
            at += size + 1


def _run(root: str, option: str, oids: Sequence[str]) -> bytes:
    import subprocess

    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", root, "cat-file", option, "--buffer"],
            input="".join(f"{oid}\n" for oid in oids).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout


def read_index(root: str) -> dict[str, str]:
    """The blob of each regular file in git's index; empty where there is none that can be read."""
    try:
        folder = git_folder(root)
        if folder is None:
            return {}
        data = read_bounded(os.path.join(folder, "index"), _INDEX_MAX)
        config = read_bounded(os.path.join(common_folder(folder), "config"), _CONFIG_MAX)
    except (OSError, ValueError):
        return {}
    size = 32 if re.search(rb"(?mi)^\s*objectformat\s*=\s*sha256\s*$", config) else 20
    try:
        return dict(_entries(data, size))
    except (struct.error, IndexError, ValueError):
        return {}


def _entries(data: bytes, oid_size: int) -> Iterator[tuple[str, str]]:
    """The format is git's `index-format`, versions 2 to 4."""
    mark, version, count = _HEADER.unpack_from(data)
    if mark != b"DIRC" or version not in (2, 3, 4):
        return
    at = _HEADER.size
    name = b""
    for _ in range(count):
        start = at
        (mode,) = struct.unpack_from(">I", data, at + 24)
        oid = data[at + _BEFORE_OID : at + _BEFORE_OID + oid_size]
        at += _BEFORE_OID + oid_size
        (flags,) = struct.unpack_from(">H", data, at)
        at += 4 if flags & _EXTENDED else 2
        if version == 4:
            cut, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - cut] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        if not flags & _STAGE and mode & 0o170000 == _REGULAR:
            yield os.fsdecode(name), oid.hex()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
    return value, at + 1

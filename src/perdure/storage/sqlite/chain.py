"""The journal's chain of hashes and its kept contents, read and checked: no msgspec, so that it loads fast.

A row's hash covers the hash before it and the row as a JSON list. `journal.chain_hash` writes the same bytes with
msgspec, where a commit waits for them; a test holds the two together.
"""

from __future__ import annotations

import zlib
from _json import encode_basestring

from perdure.storage.sqlite.unpacking import unpacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import apsw

GENESIS = bytes(32)
COLUMNS = "seq, ts, path, op, mode, old_sha, new_sha, bytes, client, session, key, txn, undoes, detail"


def digest(prev: bytes, values: tuple[Any, ...], sha256: Any = None) -> bytes:
    """The hash of a row that stands as `COLUMNS` does. A caller in a hurry brings the function."""
    if sha256 is None:
        from hashlib import sha256
    return bytes(sha256(b"%s[%s]" % (prev, ",".join(map(_json, values)).encode())).digest())


def _json(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return repr(value)
    return encode_basestring(value.hex() if isinstance(value, bytes) else value)


def problems(
    connection: apsw.Connection,
    anchored: tuple[int, bytes] | None,
    passed: Callable[[int], None] | None,
    sha256: Any = None,
) -> Iterator[tuple[str, str, int]]:
    """Walk the whole chain; compare its head with what is remembered outside the workspace.

    Each is a kind, its words, and the row. `passed` is told of every row that was looked at.
    """
    prev, last = GENESIS, 0
    for before, hashed, *values in connection.execute(
        f"SELECT prev, hash, {COLUMNS} FROM journal ORDER BY seq"
    ):
        seq = values[0]
        if seq != last + 1:
            yield "gap", f"rows {last + 1} to {seq - 1} are missing", seq
        if before != prev or digest(before, tuple(values), sha256) != hashed:
            yield "chain", "the row does not match its hash", seq
        if anchored is not None and anchored[0] == seq and anchored[1] != hashed:
            yield "anchor", "the row is not the one that was anchored", seq
        prev, last = hashed, seq
        if passed is not None:
            passed(last)
    if anchored is not None and anchored[0] > last:
        yield "truncated", f"rows {last + 1} to {anchored[0]} were there and are gone", last


def read_anchor(path: str) -> tuple[int, bytes] | None:
    try:
        with open(path, "rb") as file:
            seq, hashed = file.read(200).split()
        return int(seq), bytes.fromhex(hashed.decode())
    except (OSError, ValueError):
        return None


def anchor_name(workspace: str) -> str:
    """The file in which a workspace's head is remembered."""
    return f"{zlib.crc32(workspace.encode('utf-8', 'surrogateescape')):08x}"


def contents(connection: apsw.Connection) -> Iterator[tuple[bytes, bytes | None]]:
    """Every kept content by its hash; None stands for a file's."""
    for sha, codec, data in connection.execute("SELECT sha, codec, data FROM contents"):
        yield sha, unpacked(codec, data)

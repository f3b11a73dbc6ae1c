"""The journal's chain of hashes and its kept contents, read and checked.

A row's hash covers the hash before it and the row's columns as a JSON list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final

import apsw
import msgspec

from perdure.storage.sqlite.content_encoding import SEALED, unpacked

GENESIS: Final = bytes(32)
BREAK: Final = "break"
"""The `op` of a row that says which rows are gone. Its outcome says the same, so that no reader takes it for a change."""
COLUMNS: Final = "seq, ts, path, op, mode, old_sha, new_sha, bytes, client, session, key, txn, undoes, detail"

_OP: Final = 3
_DETAIL: Final = 13


def digest(prev: bytes, values: tuple[Any, ...]) -> bytes:
    """The hash of a row whose values are in the order of `COLUMNS`."""
    columns = [value.hex() if isinstance(value, bytes) else value for value in values]
    return sha256(prev + msgspec.json.encode(columns)).digest()


def problems(
    connection: apsw.Connection,
    anchored: tuple[int, bytes] | None,
    passed: Callable[[int], None] | None,
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
        if before != prev or digest(before, tuple(values)) != hashed:
            yield "chain", "the row does not match its hash", seq
        if values[_OP] == BREAK:
            yield "break", _describe_break(values[_DETAIL]), seq
        if anchored is not None and anchored[0] == seq and anchored[1] != hashed:
            yield "anchor", "the row is not the one that was anchored", seq
        prev, last = hashed, seq
        if passed is not None:
            passed(last)
    if anchored is not None and anchored[0] > last:
        yield "truncated", f"rows {last + 1} to {anchored[0]} were there and are gone", last


def is_continued(connection: apsw.Connection, known: tuple[int, bytes]) -> bool:
    """Whether a row that was the head is still there, as it was."""
    seq, hashed = known
    if seq == 0:
        return True
    found = connection.execute("SELECT hash FROM journal WHERE seq = ?", (seq,)).fetchone()
    return found is not None and found[0] == hashed


def _describe_break(detail: str) -> str:
    known = msgspec.json.decode(detail)
    if known["lost_from"] > known["lost_to"]:
        return f"row {known['lost_to']} and those before it are not the ones that were written"
    return f"rows {known['lost_from']} to {known['lost_to']} were there and are gone"


def read_anchor(path: str) -> tuple[int, bytes] | None:
    try:
        with open(path, "rb") as file:
            seq, hashed = file.read(200).split()
        return int(seq), bytes.fromhex(hashed.decode())
    except (OSError, ValueError):
        return None


def contents(connection: apsw.Connection) -> Iterator[tuple[bytes, bytes | None]]:
    """Every kept content that is not sealed, by its hash; None stands for a file's."""
    for sha, codec, data in connection.execute(
        "SELECT sha, codec, data FROM contents WHERE codec != ?", (SEALED,)
    ):
        yield sha, unpacked(codec, data)


def sealed_contents(connection: apsw.Connection) -> Iterator[tuple[bytes, bytes]]:
    yield from connection.execute("SELECT sha, data FROM contents WHERE codec = ?", (SEALED,))

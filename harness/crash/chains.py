"""Whether every file came to its content step by step: each change began where the one before it ended.

A step is a committed row of the journal, or an edit by another program. A write that was lost, done twice, torn, made
without a row, or made over an edit that it had not seen, breaks the chain, or ends it elsewhere than on disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.crash.foreign import Edit
from harness.crash.record import Record, Row


def broken(record: Record, edits: list[Edit]) -> Iterator[str]:
    paths = {row.path for row in record.rows} | {edit.path for edit in edits} | set(record.files)
    for path in sorted(paths):
        rows = [row for row in record.committed if row.path == path]
        own = [edit for edit in edits if edit.path == path]
        yield from _walked(path, rows, own, record)


def _walked(path: str, rows: list[Row], edits: list[Edit], record: Record) -> Iterator[str]:
    state: bytes | None = None
    left = list(edits)
    for row in rows:
        while state != row.old and (edit := _from(state, left)) is not None:
            state = edit.after
        if state != row.old:
            yield f"{path}: row {row.seq} ({row.op}) began at {_short(row.old)}, but the file held {_short(state)}"
        state = row.new
    while (edit := _from(state, left)) is not None:
        state = edit.after
    for edit in left:
        yield f"{path}: another program's edit, {_short(edit.before)} to {_short(edit.after)}, is lost"
    on_disk = record.files.get(path)
    if on_disk != state:
        whose = "" if on_disk is None or record.is_kept(on_disk) else ", torn or of nobody"
        yield f"{path}: {_short(on_disk)} is on disk{whose}; the last change left {_short(state)}"


def _from(state: bytes | None, left: list[Edit]) -> Edit | None:
    """The edit that began here, taken off the list."""
    found = next((edit for edit in left if edit.before == state), None)
    if found is not None:
        left.remove(found)
    return found


def _short(sha: bytes | None) -> str:
    return sha.hex()[:8] if sha is not None else "nothing"

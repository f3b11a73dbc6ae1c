"""The record of a shell command's change that a write of Perdure's own tools is about to cover.

Between the observations around a call its changes are on disk alone. Without a row of its own, such a change would be lost
behind the row of the own write: the next observation finds the file as the journal has it. The row is written in the
transaction of the own write, where the set of open calls is as constant as in an observation.
"""

from __future__ import annotations

from typing import Any

from perdure.storage.journal import Journal, NewRow
from perdure.workspace.entries import EntryState, kinds_detail, state_after
from perdure.workspace.timeline.attribution import attribute
from perdure.workspace.timeline.change_rows import OP, describe
from perdure.workspace.timeline.not_covered import is_left_out, left_out_paths


def record_overwritten(
    journal: Journal, path: str, found: EntryState | None, size: int, mode: int | None
) -> None:
    """`found` is on disk; the own write keeps its content. Nothing is recorded where no call is open, and where it is not
    known what was there before."""
    author = attribute(path, journal.open_calls(), (), 0)
    if not author.calls:
        return
    last, tracked = journal.last_of(path), journal.tracked_file(path)
    before: EntryState | None = None
    if last is not None:
        before = state_after(last)
    elif tracked is not None and tracked.sha is not None:
        before = EntryState(tracked.kind, tracked.sha)
    if before == found or any(state is not None and state.kind == "directory" for state in (before, found)):
        return
    if before is not None:
        if not journal.has_content(before.sha):  # git alone has it
            return
        journal.keep_content(before.sha)
    elif last is None and (tracked or is_left_out(path, left_out_paths(journal.not_covered()))):
        return
    detail: dict[str, Any] = kinds_detail(before.kind if before else None, found.kind if found else None)
    file_mode = mode if before is None else tracked.mode if found is None and tracked is not None else None
    if file_mode is not None:
        detail["file_mode"] = file_mode
    call = author.calls[0]
    row = journal.append(
        NewRow(
            path=path,
            op=OP,
            mode="create" if before is None else "delete" if found is None else "overwrite",
            old_sha=before.sha if before is not None else None,
            new_sha=found.sha if found is not None else None,
            bytes=size,
            client=call.client,
            session=call.session,
            txn=call.txn,
            detail={**detail, "call": describe(author)},
        )
    )
    journal.settle([row.seq])
    if call.seq is None:
        journal.update_call(call.id, status=call.status, seq=row.seq)

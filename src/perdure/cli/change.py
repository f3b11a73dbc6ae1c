"""A change as commands show it: the rows of the journal that one call made, with what they did to each file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_tool
from perdure.text.times import format_time

if TYPE_CHECKING:
    from perdure.storage.journal import Digest, Row
    from perdure.workspace.workspace import Workspace


def rows_of(service: Workspace, identity: str) -> list[Row]:
    """The rows of a change, by the id of any of them or by its transaction_id. Raises ToolError where there are none."""
    journal = service.journal
    if (seq := _number(identity)) is not None:
        row = journal.row(seq)
        rows = [] if row is None else [row] if row.txn is None else journal.transaction(row.txn)
    else:
        rows = journal.transaction(identity)
    if not rows:
        newest = next(iter(journal.rows(_any(), 1)), None)
        hint = f"the newest is {newest.seq}" if newest is not None else "nothing was written yet"
        raise refuse(
            "not_found",
            "version_not_found",
            f"no change {identity} in the journal: {hint}.",
            next_step=call_tool("journal_tail"),
        )
    return rows


def _number(identity: str) -> int | None:
    from perdure.surfaces.write.write import sequence

    return sequence(identity.removeprefix("#"))


def _any() -> Any:
    from perdure.storage.journal import Filter

    return Filter()


def content(service: Workspace, path: str, sha: Digest | None) -> bytes | None:
    """A kept content; None for a file that is not there. Raises ToolError where it is kept no longer."""
    from perdure.workspace.planning import check_in_memory

    if sha is None:
        return None
    check_in_memory(service.store.find(sha.hex()).size, path)
    return service.store.load(sha.hex())


def entries(service: Workspace, rows: list[Row]) -> list[dict[str, Any]]:
    """One for each file, with its diff. A move is one entry: its old path is in `from`."""
    moved_from = {
        row.detail.get("moved_from") for row in rows if row.mode == "move" and row.new_sha is not None
    }
    return [
        _entry(service, row, rows)
        for row in rows
        if not (row.mode == "move" and row.new_sha is None and row.path in moved_from)
    ]


def _entry(service: Workspace, row: Row, rows: list[Row]) -> dict[str, Any]:
    from perdure.present.tool_errors import tool_error
    from perdure.protocol.envelope import ToolError
    from perdure.storage.errors import StorageError
    from perdure.text.diffs import make_git_patch

    source = row.detail.get("moved_from") if row.mode == "move" else None
    old_sha = (
        next((one.old_sha for one in rows if one.path == source), row.old_sha) if source else row.old_sha
    )
    entry: dict[str, Any] = {"path": row.path, "op": _op(row, source)}
    if source:
        entry["from"] = source
    entry["sha256"] = row.new_sha.hex() if row.new_sha is not None else None
    entry["prev_sha256"] = old_sha.hex() if old_sha is not None else None
    entry["bytes"] = row.bytes
    try:
        entry["diff"] = make_git_patch(
            content(service, row.path, old_sha), content(service, row.path, row.new_sha), row.path
        )
    except (ToolError, StorageError) as error:
        entry["no_diff"] = str(tool_error(error).envelope.context["message"])
    return entry


def _op(row: Row, source: str | None) -> str:
    if source:
        return "rename"
    if row.old_sha is None:
        return "create"
    return "delete" if row.new_sha is None else "change"


def summary(service: Workspace, rows: list[Row]) -> dict[str, Any]:
    """Whose change it is, when it was made and whether it was undone."""
    first = rows[0]
    return {
        "id": str(first.seq),
        "ts": format_time(first.ts),
        "client": first.client,
        "session": first.session,
        "tool": first.op,
        "status": "undone" if all(_is_undone(service, row) for row in rows) else "done",
        **({"transaction_id": first.txn} if first.txn is not None else {}),
    }


def _is_undone(service: Workspace, row: Row) -> bool:
    by = service.journal.undone_by(row.seq)
    return by is not None and not _is_undone(service, by)

"""A change as commands show it: the rows of the journal that one call made, with what they did to each file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_tool

if TYPE_CHECKING:
    from perdure.storage.journal import Digest, Row
    from perdure.storage.timeline import ChangeSummary
    from perdure.workspace.changed_files import ChangedFile
    from perdure.workspace.workspace import Workspace


def find_change(service: Workspace, identity: str) -> ChangeSummary:
    """The change, by the id of any of its rows or by its transaction_id. Raises ToolError where there is none."""
    from perdure.storage.journal import Filter

    change = service.journal.change(identity.removeprefix("#"))
    if change is None:
        newest = next(iter(service.journal.rows(Filter(), 1)), None)
        hint = f"the newest is {newest.seq}" if newest is not None else "nothing was written yet"
        raise refuse(
            "not_found",
            "version_not_found",
            f"no change {identity} in the journal: {hint}.",
            next_step=call_tool("timeline"),
        )
    return change


def content(service: Workspace, path: str, sha: Digest | None) -> bytes | None:
    """A kept content; None for a file that is not there. Raises ToolError where it is kept no longer."""
    from perdure.workspace.planning import check_in_memory

    if sha is None:
        return None
    check_in_memory(service.store.find(sha.hex()).size, path)
    return service.store.load(sha.hex())


def entries(service: Workspace, rows: list[Row]) -> list[dict[str, Any]]:
    """One for each file, with its diff, and its `words` for people. A move is one entry: its old path is in `from`."""
    from perdure.workspace.changed_files import fold

    return [_entry(service, file) for file in fold(rows)]


def _entry(service: Workspace, file: ChangedFile) -> dict[str, Any]:
    from perdure.present.tool_errors import tool_error
    from perdure.protocol.envelope import ToolError
    from perdure.storage.errors import StorageError

    entry: dict[str, Any] = {"path": file.path, "op": file.op}
    if file.source is not None:
        entry["from"] = file.source
    if file.kind != "file":
        entry["kind"] = file.kind
    if file.mode is not None and file.mode != file.mode_before:
        entry["mode"] = f"{file.mode:04o}"
    entry["sha256"] = file.new_sha.hex() if file.new_sha is not None else None
    entry["prev_sha256"] = file.old_sha.hex() if file.old_sha is not None else None
    entry["bytes"] = file.bytes
    if file.old_sha is file.new_sha is None:
        entry["no_diff"] = "it came and went within this change"
    elif "directory" not in (file.kind, file.kind_before):
        try:
            entry["diff"] = _diff(service, file)
        except (ToolError, StorageError) as error:
            entry["no_diff"] = str(tool_error(error).envelope.context["message"])
    return entry


def _diff(service: Workspace, file: ChangedFile) -> bytes:
    from perdure.text.diffs import make_git_patch

    old, new = content(service, file.path, file.old_sha), content(service, file.path, file.new_sha)
    if file.kind != file.kind_before:  # for git, a file that becomes a link goes, and another one comes
        gone = make_git_patch(old, None, file.path, old_mode=file.git_mode_before)
        return gone + make_git_patch(None, new, file.path, new_mode=file.git_mode)
    return make_git_patch(
        old, new, file.path, source=file.source, old_mode=file.git_mode_before, new_mode=file.git_mode
    )

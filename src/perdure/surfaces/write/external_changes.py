"""A change that another program made, taken into the journal afterwards: nothing on disk changes.

From then on it has a version, a diff and an undo like any other. What was there before is the journal's last version,
or what the program itself says; where nobody knows, the row says that nothing changed, so that no undo can remove
a file that was there all along.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from perdure.protocol.calls import Call
from perdure.workspace.change import PlanFunction
from perdure.workspace.contents import Content
from perdure.workspace.planning import PlannedFile, PlanView
from perdure.workspace.workspace import Workspace

OP: Final = "native"
Before = bytes | None | Literal["unknown"]
"""What the file held: None where there was no file."""


def adopt(workspace: Workspace, call: Call, path: str, before: Before = "unknown") -> dict[str, Any]:
    """`adopted` is false where the journal's last version is what stands there."""

    def plan(tree: PlanView) -> dict[str, Any]:
        known = tree.lookup(path, force=True)
        on_disk = known.now
        last = workspace.journal.last_of(known.path)
        digest = on_disk.digest if on_disk is not None else None
        if (last.new_sha if last is not None else None) == digest:
            return {"path": known.path, "adopted": False}
        known.now = _previous(workspace, known, before)
        mode = "delete" if on_disk is None else "create" if known.now is None else "overwrite"
        row = tree.stage(known, on_disk, op=OP, mode=mode)
        return {"path": known.path, "adopted": True, "journal_id": str(row.seq)}

    return workspace.commit(call, PlanFunction(frozenset({path}), plan)).result()


def _previous(workspace: Workspace, known: PlannedFile, before: Before) -> Content | None:
    last = workspace.journal.last_of(known.path)
    if last is not None:
        if last.new_sha is None:
            return None
        if workspace.store.has(last.new_sha.hex()):
            return workspace.store.find(last.new_sha.hex())
    elif before is None:
        return None
    return workspace.store.take(before) if isinstance(before, bytes) else known.now

"""Undo and redo: changes taken back, also under later ones, and nothing half-done."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from perdure.protocol.calls import Call
from perdure.workspace.planning import PlanView
from perdure.workspace.undo.result import UndoResult, check_applies
from perdure.workspace.undo.revert import Reversal, commit_reversal
from perdure.workspace.undo.selection import ANY_SESSION, Selection, select
from perdure.workspace.workspace import Workspace, new_transaction_id


def undo(workspace: Workspace, call: Call, selection: Selection, *, is_dry_run: bool = False) -> UndoResult:
    """Take back the selected changes, all or none. Raises WorkspaceError, StorageError, ToolError."""
    return commit_reversal(workspace, call, UndoPlan(workspace, call, selection, is_dry_run=is_dry_run))


class UndoPlan:
    """The changes are selected under the lock: another undo may have taken them back meanwhile."""

    def __init__(self, workspace: Workspace, call: Call, selection: Selection, *, is_dry_run: bool) -> None:
        self.paths = frozenset({selection.path} if selection.path is not None else ())
        self._workspace = workspace
        self._call = call
        self._selection = selection
        self._is_dry_run = is_dry_run
        self._txn = new_transaction_id()

    def stage(self, tree: PlanView) -> dict[str, Any]:
        tree.claims.claim_journal()
        selection = self._selection
        path = self._workspace.journal_name(selection.path) if selection.path is not None else None
        selected = select(self._workspace.journal, selection, path, self._call.session)
        op = "redo" if selection.redo else "undo"
        reversal = Reversal(
            self._workspace, tree, self._call, op=op, txn=self._txn, is_preview=self._is_dry_run
        )
        result = msgspec.structs.replace(
            reversal.run(selected.rows),
            redo=True if selection.redo else UNSET,
            session=(selected.session or ANY_SESSION) if selection.turn is not None else UNSET,
        )
        check_applies(result, is_dry_run=self._is_dry_run)
        payload: dict[str, Any] = msgspec.to_builtins(result)
        return payload

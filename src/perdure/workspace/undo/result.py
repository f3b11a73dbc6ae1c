"""What an undo or a rewind did, or would do. Its JSON is what the journal keeps as the result of the call."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from perdure.storage.timeline import NotCovered
from perdure.workspace.errors import WorkspaceError


class RevertedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that was taken back (`undone`), its author, and the row that takes it back (`journal_id`)."""

    path: str
    journal_id: str | None
    sha256: str | None
    undone: str
    op: str
    mode: str
    client: str
    session: str
    this_session: bool
    transaction_id: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    moved_from: str | UnsetType = UNSET
    moved_to: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET


class RowConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a row cannot be taken back. `by` is the author of the later change, as far as the journal knows."""

    path: str
    reason: str
    undone: str
    lines: list[list[int]] | UnsetType = UNSET
    by: str | UnsetType = UNSET


class AuthorTotals(msgspec.Struct, frozen=True, kw_only=True):
    client: str
    agent: str | UnsetType = UNSET
    changes: int
    files: int


class UndoResult(msgspec.Struct, frozen=True, kw_only=True):
    """With conflicts nothing was changed, nor with `dry_run`. `kept` are the files whose later edits stay.

    `redo` and `session` are of an undo, `by_author`, `not_covered` and `head` of a rewind."""

    reverted: list[RevertedRow]
    conflicts: list[RowConflict]
    kept: list[str]
    journal_ids: list[str]
    redo: bool | UnsetType = UNSET
    session: str | UnsetType = UNSET
    by_author: list[AuthorTotals] | UnsetType = UNSET
    not_covered: list[NotCovered] | UnsetType = UNSET
    head: dict[str, str] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


class NotApplied(WorkspaceError):
    """Raised by a plan whose rows are to be rolled back: there are conflicts, or it was a dry run."""

    def __init__(self, result: UndoResult) -> None:
        super().__init__("not_applied")
        self.result = result


def check_applies(result: UndoResult, *, is_dry_run: bool) -> None:
    """Raises NotApplied where nothing is to be changed."""
    if result.conflicts:
        raise NotApplied(msgspec.structs.replace(result, redo=UNSET))
    if is_dry_run:
        reverted = [msgspec.structs.replace(row, journal_id=None) for row in result.reverted]
        raise NotApplied(msgspec.structs.replace(result, reverted=reverted, journal_ids=[], dry_run=True))

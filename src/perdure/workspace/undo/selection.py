"""Which changes an undo takes back."""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.storage.journal import Journal, Row
from perdure.storage.timeline import ChangeFilter
from perdure.workspace.errors import AlreadyUndone, NothingToUndo
from perdure.workspace.undo.changes import (
    find_change,
    is_effective,
    newest_first,
    newest_session_with_turns,
    rows_of,
    sequence,
)

ANY_SESSION: Final = "any"
MOST_CHANGES: Final = 1000
_PAGE: Final = 100
_OPS: Final = ("undo", "redo")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The changes with these ids, of any session; otherwise the newest `n` that match, or with `since`, `turn` or
    `agent` all of them. `session` is by default the caller's. With `redo`, undos instead of changes."""

    ids: tuple[str, ...] = ()
    n: int = 1
    path: str | None = None
    session: str | None = None
    client: str | None = None
    agent: str | None = None
    turn: int | None = None
    since: int | None = None
    redo: bool = False


class SelectedRows(msgspec.Struct, frozen=True):
    """Newest first, whole changes at a time; and the session that they were looked for in."""

    rows: list[Row]
    session: str | None


def select(journal: Journal, selection: Selection, path: str | None, own_session: str) -> SelectedRows:
    """`path` is the journal's name for that of the selection. Raises WorkspaceError."""
    session = _session(journal, selection, own_session)
    rows = _named(journal, selection.ids) if selection.ids else _matching(journal, selection, path, session)
    if not rows:
        raise NothingToUndo(session)
    return SelectedRows(rows, session)


def _session(journal: Journal, selection: Selection, own_session: str) -> str | None:
    """Whose changes: the caller's, unless the selection names others. A turn is one of the session that changed
    something last."""
    if selection.session is not None:
        return None if selection.session == ANY_SESSION else selection.session
    if selection.turn is not None:
        return newest_session_with_turns(journal, selection.client, selection.agent)
    return own_session if selection.client is None and selection.agent is None else None


def _matching(journal: Journal, selection: Selection, path: str | None, session: str | None) -> list[Row]:
    wanted = ChangeFilter(
        path=path,
        session=session,
        client=selection.client,
        agent=selection.agent,
        turn=selection.turn,
        since=selection.since,
    )
    takes_all = any(limit is not None for limit in (selection.since, selection.turn, selection.agent))
    most = MOST_CHANGES if takes_all else selection.n
    selected: list[Row] = []
    changes = 0
    while changes < most and (page := journal.changes(wanted, _PAGE)):
        for change in page:
            rows = [row for row in rows_of(journal, change) if is_effective(journal, row)]
            if not rows or not (rows[0].op == "undo" if selection.redo else rows[0].op not in _OPS):
                continue
            selected += rows
            changes += 1
            if changes == most:
                break
        wanted = msgspec.structs.replace(wanted, before=page[-1].id)
    return newest_first(selected)


def _named(journal: Journal, ids: tuple[str, ...]) -> list[Row]:
    """The changes with these ids: of any of their rows, or of their transactions."""
    selected: dict[int, Row] = {}
    for identity in ids:
        rows = find_change(journal, identity)
        effective = {row.seq: row for row in rows if is_effective(journal, row)}
        seq = sequence(identity)
        if not effective or (seq is not None and seq not in effective):
            raise AlreadyUndone(identity, rows[0].path)
        selected |= effective
    return newest_first(selected.values())

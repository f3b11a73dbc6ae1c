"""Changes by their ids: the rows of each, and whether they are in force."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from perdure.storage.journal import Journal, Row
from perdure.storage.timeline import ChangeFilter, ChangeSummary
from perdure.workspace.errors import ChangeNotFound

_SEQUENCE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


def sequence(journal_id: str) -> int | None:
    """The number of a row; None for what was never given out as one."""
    return int(journal_id) if _SEQUENCE.fullmatch(journal_id) else None


def find_change(journal: Journal, identity: str) -> list[Row]:
    """The rows of a change, oldest first, by the id of any of its rows or of its transaction. Raises ChangeNotFound."""
    seq = sequence(identity)
    row = journal.row(seq) if seq is not None else None
    rows = journal.transaction(row.txn if row is not None and row.txn is not None else identity)
    if row is not None and row.txn is None:
        rows = [row]
    if not rows:
        raise ChangeNotFound(identity)
    return rows


def rows_of(journal: Journal, change: ChangeSummary, n: int | None = None) -> list[Row]:
    """The first `n` rows of a change, or all, oldest first."""
    if change.txn is not None:
        return journal.transaction(change.txn, n)
    row = journal.row(change.id)
    return [row] if row is not None else []


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """A later change of a file must be taken back before an earlier one."""
    return sorted(rows, key=lambda row: row.seq, reverse=True)


def is_effective(journal: Journal, row: Row) -> bool:
    """Not taken back, or taken back and then again."""
    by = journal.undone_by(row.seq)
    return by is None or not is_effective(journal, by)


def newest_session_with_turns(journal: Journal, client: str | None, agent: str | None) -> str | None:
    """The session that a turn without a session means: that of the newest change in a turn."""
    change = next(iter(journal.changes(ChangeFilter(client=client, agent=agent, has_turn=True), 1)), None)
    return change.session if change is not None else None

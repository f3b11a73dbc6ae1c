"""The rows that a call of Perdure's own tools wrote, found by the ids in its response."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from perdure.storage.journal import Journal, Row

_ROW_ID: Final = re.compile(r"\b(?:journal|journal_id)\b\W{0,4}(\d{1,18})\b")
_TRANSACTION_ID: Final = re.compile(r"\bt_[0-9a-f]{16}\b")


def own_changes(journal: Journal, response: object, since: int) -> Iterator[Row]:
    """The first row of each change that a response of Perdure's own tools names and no other call has made. A response
    can name older rows, too: those that it lists, or has taken back."""
    seen: set[int] = set()
    for name in _named_ids(response):
        if name.startswith("t_"):
            rows = journal.transaction(name)
            row = rows[0] if rows else None
        else:
            row = journal.row(int(name))
            if row is not None and row.txn is not None:
                row = journal.transaction(row.txn)[0]
        if row is None or row.ts < since or row.seq in seen:
            continue
        seen.add(row.seq)
        change = journal.change(str(row.seq))
        if change is not None and change.call is None:
            yield row


def _named_ids(response: object) -> Iterator[str]:
    """The ids of rows and transactions in the answer of a tool: fields of its structured content, or words of its
    text."""
    pending: list[Any] = [response]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key in ("transaction_id", "journal_id"):
                name = value.get(key)
                if isinstance(name, str | int) and _is_id(str(name)):
                    yield str(name)
            ids = value.get("ids")
            yield from (str(name) for name in (ids if isinstance(ids, list) else ()) if _is_id(str(name)))
            pending += reversed(list(value.values()))
        elif isinstance(value, list | tuple):
            pending += reversed(value)
        elif isinstance(value, str):
            yield from _TRANSACTION_ID.findall(value)
            yield from _ROW_ID.findall(value)


def _is_id(text: str) -> bool:
    return bool(_TRANSACTION_ID.fullmatch(text)) or (text.isascii() and text.isdigit() and len(text) <= 18)

"""Rows of the journal as `perdure journal` and `perdure history` show them, read the short way where that will do.

The short way is for what is asked every day: a journal that is there, and a path as the journal writes it. Everything
else, mistakes included, goes through the tool, whose answers are the same; a test compares them.
"""

from __future__ import annotations

import time

from perdure.cli.screen import Screen, clean, cut, cut_left, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from perdure.cli.whereabouts import Whereabouts

MOST = 200
FILTERS = ("path", "mode", "client")


def read(where: Whereabouts, n: int, **wanted: str | None) -> list[dict[str, Any]] | None:
    """The newest rows first, one more than `n` where there are more; None where the tool has to look."""
    from perdure.cli.short_way import is_plain, is_served
    from perdure.storage.sqlite import glance

    path = wanted.get("path")
    if not 1 <= n <= MOST or len(where.workspaces) != 1 or (path is not None and not is_plain(where, path)):
        return None
    found = glance.rows(where.journal, n + 1, {name: wanted.get(name) for name in FILTERS})
    if not found["found"]:
        return []
    if "error" in found:
        return None
    if found["unsettled"] and not is_served(where):
        return None  # what a dead process left, recovery settles first
    return [_entry(row) for row in found["rows"]]


def _entry(row: tuple[Any, ...]) -> dict[str, Any]:
    seq, ts, path, op, mode, old, new, length, client, session, txn = row
    entry = {
        "journal_id": str(seq),
        "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ts // 1_000_000)) + f".{ts % 1_000_000:06}Z",
        "path": path,
        "op": op,
        "mode": mode,
        "sha256": new.hex() if new is not None else None,
        "prev_sha256": old.hex() if old is not None else None,
        "bytes": length,
        "client": client,
        "session": session,
    }
    return {**entry, "transaction_id": txn} if txn is not None else entry


def show(rows: list[dict[str, Any]], *, with_path: bool = True) -> None:
    screen = Screen()
    if not rows:
        screen.line("nothing")
        return
    widest = max(len(clean(row["client"])) for row in rows)
    clients = min(widest, 16)
    room = screen.width - 52 - clients
    paths = max(12, min(room, max((len(clean(row.get("path", ""))) for row in rows), default=0)))
    head = f"{'id':>7}  {'when':<19}  {'what':<9}  " + (f"{'path':<{paths}}  " if with_path else "")
    screen.line(f"{head}{'size':>8}  client", "dim")
    for row in rows:
        path = f"{cut_left(clean(row['path']), paths):<{paths}}  " if with_path else ""
        when = row["ts"][:19].replace("T", " ")
        screen.line(
            f"{row['journal_id']:>7}  {when}  {clean(_what(row)):<9}  {path}"
            f"{size(row['bytes']):>8}  {cut(clean(row['client']), clients)}"
        )


def _what(row: dict[str, Any]) -> str:
    """What was done; where that says nothing more, to what effect."""
    return str(row["op"] if row["op"] not in ("write", "transaction") else row["mode"])

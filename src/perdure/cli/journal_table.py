"""Rows of the journal as a table, for `perdure journal` and `perdure history`."""

from __future__ import annotations

from typing import Any

from perdure.cli.screen import Screen, clean, cut, cut_left, size


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

"""Rows of the journal as a table, for `perdure journal`, `history` and `status`: newest last, local time."""

from __future__ import annotations

from typing import Any, NamedTuple

from perdure.cli.output import (
    Screen,
    age,
    clean,
    column,
    full_time,
    microseconds_of,
    print_table,
    short_time,
    size,
    time_zone,
    truncate,
    truncate_left,
)

MOST_CLIENT = 16
SESSION = 10
LEAST_PATH = 12


class Line(NamedTuple):
    """One line of the table. `part` is which of how many lines of a transaction."""

    id: str
    ts: int
    what: str
    path: str
    size: str
    lines: str
    client: str
    session: str
    part: str


def show(rows: list[dict[str, Any]], screen: Screen, *, with_path: bool = True) -> None:
    """`rows` as `journal_tail` gives them, oldest first. Into a pipe every column is whole."""
    lines = table_lines(rows)
    columns = [column("id", (line.id for line in lines), right=True)]
    if screen.is_terminal:
        columns += [
            column(f"when {time_zone()}", (short_time(line.ts) for line in lines)),
            column("", (age(line.ts) for line in lines), right=True),
        ]
    else:
        columns.append(column("when", (full_time(line.ts) for line in lines)))
    columns.append(column("what", (line.what for line in lines)))
    most = MOST_CLIENT if screen.is_terminal else screen.width
    tail = [
        column("size", (line.size for line in lines), right=True),
        column("lines", (line.lines for line in lines), right=True),
        column("client", (truncate(line.client, most) for line in lines)),
        column("", (line.part for line in lines)),
    ]
    room = screen.width - sum(len(cells[0]) + 2 for cells in columns + tail if cells)
    if with_path:
        paths = [line.path for line in lines]
        width = min(max(map(len, paths)), max(LEAST_PATH, room))
        columns.append(column("path", (truncate_left(path, width) for path in paths)))
        room -= len(columns[-1][0]) + 2
    sessions = column("session", (line.session[: SESSION if screen.is_terminal else None] for line in lines))
    if sessions and len(sessions[0]) <= room:
        tail.append(sessions)
    print_table(columns + tail, screen)


def table_lines(rows: list[dict[str, Any]]) -> list[Line]:
    """A move is one line, though it is two rows; the lines of a transaction are counted."""
    merged: list[tuple[dict[str, Any], str]] = []
    for row in rows:
        if merged and _is_moved_from(row, merged[-1][0]):
            before, path = merged[-1]
            merged[-1] = (before, f"{clean(row['path'])} -> {path}")
        else:
            kind = f"{row['kind']} " if "kind" in row else ""
            merged.append((row, kind + clean(row.get("path", ""))))
    counts: dict[str, int] = {}
    for row, _ in merged:
        if txn := row.get("transaction_id"):
            counts[txn] = counts.get(txn, 0) + 1
    seen: dict[str, int] = {}
    lines = []
    for row, path in merged:
        txn = row.get("transaction_id") or ""
        seen[txn] = seen.get(txn, 0) + 1
        part = f"{seen[txn]} of {counts[txn]}" if counts.get(txn, 1) > 1 else ""
        lines.append(
            Line(
                row["journal_id"],
                row["ts"] if isinstance(row["ts"], int) else microseconds_of(row["ts"]),
                clean(what(row)),
                path,
                size(row["bytes"]),
                f"+{row['added']:,} -{row['removed']:,}" if "added" in row else "",
                clean(row["client"]),
                clean(row.get("session", "")),
                part,
            )
        )
    return lines


def _is_moved_from(row: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether this row removed the file that the row before it put in its new place."""
    return bool(
        row["mode"] == before["mode"] == "move"
        and row.get("transaction_id") is not None
        and row.get("transaction_id") == before.get("transaction_id")
        and row.get("sha256") is None
        and row.get("prev_sha256") == before.get("sha256")
    )


def what(row: dict[str, Any]) -> str:
    """What was done; where that says nothing more, to what effect."""
    return str(row["op"] if row["op"] not in ("write", "transaction", "native") else row["mode"])

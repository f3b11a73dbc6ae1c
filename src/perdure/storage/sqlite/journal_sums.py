"""Sums over the journal, kept row by row in the same transaction, and the report made of them."""

from __future__ import annotations

from typing import Any, Final

import apsw

from perdure.model.when import iso
from perdure.storage.journal import Row

MINUTE: Final = 60_000_000
TIMELINE: Final = 50
HOT: Final = 5
SINCE: Final = f"seq >= (SELECT min(first) FROM minutes WHERE minute >= ? / {MINUTE}) AND ts >= ?"
"""Which rows there are since a time, given twice."""
_COMMITTED: Final = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = journal.seq)"
_END: Final = f"(SELECT ts FROM journal WHERE {_COMMITTED} ORDER BY seq {{}} LIMIT 1)"
MINUTES, ALL, MODE, CLIENT, PEAK, KEPT = range(6)
"""What a row of the sums is about."""


def add(connection: apsw.Connection, row: Row) -> None:
    minute = row.ts // MINUTE
    writes = _count(connection, row, minute, 1)
    connection.execute(
        f"UPDATE rollup SET writes = ?, mark = ? WHERE kind = {PEAK} AND name = '' AND writes < ?",
        (writes, minute, writes),
    )


def remove(connection: apsw.Connection, row: Row) -> None:
    """A row that did not become what it intended no longer counts, neither in a sum nor as the most."""
    _count(connection, row, row.ts // MINUTE, -1)
    connection.execute(
        "UPDATE rollup SET (writes, mark) = (SELECT writes, minute FROM minutes ORDER BY writes DESC, minute LIMIT 1) "
        f"WHERE kind = {PEAK} AND name = ''"
    )


def keep(connection: apsw.Connection, size: int) -> None:
    """One more content, as it is kept."""
    connection.execute(f"UPDATE rollup SET bytes = bytes + ? WHERE kind = {KEPT} AND name = ''", (size,))


def _count(connection: apsw.Connection, row: Row, minute: int, sign: int) -> int:
    """Returns the writes of the minute."""
    size = sign * row.bytes
    known = _first(
        connection,
        "INSERT INTO paths VALUES (?,?,?,?) ON CONFLICT (path) DO UPDATE SET "
        "writes = writes + excluded.writes, bytes = bytes + excluded.bytes, last_seq = excluded.last_seq "
        "RETURNING writes",
        (row.path, sign, size, row.seq),
    )
    fresh = 1 if sign > 0 and known == 1 else -1 if sign < 0 and known == 0 else 0
    return _first(
        connection,
        f"INSERT INTO rollup VALUES ({MINUTES},?,?,?,?), ({ALL},'',?,?,?), ({MODE},?,?,0,0), ({CLIENT},?,?,0,0) "
        "ON CONFLICT (kind, name) DO UPDATE SET writes = writes + excluded.writes, bytes = bytes + excluded.bytes, "
        f"mark = CASE kind WHEN {ALL} THEN mark + excluded.mark ELSE min(mark, excluded.mark) END RETURNING writes",
        (minute, sign, size, row.seq, sign, size, fresh, row.mode, sign, row.client, sign),
    )


def _first(connection: apsw.Connection, text: str, values: tuple[Any, ...]) -> int:
    found: list[Any] = connection.execute(text, values).fetchall()
    return int(found[0][0])


def report(connection: apsw.Connection, since: int | None, session: str | None) -> dict[str, Any]:
    """The analytics object. Without filters it comes from the sums alone, whatever the journal's length."""
    if since is None and session is None:
        return _whole(connection)
    return _part(connection, since, session)


def _whole(connection: apsw.Connection) -> dict[str, Any]:
    sums: list[Any] = connection.execute(
        f"SELECT writes, paths, bytes, {_END.format('')}, {_END.format('DESC')}, peak_minute FROM sums"
    ).fetchall()
    writes, paths, size, first, last, peak = sums[0]
    by_mode, by_client = (_totals(connection, kind) for kind in ("mode", "client"))
    timeline = connection.execute(
        f"SELECT ts, path, mode, bytes FROM journal WHERE {_COMMITTED} ORDER BY seq DESC LIMIT ?",
        (TIMELINE,),
    ).fetchall()
    return _shape(writes, paths, size, by_mode, by_client, timeline, _hot(connection), first, last, peak)


def _hot(connection: apsw.Connection) -> list[Any]:
    """Those written more than once come first and have an index; then there are few of them to pass over."""
    hot: list[Any] = connection.execute(
        "SELECT path, writes FROM paths WHERE writes > 1 ORDER BY writes DESC, path LIMIT ?", (HOT,)
    ).fetchall()
    if len(hot) < HOT:
        text = "SELECT path, writes FROM paths WHERE writes = 1 ORDER BY path LIMIT ?"
        hot += connection.execute(text, (HOT - len(hot),)).fetchall()
    return hot


def _totals(connection: apsw.Connection, kind: str) -> dict[str, int]:
    found: list[Any] = connection.execute(
        "SELECT name, writes FROM totals WHERE kind = ? AND writes > 0 ORDER BY 1", (kind,)
    ).fetchall()
    return dict(found)


def _part(connection: apsw.Connection, since: int | None, session: str | None) -> dict[str, Any]:
    where = _COMMITTED
    values: list[Any] = []
    if since is not None:
        where += f" AND {SINCE}"
        values += (since, since)
    if session is not None:
        where += " AND session = ?"
        values.append(session)

    def ask(text: str) -> list[Any]:
        return connection.execute(text.format(where=where), tuple(values)).fetchall()

    writes, paths, size, first, last = ask(
        "SELECT count(*), count(DISTINCT path), coalesce(sum(bytes), 0), min(ts), max(ts) FROM journal WHERE {where}"
    )[0]
    by_mode = ask("SELECT mode, count(*) FROM journal WHERE {where} GROUP BY mode ORDER BY 1")
    by_client = ask("SELECT client, count(*) FROM journal WHERE {where} GROUP BY client ORDER BY 1")
    hot = ask(
        f"SELECT path, count(*) FROM journal WHERE {{where}} GROUP BY path ORDER BY 2 DESC, 1 LIMIT {HOT}"
    )
    timeline = ask(
        f"SELECT ts, path, mode, bytes FROM journal WHERE {{where}} ORDER BY seq DESC LIMIT {TIMELINE}"
    )
    peak = ask(
        f"SELECT ts / {MINUTE}, count(*) FROM journal WHERE {{where}} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    return _shape(
        writes,
        paths,
        size,
        dict(by_mode),
        dict(by_client),
        timeline,
        hot,
        first,
        last,
        peak[0][0] if peak else None,
    )


def _shape(
    writes: int,
    paths: int,
    size: int,
    by_mode: dict[str, int],
    by_client: dict[str, int],
    timeline: list[Any],
    hot: list[Any],
    first: int | None,
    last: int | None,
    peak: int | None,
) -> dict[str, Any]:
    span = (last - first) / 1_000_000 if first is not None and last is not None else 0.0
    per_minute = writes / (span / 60) if span >= 60 else float(writes)
    return {
        "total_writes": writes,
        "unique_paths": paths,
        "total_bytes_written": size,
        "by_mode": by_mode,
        "by_caller": by_client,
        "timeline": [
            {"ts": iso(ts), "path": path, "mode": mode, "bytes": count}
            for ts, path, mode, count in reversed(timeline)
        ],
        "hot_paths": [{"path": path, "writes": count} for path, count in hot],
        "write_velocity": {
            "writes_per_minute": round(per_minute, 3),
            "avg_bytes_per_write": round(size / writes, 3) if writes else 0.0,
            "peak_minute": iso(peak * MINUTE) if peak is not None else None,
        },
        "period": {
            "first_entry": iso(first) if first is not None else None,
            "last_entry": iso(last) if last is not None else None,
            "duration_seconds": round(span, 3),
        },
    }

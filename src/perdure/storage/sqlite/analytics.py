"""Statistics of writes: per file, client, mode and minute.

The `cached_*` tables hold sums over the rows up to `cached_sums.last_seq`. A report adds the rows since. `advance`
moves the cache forward, in a write transaction; a report only reads. The outcome of a cached row is final: the cache
ends before the first open intent.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from perdure.text.times import format_time

ADVANCE_EVERY: Final = 500
"""Rows. A report counts at most as many, and those whose intents were open when the cache was advanced."""
MINUTE: Final = 60_000_000
TIMELINE: Final = 50
HOT: Final = 5
SINCE: Final = (
    "seq >= (SELECT min(seq) FROM "
    f"(SELECT min(first_seq) AS seq FROM cached_minutes WHERE minute >= ? / {MINUTE} "
    "UNION ALL SELECT last_seq + 1 FROM cached_sums)) AND ts >= ?"
)
"""The rows since a time, which is bound twice. Times have no index, because they rise with `seq` unless the clock was set
back: the scan starts at the first row of any minute from then on."""
_COMMITTED: Final = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = journal.seq)"
_END: Final = f"(SELECT ts FROM journal WHERE {_COMMITTED} ORDER BY seq {{}} LIMIT 1)"
# Without NOT INDEXED a GROUP BY would walk an index of the whole journal.
_RECENT: Final = f"journal NOT INDEXED WHERE seq > (SELECT last_seq FROM cached_sums) AND {_COMMITTED}"
_FINAL: Final = f"{_RECENT} AND seq < ifnull((SELECT min(seq) FROM intents), {2**63 - 1})"
_IS_NEW: Final = "NOT EXISTS (SELECT 1 FROM cached_paths WHERE cached_paths.path = journal.path)"
_ADD: Final = "DO UPDATE SET writes = writes + excluded.writes"
_ADVANCE: Final = f"""
UPDATE cached_sums SET
    paths = paths + (SELECT count(DISTINCT path) FROM {_FINAL} AND {_IS_NEW}),
    bytes = bytes + (SELECT ifnull(sum(bytes), 0) FROM {_FINAL});
INSERT INTO cached_paths SELECT path, count(*) FROM {_FINAL} GROUP BY 1 ON CONFLICT (path) {_ADD};
INSERT INTO cached_minutes SELECT ts / {MINUTE}, count(*), min(seq) FROM {_FINAL} GROUP BY 1
    ON CONFLICT (minute) {_ADD};
INSERT INTO cached_totals SELECT 'mode', mode, count(*) FROM {_FINAL} GROUP BY 2
    UNION ALL SELECT 'client', client, count(*) FROM {_FINAL} GROUP BY 2 ON CONFLICT (kind, name) {_ADD};
UPDATE cached_sums SET
    last_seq = coalesce((SELECT min(seq) - 1 FROM intents), (SELECT max(seq) FROM journal), 0);
"""
_SUMS: Final = (
    f"SELECT paths + (SELECT count(DISTINCT path) FROM {_RECENT} AND {_IS_NEW}), "
    f"bytes + (SELECT ifnull(sum(bytes), 0) FROM {_RECENT}), {_END.format('')}, {_END.format('DESC')} "
    "FROM cached_sums"
)
_TOTALS: Final = (
    "SELECT name, sum(writes) FROM (SELECT name, writes FROM cached_totals WHERE kind = '{column}' "
    f"UNION ALL SELECT {{column}}, 1 FROM {_RECENT}) GROUP BY 1 ORDER BY 1"
)
# The most written of the cache, and every one that was written since: nothing else can be ahead of these.
_HOT_PATHS: Final = (
    "SELECT path, max(writes) FROM ("
    f"SELECT * FROM (SELECT * FROM cached_paths WHERE writes > 1 ORDER BY writes DESC, path LIMIT {HOT}) "
    f"UNION ALL SELECT * FROM (SELECT * FROM cached_paths WHERE writes = 1 ORDER BY path LIMIT {HOT}) "
    "UNION ALL SELECT path, writes + ifnull((SELECT writes FROM cached_paths WHERE path = recent.path), 0) "
    f"FROM (SELECT path, count(*) AS writes FROM {_RECENT} GROUP BY 1) AS recent"
    f") GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {HOT}"
)
_PEAK_MINUTE: Final = (
    "SELECT minute, max(writes) FROM ("
    "SELECT * FROM (SELECT minute, writes FROM cached_minutes ORDER BY writes DESC, minute LIMIT 1) "
    "UNION ALL SELECT minute, writes + ifnull((SELECT writes FROM cached_minutes WHERE minute = recent.minute), 0) "
    f"FROM (SELECT ts / {MINUTE} AS minute, count(*) AS writes FROM {_RECENT} GROUP BY 1) AS recent"
    ") GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
)
_TIMELINE: Final = (
    f"SELECT ts, path, mode, bytes FROM journal WHERE {{where}} ORDER BY seq DESC LIMIT {TIMELINE}"
)


def advance(connection: apsw.Connection) -> None:
    """Add every row with a final outcome to the cache."""
    connection.execute(_ADVANCE)


def report(connection: apsw.Connection, since: int | None, session: str | None) -> dict[str, Any]:
    """The analytics object. Without filters it comes from the cached sums and the rows since."""
    connection.execute("BEGIN")  # one snapshot: another process may advance the cache meanwhile
    try:
        if since is None and session is None:
            return _whole(connection)
        return _part(connection, since, session)
    finally:
        if connection.in_transaction:  # some errors end it
            connection.execute("COMMIT")


def _whole(connection: apsw.Connection) -> dict[str, Any]:
    def ask(text: str) -> list[Any]:
        return connection.execute(text).fetchall()

    paths, size, first, last = ask(_SUMS)[0]
    by_mode, by_client = (dict(ask(_TOTALS.format(column=column))) for column in ("mode", "client"))
    return _shape(
        sum(by_mode.values()),
        paths,
        size,
        by_mode,
        by_client,
        ask(_TIMELINE.format(where=_COMMITTED)),
        ask(_HOT_PATHS),
        first,
        last,
        ask(_PEAK_MINUTE),
    )


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
    peak = ask(
        f"SELECT ts / {MINUTE}, count(*) FROM journal WHERE {{where}} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1"
    )
    return _shape(
        writes,
        paths,
        size,
        dict(by_mode),
        dict(by_client),
        ask(_TIMELINE),
        hot,
        first,
        last,
        peak,
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
    peak: list[Any],
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
            {"ts": format_time(ts), "path": path, "mode": mode, "bytes": count}
            for ts, path, mode, count in reversed(timeline)
        ],
        "hot_paths": [{"path": path, "writes": count} for path, count in hot],
        "write_velocity": {
            "writes_per_minute": round(per_minute, 3),
            "avg_bytes_per_write": round(size / writes, 3) if writes else 0.0,
            "peak_minute": format_time(peak[0][0] * MINUTE) if peak else None,
        },
        "period": {
            "first_entry": format_time(first) if first is not None else None,
            "last_entry": format_time(last) if last is not None else None,
            "duration_seconds": round(span, 3),
        },
    }

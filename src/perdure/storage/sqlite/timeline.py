"""The time machine's tables: tracked files, calls, turns; and the rows of the journal read as changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw
import msgspec

from perdure.storage.sqlite import analytics
from perdure.storage.sqlite.retention import Dropping
from perdure.storage.timeline import (
    CallRecord,
    CallStatus,
    ChangeFilter,
    ChangeSummary,
    NewCall,
    NotCovered,
    ObservationRecord,
    TrackedFile,
)

_FILE: Final = ", ".join(TrackedFile.__struct_fields__)
_CALL: Final = ", ".join(CallRecord.__struct_fields__)
_OF_CALL: Final = ", ".join(f"calls.{column}" for column in CallRecord.__struct_fields__)
_COMMITTED: Final = "NOT EXISTS (SELECT 1 FROM outcomes WHERE outcomes.seq = {row}.seq)"
_EARLIER: Final = (
    "SELECT 1 FROM journal AS other WHERE other.txn = journal.txn AND other.seq < journal.seq "
    f"AND {_COMMITTED.format(row='other')}"
)
_IS_FIRST: Final = f"{_COMMITTED.format(row='journal')} AND (journal.txn IS NULL OR NOT EXISTS ({_EARLIER}))"
_FIRST_ROW: Final = (
    "coalesce((SELECT min(seq) FROM journal AS other WHERE other.txn = changed.txn "
    f"AND {_COMMITTED.format(row='other')}), changed.seq)"
)
_CHANGE: Final = (
    "SELECT journal.seq, journal.txn, journal.ts, coalesce(calls.client, journal.client), "
    f"coalesce(calls.session, journal.session), {_OF_CALL} FROM journal LEFT JOIN calls ON calls.seq = journal.seq"
)
_ROWS_OF_CHANGE: Final = f"FROM journal WHERE {{rows}} AND {_COMMITTED.format(row='journal')}"
_MANY_ROWS: Final = 5000
# Changes of a file or a folder.
_IN_PATHS: Final = "(changed.path = ? OR (changed.path > ? AND changed.path < ?))"
_CHANGES_FEW: Final = f"journal.seq IN (SELECT {_FIRST_ROW} FROM journal AS changed WHERE {_IN_PATHS})"
_CHANGES_MANY: Final = (
    "EXISTS (SELECT 1 FROM journal AS changed WHERE (changed.seq = journal.seq OR changed.txn = journal.txn) "
    f"AND {_IN_PATHS})"
)
# Changes with a row since a time: a call may have begun before.
_SINCE_FEW: Final = f"journal.seq IN (SELECT {_FIRST_ROW} FROM journal AS changed WHERE {analytics.SINCE})"
_SINCE_MANY: Final = (
    f"(({analytics.SINCE}) OR "
    "EXISTS (SELECT 1 FROM journal AS changed WHERE changed.txn = journal.txn AND changed.ts >= ?))"
)
# The old place of a moved file is no file of its own, nor is a directory.
_TOTALS: Final = (
    "SELECT count(DISTINCT CASE WHEN (new_sha IS NULL AND json_extract(detail, '$.moved_to') IS NOT NULL) "
    "OR json_extract(detail, '$.kind') = 'directory' THEN NULL ELSE path END), "
    f"sum(json_extract(detail, '$.added')), sum(json_extract(detail, '$.removed')) {_ROWS_OF_CHANGE}"
)
# A row that is in effect: it was never taken back, or what took it back was taken back itself.
_IN_EFFECT: Final = (
    f"WITH RECURSIVE takes_back (row, seq, steps) AS (SELECT seq, seq, 0 {_ROWS_OF_CHANGE} UNION ALL "
    "SELECT row, (SELECT max(later.seq) FROM journal AS later WHERE later.undoes = takes_back.seq "
    f"AND {_COMMITTED.format(row='later')}), steps + 1 FROM takes_back WHERE seq IS NOT NULL) "
    "SELECT 1 FROM takes_back WHERE seq IS NOT NULL GROUP BY row HAVING max(steps) % 2 = 0 LIMIT 1"
)
_NEXT_VERSION: Final = "UPDATE tracked_version SET n = n + 1"


def track_files(connection: apsw.Connection, files: Iterable[TrackedFile]) -> None:
    connection.executemany(
        f"INSERT OR REPLACE INTO tracked_files ({_FILE}) VALUES (?,?,?,?,?,?,?,?,?)",
        (msgspec.structs.astuple(file) for file in files),
    )
    connection.execute(_NEXT_VERSION)


def untrack_files(connection: apsw.Connection, paths: Iterable[str]) -> list[bytes]:
    dropping = Dropping(connection)
    for path in paths:
        rows: list[Any] = connection.execute(
            "DELETE FROM tracked_files WHERE path = ? RETURNING sha", (path,)
        ).fetchall()
        for (sha,) in rows:
            if sha is not None:
                dropping.drop_unnamed(sha)
    dropping.save()
    connection.execute(_NEXT_VERSION)
    return dropping.files


def tracked_version(connection: apsw.Connection) -> int:
    rows: list[Any] = connection.execute("SELECT n FROM tracked_version").fetchall()
    return int(rows[0][0])


def tracked_files(connection: apsw.Connection) -> list[TrackedFile]:
    return [
        TrackedFile(*row) for row in connection.execute(f"SELECT {_FILE} FROM tracked_files ORDER BY path")
    ]


def tracked_file(connection: apsw.Connection, path: str) -> TrackedFile | None:
    row: Any = connection.execute(f"SELECT {_FILE} FROM tracked_files WHERE path = ?", (path,)).fetchone()
    return TrackedFile(*row) if row is not None else None


def set_not_covered(connection: apsw.Connection, places: Iterable[NotCovered]) -> None:
    connection.execute("DELETE FROM not_covered")
    connection.executemany(
        "INSERT OR REPLACE INTO not_covered (path, reason, files) VALUES (?,?,?)",
        (msgspec.structs.astuple(place) for place in places),
    )


def not_covered(connection: apsw.Connection) -> list[NotCovered]:
    return [
        NotCovered(*row)
        for row in connection.execute("SELECT path, reason, files FROM not_covered ORDER BY path")
    ]


def record_observation(connection: apsw.Connection, head: str | None, now: int) -> None:
    connection.execute("INSERT OR REPLACE INTO observation (id, ts, head) VALUES (1, ?, ?)", (now, head))


def last_observation(connection: apsw.Connection) -> ObservationRecord | None:
    row: Any = connection.execute("SELECT ts, head FROM observation").fetchone()
    return ObservationRecord(*row) if row is not None else None


def call_of(connection: apsw.Connection, seq: int, txn: str | None) -> CallRecord | None:
    where, value = ("seq = ?", seq) if txn is None else ("txn = ?", txn)
    row: Any = connection.execute(f"SELECT {_CALL} FROM calls WHERE {where}", (value,)).fetchone()
    return _call(row) if row is not None else None


def begin_call(connection: apsw.Connection, call: NewCall, now: int) -> CallRecord:
    record = CallRecord(
        id=0,
        client=call.client,
        session=call.session,
        agent=call.agent,
        turn=call.turn,
        tool=call.tool,
        call_id=call.call_id,
        command=call.command,
        paths=call.paths,
        begun=now,
        ended=None if call.status == "open" else now,
        status=call.status,
        txn=call.txn,
        seq=None,
        process=call.process,
    )
    values = msgspec.structs.asdict(record) | {
        "id": None,
        "paths": msgspec.json.encode(call.paths).decode(),
    }
    connection.execute(
        f"INSERT INTO calls ({_CALL}) VALUES ({','.join('?' * len(values))})", tuple(values.values())
    )
    return msgspec.structs.replace(record, id=connection.last_insert_rowid())


def update_call(
    connection: apsw.Connection,
    identity: int,
    status: CallStatus,
    seq: int | None,
    txn: str | None,
    now: int,
) -> None:
    connection.execute(
        "UPDATE calls SET status = ?, ended = CASE WHEN ? THEN ended ELSE coalesce(ended, ?) END, "
        "seq = coalesce(?, seq), txn = coalesce(?, txn) WHERE id = ?",
        (status, status == "open", now, seq, txn, identity),
    )


def forget_calls(connection: apsw.Connection, before: int) -> None:
    connection.execute("DELETE FROM calls WHERE seq IS NULL AND ended < ?", (before,))


def begin_turn(connection: apsw.Connection, client: str, session: str, now: int) -> int:
    rows: list[Any] = connection.execute(
        "INSERT INTO turns (client, session, turn, ts) VALUES (?, ?, 1, ?) "
        "ON CONFLICT DO UPDATE SET turn = turn + 1, ts = excluded.ts RETURNING turn",
        (client, session, now),
    ).fetchall()
    return int(rows[0][0])


def current_turn(connection: apsw.Connection, client: str, session: str) -> int | None:
    row: Any = connection.execute(
        "SELECT turn FROM turns WHERE client = ? AND session = ?", (client, session)
    ).fetchone()
    return row[0] if row is not None else None


def open_calls(connection: apsw.Connection) -> list[CallRecord]:
    return [
        _call(row) for row in connection.execute(f"SELECT {_CALL} FROM calls WHERE ended IS NULL ORDER BY id")
    ]


def ended_calls(connection: apsw.Connection, n: int) -> list[CallRecord]:
    text = f"SELECT {_CALL} FROM calls WHERE ended IS NOT NULL ORDER BY id DESC LIMIT ?"
    return [_call(row) for row in connection.execute(text, (n,))]


def changes(connection: apsw.Connection, wanted: ChangeFilter, n: int) -> list[ChangeSummary]:
    terms: list[str] = [_IS_FIRST]
    values: list[Any] = []
    authors = {"client": wanted.client, "session": wanted.session}
    call_terms = {**authors, "agent": wanted.agent, "turn": wanted.turn}
    call_terms = {column: value for column, value in call_terms.items() if value is not None}
    if wanted.agent is not None or wanted.turn is not None or wanted.has_turn:
        named = [f"{column} = ?" for column in call_terms] + ["turn IS NOT NULL"] * wanted.has_turn
        terms.append(
            f"journal.seq IN (SELECT seq FROM calls WHERE {' AND '.join(named)} AND seq IS NOT NULL)"
        )
        values += call_terms.values()
    else:
        for column, value in authors.items():
            if value is None:
                continue
            # A change of Perdure's own tools has two sessions: of the server, and of the client that its hook names. The
            # unary plus keeps the scan in the order of `seq`, which ends with the page.
            terms.append(
                f"(+journal.{column} = ? OR "
                f"EXISTS (SELECT 1 FROM calls WHERE calls.seq = journal.seq AND calls.{column} = ?))"
            )
            values += (value, value)
            if not _has_many_rows(connection, f"changed.{column} = ?", (value,)):
                terms.append(
                    f"journal.seq IN (SELECT seq FROM journal WHERE {column} = ? "
                    f"UNION ALL SELECT seq FROM calls WHERE {column} = ? AND seq IS NOT NULL)"
                )
                values += (value, value)
    if wanted.path is not None:
        folder = wanted.path.rstrip("/")
        paths = (wanted.path, f"{folder}/", f"{folder}0")  # "0" is the character after "/"
        is_many = _has_many_rows(connection, _IN_PATHS, paths)
        terms.append(_CHANGES_MANY if is_many else _CHANGES_FEW)
        values += paths
    if wanted.since is not None:
        is_many = _has_many_rows(connection, analytics.SINCE, (wanted.since, wanted.since))
        terms.append(_SINCE_MANY if is_many else _SINCE_FEW)
        values += (wanted.since,) * (3 if is_many else 2)
    if wanted.before is not None:
        terms.append("journal.seq < ?")
        values.append(wanted.before)
    page = f"SELECT seq FROM journal WHERE {' AND '.join(terms)} ORDER BY seq DESC LIMIT ?"
    found = connection.execute(
        f"{_CHANGE} WHERE journal.seq IN ({page}) ORDER BY journal.seq DESC", (*values, n)
    ).fetchall()
    return [_change(connection, row) for row in found]


def _has_many_rows(connection: apsw.Connection, which: str, values: tuple[str | int, ...]) -> bool:
    """Few rows are found by an index; of many, the newest changes soon fill the page."""
    text = f"SELECT 1 FROM journal AS changed WHERE {which} LIMIT 1 OFFSET {_MANY_ROWS}"
    return connection.execute(text, values).fetchone() is not None


def change(connection: apsw.Connection, row_or_transaction: str) -> ChangeSummary | None:
    is_row = row_or_transaction.isascii() and row_or_transaction.isdigit() and len(row_or_transaction) <= 18
    which = "seq = ?" if is_row else "txn = ?"
    value = int(row_or_transaction) if is_row else row_or_transaction
    committed = _COMMITTED.format(row="changed")
    first = f"(SELECT {_FIRST_ROW} FROM journal AS changed WHERE changed.{which} AND {committed} LIMIT 1)"
    row: Any = connection.execute(f"{_CHANGE} WHERE journal.seq = {first}", (value,)).fetchone()
    return _change(connection, row) if row is not None else None


def _change(connection: apsw.Connection, row: tuple[Any, ...]) -> ChangeSummary:
    identity, txn, ts, client, session, *call = row
    rows, value = ("seq = ?", identity) if txn is None else ("txn = ?", txn)
    totals: Any = connection.execute(_TOTALS.format(rows=rows), (value,)).fetchone()
    in_effect = connection.execute(_IN_EFFECT.format(rows=rows), (value,)).fetchone()
    files, added, removed = totals
    return ChangeSummary(
        id=identity,
        txn=txn,
        ts=ts,
        client=client,
        session=session,
        files=files,
        added=added,
        removed=removed,
        is_undone=in_effect is None,
        call=_call(tuple(call)) if call[0] is not None else None,
    )


def _call(row: tuple[Any, ...]) -> CallRecord:
    values = dict(zip(CallRecord.__struct_fields__, row, strict=True))
    values["paths"] = tuple(msgspec.json.decode(values["paths"]))
    return CallRecord(**values)

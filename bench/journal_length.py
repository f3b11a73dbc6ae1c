"""What a long journal costs: its newest rows and changes, analytics and one more write, beside a new workspace."""

from __future__ import annotations

import itertools
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.client import Client
from bench.report import Report, ms, p50
from bench.writes import BLOCK, SMALL, Writer, perdure_at, text_of
from perdure.storage.journal import NewRow
from perdure.storage.sqlite.analytics import ADVANCE_EVERY
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.storage.timeline import NewCall

TAIL_LIMIT_S = 0.005
TIMELINE_LIMIT_S = 0.020
FIRST_ANALYTICS_LIMIT_S = 0.100
ANALYTICS_LIMIT_S = 0.020
APPEND_LIMIT = 1.5
ASKED = 50
APPENDS = 300
PER_TRANSACTION = 5000
DAYS = 30
PATHS = 20_000
PER_CALL = 5  # rows of a recorded call; every second group of so many is one
CLIENTS = ("claude-code", "codex", "cursor", "copilot")
MODES = ("create", "overwrite", "append", "replace")


def measure(scratch: Path, perdure: str, report: Report, *, rows: int) -> None:
    long = scratch / "long"
    seconds = _fill(long, rows)
    report.title(
        f"a journal of {rows:,} rows over {DAYS} days, made in {seconds:.0f} s; through the whole host"
    )
    with (
        perdure_at(scratch, perdure, long) as old,
        perdure_at(scratch, perdure, scratch / "empty") as new,
    ):
        tail = p50([_asked(old, "journal_tail", {"n": 20}) for _ in range(ASKED)])
        timeline = {
            label: (p50([_asked(old, "timeline", given) for _ in range(ASKED)]), limit)
            for label, given, limit in (
                ("timeline of 20", {"n": 20}, TIMELINE_LIMIT_S),
                ("timeline of one agent", {"agent": "agent-4"}, TIMELINE_LIMIT_S),
                ("timeline of one turn", {"turn": 3, "session": "session-1"}, TIMELINE_LIMIT_S),
                ("timeline of one folder", {"path": "src/package3"}, TIMELINE_LIMIT_S),
                ("timeline of the last day", {"since": "1d"}, TIMELINE_LIMIT_S),
                ("timeline of an unknown client", {"client": "nobody"}, TIMELINE_LIMIT_S),
                ("timeline of the oldest session", {"session": "session-0"}, TIMELINE_LIMIT_S),
            )
        }
        first = _asked(old, "analytics", {})
        second = p50([_asked(old, "analytics", {}) for _ in range(ASKED)])
        for label, seconds, limit in (
            ("journal_tail of 20", tail, TAIL_LIMIT_S),
            *((label, seconds, limit) for label, (seconds, limit) in timeline.items()),
            ("analytics, the first time", first, FIRST_ANALYTICS_LIMIT_S),
            ("analytics, again", second, ANALYTICS_LIMIT_S),
        ):
            report.at_most(label, f"{ms(seconds)}, limit {ms(limit)}", seconds, limit)
        samples: dict[str, list[float]] = {"long": [], "empty": []}
        writers = {"long": Writer(old, "safe_write"), "empty": Writer(new, "safe_write")}
        for _ in range(APPENDS // BLOCK):
            for name, writer in writers.items():
                samples[name] += [writer.write(text_of(SMALL)) for _ in range(BLOCK)]
    mine, bare = p50(samples["long"]), p50(samples["empty"])
    report.ratio(
        "one more 1 KB write over an empty journal", f"{ms(mine)}, {ms(bare)}", mine / bare, APPEND_LIMIT
    )


def _asked(client: Client, tool: str, arguments: dict[str, Any]) -> float:
    start = time.perf_counter()
    client.call(tool, arguments)
    return client.arrived - start


def _fill(workspace: Path, rows: int) -> float:
    """Rows as the product itself makes them, under a clock that spreads them over a month.

    The last ones are as many as analytics may have to count beside the cached sums.
    """
    folder = workspace / ".perdure"
    folder.mkdir(parents=True)
    start = time.perf_counter()
    ticks = itertools.count()
    began = time.time() - DAYS * 86_400
    journal = SqliteJournal(
        str(folder), str(workspace / "anchor"), lambda: began + next(ticks) * DAYS * 86_400 / rows
    )
    numbers = iter(range(rows + ADVANCE_EVERY - 1))
    sizes = [PER_TRANSACTION] * (rows // PER_TRANSACTION) + [ADVANCE_EVERY - 1]
    for size in sizes:
        batch = list(itertools.islice(numbers, size))

        def work(batch: list[int] = batch) -> None:
            for at in range(0, len(batch), PER_CALL):
                _append(journal, batch[at : at + PER_CALL])

        journal.transact(work)
    journal.close()
    return time.perf_counter() - start


def _append(journal: SqliteJournal, numbers: list[int]) -> None:
    """Rows of one call, or as many changes of a single file."""
    group = numbers[0] // PER_CALL
    call = None
    if not group % 2:
        call = journal.begin_call(
            NewCall(
                client=_client(numbers[0]),
                session=_session(numbers[0]),
                tool="Bash",
                txn=f"t_{group}",
                agent=f"agent-{group % 40}",
                turn=group // 10 % 10 + 1,
                command="make",
            )
        )
    rows = [journal.append(_row(number, call.txn if call is not None else None)) for number in numbers]
    journal.settle([row.seq for row in rows])
    if call is not None:
        journal.update_call(call.id, status="done", seq=rows[0].seq)


def _client(number: int) -> str:
    return CLIENTS[number // 500 % 4]


def _session(number: int) -> str:
    return f"session-{number // 500}"


def _row(number: int, txn: str | None) -> NewRow:
    return NewRow(
        path=f"src/package{number % 97}/module{number * 7919 % PATHS}.py",
        op="write",
        mode=MODES[number * 31 % 4],
        old_sha=None,
        new_sha=sha256(b"%d" % number).digest(),
        bytes=1000 + number % 9000,
        client=_client(number),
        session=_session(number),
        txn=txn,
    )

"""What a long journal costs: the newest rows, the sums and one more write, beside a workspace without a past."""

from __future__ import annotations

import itertools
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from client import Client
from report import Report, ms, p50
from writes import BLOCK, SMALL, Writer, perdure_at, text_of

from perdure.storage.journal import NewRow
from perdure.storage.sqlite.journal import SqliteJournal

TAIL_LIMIT_S = 0.005
ANALYTICS_LIMIT_S = 0.020
APPEND_LIMIT = 1.5
ASKED = 50
APPENDS = 300
PER_TRANSACTION = 5000
DAYS = 30
PATHS = 20_000
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
        for tool, arguments, limit in (
            ("journal_tail", {"n": 20}, TAIL_LIMIT_S),
            ("analytics", {}, ANALYTICS_LIMIT_S),
        ):
            found = p50([_asked(old, tool, arguments) for _ in range(ASKED)])
            report.at_most(f"{tool} {arguments or ''}", f"{ms(found)}, limit {ms(limit)}", found, limit)
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
    """Rows as the product itself makes them, under a clock that spreads them over a month."""
    folder = workspace / ".perdure"
    folder.mkdir(parents=True)
    start = time.perf_counter()
    ticks = itertools.count()
    began = time.time() - DAYS * 86_400
    journal = SqliteJournal(
        str(folder), str(workspace / "anchor"), lambda: began + next(ticks) * DAYS * 86_400 / rows
    )
    numbers = iter(range(rows))
    while batch := list(itertools.islice(numbers, PER_TRANSACTION)):

        def work(batch: list[int] = batch) -> None:
            journal.settle([journal.append(_row(number)).seq for number in batch])

        journal.transact(work)
    journal.close()
    return time.perf_counter() - start


def _row(number: int) -> NewRow:
    return NewRow(
        path=f"src/package{number % 97}/module{number * 7919 % PATHS}.py",
        op="write",
        mode=MODES[number * 31 % 4],
        old_sha=None,
        new_sha=sha256(b"%d" % number).digest(),
        bytes=1000 + number % 9000,
        client=CLIENTS[number // 500 % 4],
        session=f"session-{number // 500}",
    )

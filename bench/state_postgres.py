"""The state store on PostgreSQL: 32 clients beside raw psycopg doing the same statements, and wake-ups."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psycopg
import repository  # noqa: F401
from report import Report, ms, p50
from states import VALUE, host, in_flight, server, wake_ups

from harness.state.postgres import running_postgres
from perdure.storage.postgres import state_queries as sql

CLIENTS = 32
SHARE_FLOOR = 0.60
WAKE_S = 0.010


def measure(scratch: Path, perdure: str, report: Report, *, calls: int, wakes: int) -> None:
    report.title(f"PostgreSQL, {CLIENTS} clients")
    with running_postgres() as postgres:
        raw, ours = [], []
        dsn = postgres.new_database()
        with server(host(perdure), scratch, "ours", dsn) as client:
            for _ in range(3):
                raw.append(_raw(dsn, calls // 3))
                ours.append(calls // 3 / in_flight(client, calls // 3, CLIENTS))
        mine, theirs = p50(ours), p50(raw)
        text = f"{mine:,.0f}/s, raw psycopg {theirs:,.0f}/s, {mine / theirs:.0%}, at least {SHARE_FLOOR:.0%}"
        report.above("set, calls per second", text, mine / theirs, SHARE_FLOOR)
        with (
            server(host(perdure), scratch, "one", dsn) as one,
            server(host(perdure), scratch, "two", dsn) as two,
        ):
            found = wake_ups(one, two, wakes)
    report.at_most("wake-up, p50", f"{ms(p50(found))}, at most {ms(WAKE_S)}", p50(found), WAKE_S)


def _raw(dsn: str, calls: int) -> float:
    """Sets per second of threads with a connection each, one transaction per set, on rows of their own."""
    errors: list[BaseException] = []
    ready = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                _set(connection, f"raw{number}")
                ready.wait()
                for _ in range(calls // CLIENTS):
                    _set(connection, f"raw{number}")
        except BaseException as error:
            errors.append(error)
            ready.abort()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise ValueError(f"raw psycopg failed: {errors[0]}")
    return calls // CLIENTS * CLIENTS / (time.perf_counter() - start)


def _set(connection: psycopg.Connection, key: str) -> None:
    name = ("key", "default", key)
    with connection.pipeline():
        connection.execute("BEGIN")
        revision = connection.execute(sql.LOCK)
        now = connection.execute(sql.NOW)
        entry = connection.execute(sql.LOAD, [[part] for part in name])
        connection.execute(sql.LOAD_USAGE, (["default"],))
        connection.execute(sql.LOAD_ANSWERS, ([key],))
        connection.execute(sql.DUE, (128,))
    after, at = revision.fetchall()[0][0] + 1, now.fetchall()[0][0]
    found = entry.fetchall()
    version = found[0][3] + 1 if found else 1
    row = [*name, version, after, at]
    with connection.pipeline():
        connection.execute(sql.SET_REVISION, (after,))
        connection.execute(sql.PUT_ENTRIES, [[part] for part in (*row, None, VALUE)])
        connection.execute(sql.PUT_CHANGES, [[part] for part in (*row, VALUE, "raw", "", "set")])
        connection.execute(sql.GROW, (["default"], [0], [0]))
        answer = [[f"raw:{os.urandom(8).hex()}"], ["set"], ["json"], ["full"], [b"{}"]]
        connection.execute(sql.PUT_ANSWERS, (at, *answer))
    connection.execute("COMMIT")

"""Connections to PostgreSQL: pooled, with bounds that hold even where the server itself has stopped."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from perdure.storage.postgres.errors import is_lost

# A failure is raised and reported once here; the pool's own message for each attempt is not logged by default.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

MOST: Final = 10
CONNECT_S: Final = 5
OVERDUE_S: Final = 12.0
RETRY_S: Final = 6.0

T = TypeVar("T")

Connection = psycopg.Connection[tuple[Any, ...]]

_BOUNDS: Final = (
    "SET statement_timeout = '10s'; SET lock_timeout = '5s'; "
    # A worker that stopped inside a round must not keep the others waiting for ever.
    "SET idle_in_transaction_session_timeout = '10s'; "
    "SET default_transaction_isolation = 'read committed'"
)
_OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True,
    "connect_timeout": CONNECT_S,
    "application_name": "perdure",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class Connections:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._watchdog = Watchdog(OVERDUE_S)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            dsn,
            kwargs=_OPTIONS,
            min_size=1,
            max_size=MOST,
            timeout=CONNECT_S,
            # Giving up early means that the next caller tries at once instead of waiting out a backoff.
            reconnect_timeout=2.0,
            max_idle=300.0,
            configure=_configure,
            open=False,
        )
        self._pool.open()

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        with self._pool.connection() as connection, self._watchdog.guarding(connection):
            yield connection

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do what may be done again. After a restart every pooled connection is dead: each is tried, quickly."""
        until = time.monotonic() + RETRY_S
        while True:
            try:
                with self.borrowed() as connection:
                    return work(connection)
            except psycopg.Error as error:
                is_worth_it = is_lost(error) and not isinstance(error, PoolTimeout)
                if not is_worth_it or time.monotonic() >= until:
                    raise

    def alone(self) -> Connection:
        """A connection outside of the pool, for listening."""
        connection: Connection = psycopg.connect(self._dsn, **_OPTIONS)
        _configure(connection)
        return connection

    def close(self) -> None:
        self._watchdog.close()
        self._pool.close(timeout=1.0)


def _configure(connection: Connection) -> None:
    connection.execute(_BOUNDS)
    row = connection.execute("SHOW synchronous_commit").fetchone()
    if row is not None and row[0] == "off":
        connection.execute("SET synchronous_commit = on")


class Watchdog:
    """Cuts a connection whose answer is overdue. libpq waits for ever where a server hangs without dying."""

    def __init__(self, overdue_s: float) -> None:
        self._overdue_s = overdue_s
        self._due: dict[Connection, float] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        threading.Thread(target=self._run, name="state-watchdog", daemon=True).start()

    @contextmanager
    def guarding(self, connection: Connection) -> Iterator[None]:
        with self._changed:
            if not self._due:
                self._changed.notify()
            self._due[connection] = time.monotonic() + self._overdue_s
        try:
            yield
        finally:
            with self._changed:
                self._due.pop(connection, None)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._due) or self._is_closed)
                if self._is_closed:
                    return
                now = time.monotonic()
                for connection in [one for one, due in self._due.items() if due <= now]:
                    del self._due[connection]
                    _cut(connection)
                self._changed.wait(0.5)


def _cut(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)

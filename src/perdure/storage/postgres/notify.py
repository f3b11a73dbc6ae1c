"""Wake-ups between machines: a notification after commits, at most one in a few milliseconds.

The log of changes is the truth. A notification that is lost, with its sender, delays a waiter and no more.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final

import psycopg

from perdure.storage.postgres import state_queries as sql
from perdure.storage.postgres.pool import Connection, Connections

EVERY_S: Final = 0.005
LISTEN_S: Final = 0.1


class Notifier:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._wanted = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def poke(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="state-notify", daemon=True)
            self._thread.start()
        self._wanted.set()

    def close(self) -> None:
        self._is_closed = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            if self._is_closed:
                return
            self._wanted.clear()
            with suppress(psycopg.Error), self._connections.borrowed() as connection:
                connection.execute(sql.NOTIFY)
            time.sleep(EVERY_S)


class Listener:
    """Used by one thread."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._connection: Connection | None = None

    def wait(self) -> None:
        """Until a notification comes, or for a moment. Not at all where it has only begun to listen."""
        if self._connection is None:
            self._connection = self._connections.alone()
            self._connection.execute(sql.LISTEN)
            return
        try:
            for _ in self._connection.notifies(timeout=LISTEN_S, stop_after=1):
                pass
        except psycopg.Error:
            self.close()
            raise

    def close(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            found.close()

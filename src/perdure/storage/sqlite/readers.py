"""Connections for reading, one for each thread. A thread that ends leaves none behind."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import apsw

from perdure.storage.sqlite.database import close_detached


class ThreadReaders:
    """Only the thread's own storage holds a connection: it is closed when the thread ends."""

    def __init__(self, open_reader: Callable[[], apsw.Connection]) -> None:
        self._open_reader = open_reader
        self._local = threading.local()
        self._opened: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._generation = 0

    def get(self) -> apsw.Connection:
        """The calling thread's connection."""
        former: apsw.Connection | None = getattr(self._local, "connection", None)
        if former is not None and self._local.generation == self._generation:
            return former
        generation, reader = self._generation, self._open_reader()
        with self._guard:
            self._opened.add(reader)
        self._local.connection, self._local.generation = reader, generation
        if former is not None:
            close_detached(former)
        return reader

    def replace(self) -> None:
        """The file was replaced: each thread opens the new one at its next read, and closes its own former connection."""
        self._generation += 1

    def __len__(self) -> int:
        with self._guard:
            return len(self._opened)

    def close(self, *, are_detached: bool = False) -> None:
        """`are_detached`: the file was removed or replaced since they were opened."""
        with self._guard:
            readers = list(self._opened)
        for reader in readers:
            (close_detached if are_detached else apsw.Connection.close)(reader)

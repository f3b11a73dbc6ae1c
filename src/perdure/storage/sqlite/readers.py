"""Connections for reading, one for each thread. A thread that ends leaves none behind."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import apsw


class ThreadReaders:
    """Only the thread's own storage holds a connection: it is closed when the thread ends."""

    def __init__(self, open_reader: Callable[[], apsw.Connection]) -> None:
        self._open_reader = open_reader
        self._local = threading.local()
        self._opened: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._guard = threading.Lock()

    def get(self) -> apsw.Connection:
        """The calling thread's connection."""
        reader: apsw.Connection | None = getattr(self._local, "connection", None)
        if reader is None:
            reader = self._open_reader()
            with self._guard:
                self._opened.add(reader)
            self._local.connection = reader
        return reader

    def __len__(self) -> int:
        with self._guard:
            return len(self._opened)

    def close(self) -> None:
        with self._guard:
            readers = list(self._opened)
        for reader in readers:
            reader.close()

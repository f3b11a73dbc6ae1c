"""Where the book of reservations is kept: in the workspace's journal, or in a state store that several machines share.

Both keep one document, which the functions in `rules.py` change. They differ in when it may be changed:

| | changed in | time |
|---|---|---|
| `JournalBook` | the write transaction of the workspace, with the change that is checked | of this machine |
| `StateBook` | a transaction of the state store, outside the lock of the workspace | of the state store |
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from perdure.storage.errors import StateError
from perdure.storage.journal import Journal
from perdure.storage.reservations import ReservationBook
from perdure.storage.state import Author, Change, Entry, Loaded, Name, StateBackend, Usage, Wanted, Written

SECOND: Final = 1_000_000
SAME_FAILURE_S: Final = 3.0
"""How long the state store counts as unreachable after a failure: each try may take seconds."""
AUTHOR: Final = Author("perdure", "", "reserve")

T = TypeVar("T")


class Snapshot(NamedTuple):
    """`now` is in microseconds, by the clock that the times in the book are of."""

    book: ReservationBook
    now: int


Update = Callable[[Snapshot], tuple[ReservationBook, T]]
"""The book as it becomes, and the result. Pure: it may be run again."""


class BookStore(Protocol):
    is_shared: bool
    """Other machines use it, too, and it is reached over a network: not under the lock of the workspace."""

    def read(self) -> Snapshot: ...

    def update(self, change: Update[T]) -> T: ...

    def close(self) -> None: ...


class JournalBook:
    """`update` is called inside the write transaction."""

    is_shared = False

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def read(self) -> Snapshot:
        return Snapshot(self._journal.reservation_book(), int(time.time() * SECOND))

    def update(self, change: Update[T]) -> T:
        before = self.read()
        book, result = change(before)
        if book is not before.book:
            self._journal.save_reservation_book(book)
        return result

    def close(self) -> None:
        pass


class StateBook:
    """Opened at its first use, and again after a failure. Raises StateError, whose text says that it is about
    reservations."""

    is_shared = True

    def __init__(self, open_backend: Callable[[], StateBackend], repository: str) -> None:
        self._open = open_backend
        self._name: Name = ("reservations", "default", repository)
        self._backend: StateBackend | None = None
        self._failure: tuple[float, StateError] | None = None
        self._guard = threading.Lock()

    def read(self) -> Snapshot:
        found = self._use(lambda backend: backend.find(self._name))
        return Snapshot(_decode(found.entry), found.now)

    def update(self, change: Update[T]) -> T:
        results: list[T] = []

        def decide(loaded: Loaded) -> Written | None:
            entry = loaded.entries.get(self._name)
            before = Snapshot(_decode(entry), loaded.now)
            book, result = change(before)
            results[:] = [result]
            return None if book is before.book else self._written(loaded, entry, book)

        wanted = Wanted(frozenset({self._name}), frozenset({self._name[1]}))
        self._use(lambda backend: backend.round(wanted, decide))
        return results[0]

    def close(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()

    def _written(self, loaded: Loaded, before: Entry | None, book: ReservationBook) -> Written:
        revision = loaded.revision + 1
        entry = Entry(
            *self._name,
            version=before.version + 1 if before is not None else 1,
            revision=revision,
            updated=loaded.now,
            expires=None,
            value=msgspec.json.encode(book).decode(),
        )
        return Written(revision, [entry], [Change(entry, AUTHOR)], {self._name[1]: Usage()}, [])

    def _use(self, work: Callable[[StateBackend], T]) -> T:
        with self._guard:
            if self._failure is not None and time.monotonic() - self._failure[0] < SAME_FAILURE_S:
                raise self._failure[1]
        try:
            result = work(self._opened())
        except StateError as error:
            described = StateError(
                error.fault,
                error.code,
                f"reservations are in the shared state, which cannot be used: {error.detail}",
                error.retry,
                outcome=error.outcome,
            )
            if error.fault == "transport":
                self._failure = (time.monotonic(), described)
            raise described from None
        self._failure = None
        return result

    def _opened(self) -> StateBackend:
        with self._guard:
            if self._backend is None:
                self._backend = self._open()
            return self._backend


_decoder: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(ReservationBook)
_EMPTY: Final = ReservationBook()


def _decode(entry: Entry | None) -> ReservationBook:
    if entry is None or entry.value is None:
        return _EMPTY
    book: ReservationBook = _decoder.decode(entry.value)
    return book

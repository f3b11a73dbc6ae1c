"""What is kept of reservations: one small document, read and replaced as a whole."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

Mode = Literal["exclusive", "shared"]


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Paths that an owner holds until a time. `owner` is the client's process, or its session where no process is known.
    `machine` is the name of its machine, where several share the book.

    `paths` are paths or patterns as `workspace/reservations/patterns.py` reads them. Times are in microseconds.
    """

    token: int
    owner: str
    client: str
    agent: str | None = None
    turn: int | None = None
    machine: str | None = None
    paths: tuple[str, ...]
    mode: Mode
    reason: str = ""
    since: int
    until: int


class Notice(msgspec.Struct, frozen=True):
    """What an owner is to be told at its next call: another client's shell command changed its paths."""

    owner: str
    text: str


class ReservationBook(msgspec.Struct, frozen=True):
    """All reservations of a workspace, or of a repository. A token is given out once: `last_token` only grows."""

    last_token: int = 0
    reservations: tuple[Reservation, ...] = ()
    notices: tuple[Notice, ...] = ()


class ReservationReading(Protocol):
    def reservation_book(self) -> ReservationBook: ...


class ReservationWriting(Protocol):
    """Inside the write transaction."""

    def save_reservation_book(self, book: ReservationBook) -> None: ...

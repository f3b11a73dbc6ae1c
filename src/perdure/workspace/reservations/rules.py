"""The rules of reservations, as pure functions of the book, the request and the time.

An exclusive reservation keeps every other owner from its paths. Owners of shared ones may all write; others may not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from perdure.storage.reservations import Mode, Notice, Reservation, ReservationBook
from perdure.workspace.errors import WorkspaceError
from perdure.workspace.reservations.patterns import covers, overlap

MOST_RESERVATIONS: Final = 1000
MOST_NOTICES: Final = 100


class Request(NamedTuple):
    owner: str
    client: str
    agent: str | None
    turn: int | None
    machine: str | None
    paths: tuple[str, ...]
    mode: Mode
    reason: str


class Held(NamedTuple):
    """A path of a request or a write, and the reservation that is in its way."""

    path: str
    by: Reservation


class TooManyReservations(WorkspaceError):
    """The book is full."""


def prune(book: ReservationBook, now: int) -> ReservationBook:
    """Without reservations that have expired."""
    active = tuple(one for one in book.reservations if now < one.until)
    if len(active) == len(book.reservations):
        return book
    return msgspec.structs.replace(book, reservations=active)


def find_holders(book: ReservationBook, request: Request) -> list[Held]:
    """The reservations of other owners that keep a request from being granted."""
    return [
        Held(path, one)
        for one in book.reservations
        if one.owner != request.owner and "exclusive" in (one.mode, request.mode)
        for path in request.paths
        if any(overlap(path, reserved) for reserved in one.paths)
    ]


def acquire(
    book: ReservationBook, request: Request, now: int, ttl_us: int
) -> tuple[ReservationBook, Reservation]:
    """All paths, which no other owner holds."""
    if len(book.reservations) >= MOST_RESERVATIONS:
        raise TooManyReservations
    token = book.last_token + 1
    made = Reservation(token=token, since=now, until=now + ttl_us, **request._asdict())
    return _with(book, (*book.reservations, made), token), made


def renew(book: ReservationBook, token: int, until: int) -> tuple[ReservationBook, Reservation]:
    renewed = msgspec.structs.replace(_by_token(book, token), until=until)
    return _with(book, (*_without(book, token), renewed)), renewed


def release(book: ReservationBook, tokens: Iterable[int]) -> ReservationBook:
    return _with(book, _without(book, *tokens))


def add_notices(book: ReservationBook, notices: Iterable[Notice]) -> ReservationBook:
    """Only the newest are kept: an owner may never make another call."""
    return msgspec.structs.replace(book, notices=(*book.notices, *notices)[-MOST_NOTICES:])


def take_notices(book: ReservationBook, owner: str) -> tuple[ReservationBook, list[str]]:
    """What an owner is to be told now, and the book without it."""
    told = list(dict.fromkeys(notice.text for notice in book.notices if notice.owner == owner))
    left = tuple(notice for notice in book.notices if notice.owner != owner)
    return msgspec.structs.replace(book, notices=left), told


def find_token(book: ReservationBook, token: int, owner: str) -> Reservation | Literal["lost", "not_found"]:
    """`lost`: the token was given out, and has expired or was released. Of another owner's nothing is told."""
    for one in book.reservations:
        if one.token == token:
            return one if one.owner == owner else "not_found"
    return "lost" if 0 < token <= book.last_token else "not_found"


def find_blocking(book: ReservationBook, path: str, owner: str) -> list[Held]:
    """The reservations that keep an owner from writing a path."""
    covering = [one for one in book.reservations if any(covers(pattern, path) for pattern in one.paths)]
    is_holder = any(one.owner == owner for one in covering)
    return [
        Held(path, one)
        for one in covering
        if one.owner != owner and (one.mode == "exclusive" or not is_holder)
    ]


def _with(
    book: ReservationBook, reservations: tuple[Reservation, ...], last_token: int | None = None
) -> ReservationBook:
    token = book.last_token if last_token is None else last_token
    return msgspec.structs.replace(book, reservations=reservations, last_token=token)


def _by_token(book: ReservationBook, token: int) -> Reservation:
    return next(one for one in book.reservations if one.token == token)


def _without(book: ReservationBook, *tokens: int) -> tuple[Reservation, ...]:
    return tuple(one for one in book.reservations if one.token not in tokens)

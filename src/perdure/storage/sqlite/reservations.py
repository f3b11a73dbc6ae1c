"""The document of reservations in the journal's database."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from perdure.storage.reservations import ReservationBook

_EMPTY = ReservationBook()
_decoder = msgspec.json.Decoder(ReservationBook)


def reservation_book(connection: apsw.Connection) -> ReservationBook:
    row: Any = connection.execute("SELECT book FROM reservations").fetchone()
    return _decoder.decode(row[0]) if row is not None else _EMPTY


def save_reservation_book(connection: apsw.Connection, book: ReservationBook) -> None:
    text = msgspec.json.encode(book).decode()
    connection.execute("INSERT OR REPLACE INTO reservations (id, book) VALUES (1, ?)", (text,))

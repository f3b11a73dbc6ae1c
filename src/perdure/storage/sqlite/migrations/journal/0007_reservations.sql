-- Reservations of paths: one JSON document (ReservationBook).

CREATE TABLE reservations (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    book TEXT NOT NULL
);

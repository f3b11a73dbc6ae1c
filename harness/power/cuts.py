"""The disk as a power cut can leave it: all that was flushed, and of what came after it, anything.

A cut falls between two records of the log. What was written before the last flush is on the medium. Each 4 KiB block
written since is there or not, whatever the order; one may be torn between its sectors.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from harness.power import devices
from harness.power.disk_log import Flush, Mark, Record, Write

SECTOR: Final = 512
ATTEMPTS: Final = 20


class Piece(msgspec.Struct, frozen=True):
    """Part of a write: record number, and from where to where in its data."""

    record: int
    start: int
    end: int


class Cut(msgspec.Struct, frozen=True):
    """`flushed` records are on the medium, of those up to `position` only `kept`."""

    position: int
    flushed: int
    kept: tuple[Piece, ...] = ()


class _Epoch(msgspec.Struct, frozen=True):
    """From one flush to the next."""

    start: int
    end: int


def choose(log: Sequence[Record], count: int, seed: int, start: int = 0) -> list[Cut]:
    """Different states of the disk from `start` on, in the order of the log: ends of epochs first, then at random."""
    chance = random.Random(seed)
    epochs = list(_epochs(log, start))
    marks = _marks_before(log)
    found: dict[tuple[object, ...], Cut] = {}

    def take(cut: Cut) -> None:
        found.setdefault((cut.flushed, cut.kept, marks[cut.position]), cut)

    ends = [epoch for epoch in epochs if epoch.end > epoch.start]
    for epoch in chance.sample(ends, min(len(ends), count // 3)):
        take(Cut(epoch.end, epoch.start))
        take(Cut(epoch.end, epoch.start, tuple(_pieces(log, epoch.start, epoch.end))))
    for _ in range(count * ATTEMPTS):
        if len(found) >= count:
            break
        epoch = chance.choice(epochs)
        position = chance.randint(epoch.start, epoch.end)
        pieces = list(_pieces(log, epoch.start, position))
        take(Cut(position, epoch.start, tuple(_some(pieces, chance))))
    return sorted(list(found.values())[:count], key=lambda cut: (cut.flushed, cut.position))


def _epochs(log: Sequence[Record], start: int) -> Iterator[_Epoch]:
    for number in range(start, len(log)):
        if isinstance(log[number], Flush):
            yield _Epoch(start, number)
            start = number + 1
    yield _Epoch(start, len(log))


def _marks_before(log: Sequence[Record]) -> list[int]:
    counts = [0]
    for record in log:
        counts.append(counts[-1] + isinstance(record, Mark))
    return counts


def _pieces(log: Sequence[Record], start: int, end: int) -> Iterator[Piece]:
    for number in range(start, end):
        record = log[number]
        if isinstance(record, Write):
            for at in range(0, len(record.data), devices.BLOCK):
                yield Piece(number, at, min(at + devices.BLOCK, len(record.data)))


def _some(pieces: list[Piece], chance: random.Random) -> list[Piece]:
    """A part of what the disk had in its cache, in one of the ways in which disks choose."""
    if not pieces:
        return []
    records = sorted({piece.record for piece in pieces})
    one = chance.choice(records)
    match chance.randrange(7):
        case 0:
            return [piece for piece in pieces if piece.record != one]
        case 1:
            return [piece for piece in pieces if piece.record == one]
        case 2:
            return pieces[: chance.randint(0, len(pieces))]
        case 3:
            return pieces[chance.randint(0, len(pieces)) :]
        case 4:
            kept = {record for record in records if chance.random() < 0.5}
            return [piece for piece in pieces if piece.record in kept]
        case 5:
            return _torn(pieces[: chance.randint(1, len(pieces))], chance)
        case _:
            share = chance.choice((0.1, 0.5, 0.9))
            return [piece for piece in pieces if chance.random() < share]


def _torn(pieces: list[Piece], chance: random.Random) -> list[Piece]:
    *whole, last = pieces
    middle = last.start + SECTOR * chance.randint(0, (last.end - last.start) // SECTOR)
    half = (
        Piece(last.record, last.start, middle)
        if chance.random() < 0.5
        else Piece(last.record, middle, last.end)
    )
    return [*whole, half]


class Disk:
    """The disk at one cut after another, in their order."""

    def __init__(self, image: int, log: Sequence[Record]) -> None:
        self._log = log
        self._flushed = devices.copied(image)
        self._applied = 0

    def close(self) -> None:
        os.close(self._flushed)

    def at(self, cut: Cut) -> int:
        """A memory file of its own, the caller's to close."""
        for record in self._log[self._applied : cut.flushed]:
            if isinstance(record, Write):
                os.pwrite(self._flushed, record.data, record.offset)
        self._applied = max(self._applied, cut.flushed)
        state = devices.copied(self._flushed)
        for piece in cut.kept:
            record = self._log[piece.record]
            assert isinstance(record, Write)
            os.pwrite(state, record.data[piece.start : piece.end], record.offset + piece.start)
        return state

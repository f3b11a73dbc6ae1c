"""Things that are dear to make and of which one is needed at a time: who is done with one leaves it to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Spares(Generic[T]):
    """Several threads may take and give at once. As many are kept as were ever needed at the same time."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._spare: list[T] = []

    def take(self) -> T:
        try:
            return self._spare.pop()
        except IndexError:
            return self._make()

    def give(self, thing: T) -> None:
        """What was not given back, because of an error, is made anew."""
        self._spare.append(thing)

    def forget(self) -> None:
        """None of them can be used any more."""
        self._spare.clear()

"""A free list for objects that are expensive to create."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FreeList(Generic[T]):
    """Safe for several threads. Keeps as many objects as were ever in use at the same time."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: list[T] = []

    def take(self) -> T:
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give(self, thing: T) -> None:
        """An object that an error kept from being given back is replaced by a new one."""
        self._free.append(thing)

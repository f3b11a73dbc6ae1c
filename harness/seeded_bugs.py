"""Seeded bugs: faults that are put into the running product, and that a judge must find.

A judge that finds no violation proves nothing unless it also finds the bugs that are there. A seeded bug is a function
that replaces functions, methods or attributes of the product in its own process; it stays until the process ends. A
target that the product no longer has raises AttributeError.

`from module import name` copies a reference: replace the name in the module that calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Apply = Callable[[], None]
Function = Callable[..., Any]


class SeededBug(NamedTuple):
    """`trial` is the kind of run that meets the bug soonest, in the judge's own terms."""

    name: str
    apply: Apply
    trial: str

    @property
    def description(self) -> str:
        return (self.apply.__doc__ or self.name).strip().rstrip(".")


class SeededBugs(dict[str, SeededBug]):
    """The seeded bugs of one judge, by name."""

    def add(self, name: str, trial: str = "") -> Callable[[Apply], Apply]:
        def register(apply: Apply) -> Apply:
            if name in self:
                raise ValueError(f"two seeded bugs are called {name!r}")
            self[name] = SeededBug(name, apply, trial)
            return apply

        return register


def replace(owner: object, name: str, value: object) -> None:
    getattr(owner, name)
    setattr(owner, name, value)


def wrap(owner: object, name: str, make: Callable[[Function], Function]) -> None:
    """Replace a function by one that is made from it."""
    replace(owner, name, make(getattr(owner, name)))


def before(owner: object, name: str, step: Function) -> None:
    """Call `step` with the function's arguments before each call of it."""

    def make(original: Function) -> Function:
        def stepped(*args: Any, **options: Any) -> Any:
            step(*args, **options)
            return original(*args, **options)

        return stepped

    wrap(owner, name, make)


def after(owner: object, name: str, step: Function) -> None:
    """Call `step` with the function's arguments after each call of it."""

    def make(original: Function) -> Function:
        def stepped(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            step(*args, **options)
            return result

        return stepped

    wrap(owner, name, make)


def skip_if(owner: object, name: str, condition: Callable[..., bool]) -> None:
    """Leave out the calls of the function for whose arguments the condition is true."""

    def make(original: Function) -> Function:
        def skipping(*args: Any, **options: Any) -> Any:
            return None if condition(*args, **options) else original(*args, **options)

        return skipping

    wrap(owner, name, make)


def do_nothing(*_: Any, **__: Any) -> None:
    pass

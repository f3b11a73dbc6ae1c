"""Changes of a text as splices: what is not spliced stays, byte for byte, because nothing rewrites it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Uneditable(ValueError):
    """The text cannot be changed as asked without touching more than the change. Holds no content of it."""


class Splice(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


class Scalar(NamedTuple):
    """Where a value stands in a text, under which keys, and what it says if it is a string."""

    path: tuple[str | int, ...]
    start: int
    end: int
    value: str


class ConfigText(Protocol):
    """One format of files that hold servers. Every method raises Uneditable; every change is one new text."""

    def servers(self, text: str) -> dict[str, Any]: ...

    def scalars(self, text: str, start: int = 0, end: int | None = None) -> list[Scalar]:
        """At least those between two places, and lists as a whole."""

    def with_entries(self, text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
        """With new entries, all in one change."""

    def with_field(self, text: str, name: str, field: str, value: Any) -> str: ...

    def without_field(self, text: str, name: str, field: str) -> str: ...

    def without_entries(self, text: str, names: Collection[str]) -> str: ...


def spliced(text: str, splices: Iterable[Splice]) -> str:
    parts = []
    at = 0
    for one in sorted(splices, key=lambda splice: splice[:2]):
        if one.start < at:
            raise Uneditable("two changes meet")
        parts += [text[at : one.start], one.new]
        at = one.end
    parts.append(text[at:])
    return "".join(parts)


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Behind the line break of the line that holds `at`; the end of the text where there is none."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def newline_of(text: str) -> str:
    """The line break the text uses first."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def shared_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How much of it both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low

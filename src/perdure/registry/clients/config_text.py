"""Servers in a client's config file, edited in place.

A `Syntax` (JSON, TOML, YAML) reads a text and changes members of one object or list in it; every other byte stays.
`ConfigText` knows where the servers are. It reads each new text again: unless that says exactly what was meant, the edit is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

Key = str | int
Path = tuple[Key, ...]
NAME: Final = "name"


class Uneditable(ValueError):
    """The text cannot be changed as asked without touching more than the change. Holds no content of it."""


class Scalar(NamedTuple):
    """The place of a value in a text, its path of keys, and what it says if it is a string."""

    path: Path
    start: int
    end: int
    value: str


class Syntax(Protocol):
    """A file format. Every method raises Uneditable."""

    def load(self, text: str) -> Any:
        """What the text says. The value is cached and must not be changed."""

    def put(self, text: str, path: Path, members: Mapping[Key, Any]) -> str:
        """The text with these members in the object or list at a path, which is created if it is missing."""

    def remove(self, text: str, path: Path, keys: Collection[Key]) -> str: ...

    def scalars(self, text: str) -> list[Scalar]: ...


class ConfigText:
    """`root` is the key of the servers: an object by name, or a list whose items have a `name`."""

    def __init__(self, syntax: Syntax, root: str, *, is_list: bool = False) -> None:
        self.syntax = syntax
        self.root = root
        self.is_list = is_list

    def servers(self, text: str) -> dict[str, Any]:
        """By name; the first of several with one name. An item without a name belongs to no client's format."""
        servers = self._servers(text)
        if isinstance(servers, dict):
            return {str(name): value for name, value in servers.items()}
        return {
            name: {key: value for key, value in item.items() if key != NAME}
            for item in reversed(servers)
            if (name := _name_of(item)) is not None
        }

    def with_entries(self, text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
        """With new entries, all in one change."""
        servers = self._servers(text)
        members: dict[Key, Any] = {name: dict(fields) for name, fields in entries.items()}
        if self.is_list:
            items = enumerate(members.items(), len(servers))
            members = {index: {NAME: name, **fields} for index, (name, fields) in items}
        return self._put(text, (self.root,), members)

    def without_entries(self, text: str, names: Collection[str]) -> str:
        return self._remove(text, (self.root,), [self._path(text, name)[1] for name in names])

    def with_field(self, text: str, name: str, field: str, value: Any) -> str:
        return self._put(text, self._path(text, name), {field: value})

    def without_field(self, text: str, name: str, field: str) -> str:
        return self._remove(text, self._path(text, name), [field])

    def _servers(self, text: str) -> Any:
        data = self.syntax.load(text)
        if not isinstance(data, dict | None):
            raise Uneditable("the file is not an object")
        servers = (data or {}).get(self.root)
        if servers is None:
            return [] if self.is_list else {}
        if not isinstance(servers, list if self.is_list else dict):
            raise Uneditable(f"{self.root} is not {'a list' if self.is_list else 'an object'}")
        return servers

    def _path(self, text: str, name: str) -> tuple[str, Key]:
        servers = self._servers(text)
        if self.is_list:
            names = list(map(_name_of, servers))
            if name in names:
                return self.root, names.index(name)
        elif isinstance(servers.get(name), dict):
            return self.root, name
        raise Uneditable(f"{name} is not a table of settings")

    def _put(self, text: str, path: Path, members: Mapping[Key, Any]) -> str:
        def put(value: Any) -> Any:
            return [*value, *members.values()] if isinstance(value, list) else {**(value or {}), **members}

        empty: Any = [] if self.is_list and len(path) == 1 else {}
        meant = _change_at(self.syntax.load(text), path, lambda value: put(empty if value is None else value))
        return self._check(self.syntax.put(text, path, members), meant)

    def _remove(self, text: str, path: Path, keys: Collection[Key]) -> str:
        def remove(value: Any) -> Any:
            if isinstance(value, list):
                return [item for index, item in enumerate(value) if index not in keys]
            return {key: item for key, item in value.items() if key not in keys}

        meant = _change_at(self.syntax.load(text), path, remove)
        return self._check(self.syntax.remove(text, path, keys), meant)

    def _check(self, text: str, meant: Any) -> str:
        """The new text, if it says what was meant. An empty object of servers says the same as none."""

        def normal(data: Any) -> Any:
            return {key: value for key, value in (data or {}).items() if key != self.root or value}

        if normal(self.syntax.load(text)) != normal(meant):
            raise Uneditable("the way it is written cannot be changed in place")
        return text


def _change_at(data: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """The data with a changed value at a path. Only what is above the change is copied."""
    if not path:
        return change(data)
    key, *rest = path
    if isinstance(data, list):
        return [_change_at(item, tuple(rest), change) if at == key else item for at, item in enumerate(data)]
    return {**(data or {}), key: _change_at((data or {}).get(key), tuple(rest), change)}


def _name_of(item: Any) -> str | None:
    name = item.get(NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


# --- Helpers for splicing a text ---


class Splice(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


def splice(text: str, *splices: Splice) -> str:
    parts, at = [], 0
    for change in sorted(splices, key=lambda change: change[:2]):
        if change.start < at:
            raise Uneditable("two changes overlap")
        parts += [text[at : change.start], change.new]
        at = change.end
    return "".join([*parts, text[at:]])


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """After the line break of the line that holds `at`; the end of the text if there is none."""
    return text.find("\n", at) + 1 or len(text)


def newline_of(text: str) -> str:
    """The line break that the text uses first."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def common_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The length of the prefix that two texts or lists share. By bisection: a file can be large."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def is_blank(text: str) -> bool:
    return not text.strip("\ufeff \t\r\n")

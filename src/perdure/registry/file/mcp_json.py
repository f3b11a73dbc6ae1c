"""`mcp.json` as a registry: the object `mcpServers`, changed value by value; every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.registry.entry import Entry
from perdure.registry.entry_json import OWN, from_object, to_object
from perdure.registry.errors import RegistryError, Unreadable
from perdure.registry.file import jsonc
from perdure.registry.file.document import Document, ParsedEntry, line_numbers
from perdure.registry.file.jsonc import JsonProblem, Node

SERVERS: Final = "mcpServers"
EMPTY: Final = "{}\n"


class JsonDocument(Document):
    """Comments and trailing commas are kept. Raises Unreadable for a file that is not an object."""

    def __init__(self, text: str) -> None:
        self.text = text if text.strip("\ufeff \t\r\n") else text + EMPTY
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            [line] = line_numbers(self.text, [error.start])
            raise Unreadable(f"line {line}: the file is not UTF-8") from None
        try:
            root = jsonc.parse(self.text)
        except JsonProblem as error:
            raise Unreadable(f"the file is not JSON: {error}") from None
        servers = jsonc.find(root, [SERVERS])
        if root.kind != "object" or (servers is not None and servers.kind != "object"):
            [line] = line_numbers(self.text, [(servers or root).start])
            raise Unreadable(f"line {line}: the file holds no object {SERVERS}")
        members = [] if servers is None else servers.elements
        self._check_count([member.start for member in members])
        lines = line_numbers(self.text, [member.start for member in members])
        self._servers = [
            (member.key, member.node.value, line) for member, line in zip(members, lines, strict=True)
        ]
        self.allowed = _read_allowed(root.value.get(OWN))

    def slot(self, name: str) -> ParsedEntry | None:
        return next((_slot(*member) for member in self._servers if member[0] == name), None)

    def _every_slot(self) -> list[ParsedEntry]:
        return [_slot(*member) for member in self._servers]

    def with_entries(self, *entries: Entry) -> str:
        return _with_entries(self.text, entries)

    def without_entries(self, *names: str) -> str:
        servers = jsonc.find(jsonc.parse(self.text), [SERVERS])
        if servers is None:
            return self.text
        return jsonc.without(
            self.text, servers, *(at for at, member in enumerate(servers.elements) if member.key in names)
        )

    def with_enabled(self, name: str, enabled: bool) -> str:
        text = self.text
        for key, off in (("enabled", False), ("disabled", True)):
            node = _member(text, name, key)
            if node is not None and (node.value == off) == enabled:
                text = jsonc.replace(text, node, not off if enabled else off)
        if not enabled and not any(_member(text, name, key) for key in ("enabled", "disabled")):
            text = jsonc.append(text, _server(text, name), "disabled", True)
        return text

    def with_replaced(self, entry: Entry) -> str:
        """Only the members that differ are written."""
        slot = self.slot(entry.name)
        assert slot is not None
        assert slot.entry is not None
        old, new = to_object(slot.entry), to_object(entry)
        text = self.text
        for key in [*new, *(key for key in old if key not in new)]:
            if key in ("type", "disabled") or old.get(key) != new.get(key):
                text = _with_member(text, entry.name, key, new.get(key))
        return text


def _with_entries(text: str, entries: Sequence[Entry]) -> str:
    servers = jsonc.find(jsonc.parse(text), [SERVERS])
    if servers is None:
        first, *rest = entries
        text = jsonc.put(text, [SERVERS, first.name], to_object(first))
        return _with_entries(text, rest) if rest else text
    return jsonc.append_all(text, servers, [(entry.name, to_object(entry)) for entry in entries])


def _with_member(text: str, name: str, key: str, value: Any) -> str:
    server = _server(text, name)
    node = jsonc.find(server, [key])
    if node is not None and value is not None:
        return text if node.value == value else jsonc.replace(text, node, value)
    if node is not None:
        return jsonc.without(
            text, server, max(at for at, member in enumerate(server.elements) if member.key == key)
        )
    return text if value is None else jsonc.append(text, server, key, value)


def _server(text: str, name: str) -> Node:
    """The first of the name: `find` returns the last one, which may be a duplicate."""
    servers = jsonc.find(jsonc.parse(text), [SERVERS])
    assert servers is not None
    return next(member.node for member in servers.elements if member.key == name)


def _member(text: str, name: str, key: str) -> Node | None:
    return jsonc.find(_server(text, name), [key])


def _slot(name: str, value: Any, line: int) -> ParsedEntry:
    if not _is_text(name):
        shown = name.encode("ascii", "backslashreplace").decode()
        return ParsedEntry(shown, None, "the name is not text: half of a surrogate pair", line)
    try:
        return ParsedEntry(name, from_object(name, value), line=line)
    except RegistryError as error:
        return ParsedEntry(name, None, error.message, line)


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8. JSON can name half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_allowed(own: Any) -> frozenset[str] | None:
    """A list that is not valid allows nothing."""
    if not isinstance(own, dict) or "allowedCommands" not in own:
        return None
    listed = own["allowedCommands"]
    is_valid = isinstance(listed, list) and all(
        isinstance(command, str) and _is_text(command) for command in listed
    )
    return frozenset(listed) if is_valid else frozenset()

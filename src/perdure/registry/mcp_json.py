"""`mcp.json` as a registry: the object `mcpServers`, changed value by value, so that every other byte stays."""

from __future__ import annotations

from perdure.registry.document import Document, Slot
from perdure.registry.entry_json import OWN, from_object, to_object
from perdure.registry.errors import RegistryError, Unreadable
from perdure.registry.json_reading import JsonProblem, parse
from perdure.registry.json_spans import append, find, plain, put, replaced, without

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from perdure.registry.entry import Entry
    from perdure.registry.json_reading import Node

SERVERS = "mcpServers"
EMPTY = "{}\n"


class JsonDocument(Document):
    """The text of an `mcp.json`. Comments and trailing commas are kept. Raises Unreadable for what is no object."""

    def __init__(self, text: str) -> None:
        self.text = text if text.strip("\ufeff \t\r\n") else text + EMPTY
        try:
            self.text.encode()
            self._root = parse(self.text)
        except UnicodeEncodeError:
            raise Unreadable("the file is not UTF-8") from None
        except JsonProblem as error:
            raise Unreadable(f"the file is not JSON: {error}") from None
        servers = find(self._root, [SERVERS])
        if self._root.kind != "object" or (servers is not None and servers.kind != "object"):
            raise Unreadable(f"the file holds no object {SERVERS}")
        self._servers = servers
        self.allowed = _allowed(find(self._root, [OWN, "allowedCommands"]))

    def slot(self, name: str) -> Slot | None:
        elements = self._servers.elements if self._servers is not None else ()
        return next((_slot(one.key, plain(one.node)) for one in elements if one.key == name), None)

    def _every_slot(self) -> list[Slot]:
        elements = self._servers.elements if self._servers is not None else ()
        return [_slot(one.key, plain(one.node)) for one in elements]

    def installed(self, entry: Entry) -> str:
        if self._servers is None:
            return put(self.text, [SERVERS, entry.name], to_object(entry))
        return append(self.text, self._servers, entry.name, to_object(entry))

    def uninstalled(self, name: str) -> str:
        text = self.text
        while (found := find(parse(text), [SERVERS])) is not None:
            at = next((n for n, one in enumerate(found.elements) if one.key == name), None)
            if at is None:
                break
            text = without(text, found, at)
        return text

    def enabled(self, name: str, enabled: bool) -> str:
        text = self.text
        for key, off in (("enabled", False), ("disabled", True)):
            node = self._member(text, name, key)
            if node is not None and (node.value == off) == enabled:
                text = replaced(text, node, not off if enabled else off)
        if not enabled and not any(self._member(text, name, key) for key in ("enabled", "disabled")):
            text = append(text, self._server(text, name), "disabled", True)
        return text

    def replaced(self, entry: Entry) -> str:
        """Only the members that differ are written anew."""
        slot = self.slot(entry.name)
        assert slot is not None
        assert slot.entry is not None
        old, new = to_object(slot.entry), to_object(entry)
        text = self.text
        for key in [*new, *(key for key in old if key not in new)]:
            if key not in ("type", "disabled") and old.get(key) == new.get(key):
                continue
            text = self._with_member(text, entry.name, key, new.get(key))
        return text

    def _with_member(self, text: str, name: str, key: str, value: Any) -> str:
        server = self._server(text, name)
        node = find(server, [key])
        if node is not None and value is not None:
            return text if plain(node) == value else replaced(text, node, value)
        if node is not None:
            return without(text, server, max(n for n, one in enumerate(server.elements) if one.key == key))
        return text if value is None else append(text, server, key, value)

    def _server(self, text: str, name: str) -> Node:
        """The first of the name: the last one, which `find` gives, may be a duplicate."""
        servers = find(parse(text), [SERVERS])
        assert servers is not None
        return next(one.node for one in servers.elements if one.key == name)

    def _member(self, text: str, name: str, key: str) -> Node | None:
        return find(self._server(text, name), [key])


def _slot(name: str, value: Any) -> Slot:
    try:
        return Slot(name, from_object(name, value))
    except RegistryError as error:
        return Slot(name, None, error.message)


def _allowed(node: Node | None) -> frozenset[str] | None:
    """A list that cannot be read allows nothing: it was meant to narrow."""
    if node is None:
        return None
    listed = plain(node)
    is_sound = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
    return frozenset(listed) if is_sound else frozenset()

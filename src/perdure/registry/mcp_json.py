"""`mcp.json` as a registry: what the object `mcpServers` lists.

What is only read is decoded as a whole. The places of its values are looked up where it is changed, and where the
decoder would not say all: comments, and a key that stands twice (`perdure.registry.json_edits`).
"""

from __future__ import annotations

from perdure.model import json_values
from perdure.registry.document import Document, Slot
from perdure.registry.entry_json import OWN, from_object
from perdure.registry.errors import RegistryError, Unreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from perdure.registry.entry import Entry

    # The root, and its servers where they are an object.
    Found = tuple[Any, list[tuple[str, Any]] | None]

SERVERS = "mcpServers"
EMPTY = "{}\n"


class JsonDocument(Document):
    """The text of an `mcp.json`. Comments and trailing commas are kept. Raises Unreadable for what is no object."""

    def __init__(self, text: str) -> None:
        self.text = text if text.strip("\ufeff \t\r\n") else text + EMPTY
        try:
            self.text.encode()
        except UnicodeEncodeError:
            raise Unreadable("the file is not UTF-8") from None
        root, servers = _decoded(self.text) or _walked(self.text)
        if not isinstance(root, dict) or servers is None:
            raise Unreadable(f"the file holds no object {SERVERS}")
        self._servers = servers
        self.allowed = _allowed(root.get(OWN))

    def slot(self, name: str) -> Slot | None:
        return next((_slot(key, value) for key, value in self._servers if key == name), None)

    def _every_slot(self) -> list[Slot]:
        return [_slot(key, value) for key, value in self._servers]

    def installed(self, *entries: Entry) -> str:
        from perdure.registry.json_edits import installed

        return installed(self.text, entries)

    def uninstalled(self, *names: str) -> str:
        from perdure.registry.json_edits import uninstalled

        text = self.text
        for name in names:
            text = uninstalled(text, name)
        return text

    def enabled(self, name: str, enabled: bool) -> str:
        from perdure.registry.json_edits import switched

        return switched(self.text, name, enabled)

    def replaced(self, entry: Entry) -> str:
        from perdure.registry.json_edits import exchanged

        slot = self.slot(entry.name)
        assert slot is not None
        assert slot.entry is not None
        return exchanged(self.text, slot.entry, entry)


def _decoded(text: str) -> Found | None:
    """By the decoder, where that says all; None else."""
    try:
        root = json_values.loads(text.removeprefix("\ufeff"), _without_repeats)
    except (ValueError, RecursionError):
        return None
    servers = root.get(SERVERS, {}) if isinstance(root, dict) else None
    return root, [*servers.items()] if isinstance(servers, dict) else None


def _walked(text: str) -> Found:
    from perdure.registry.json_reading import JsonProblem, parse
    from perdure.registry.json_spans import find, plain

    try:
        root = parse(text)
        servers = find(root, [SERVERS])
        if root.kind != "object":
            return None, None
        if servers is None or servers.kind != "object":
            return plain(root), [] if servers is None else None
        return plain(root), [(one.key, plain(one.node)) for one in servers.elements]
    except JsonProblem as error:
        raise Unreadable(f"the file is not JSON: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _slot(name: str, value: Any) -> Slot:
    try:
        return Slot(name, from_object(name, value))
    except RegistryError as error:
        return Slot(name, None, error.message)


def _allowed(own: Any) -> frozenset[str] | None:
    """A list that cannot be read allows nothing: it was meant to narrow."""
    if not isinstance(own, dict) or "allowedCommands" not in own:
        return None
    listed = own["allowedCommands"]
    is_sound = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
    return frozenset(listed) if is_sound else frozenset()

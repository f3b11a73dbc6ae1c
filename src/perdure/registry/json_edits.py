"""One entry put into the text of an `mcp.json`, changed or taken out, value by value: every other byte stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.registry.entry import Entry
from perdure.registry.entry_json import to_object
from perdure.registry.json_reading import Node, parse
from perdure.registry.json_spans import append, append_all, find, plain, put, replaced, without
from perdure.registry.mcp_json import SERVERS


def installed(text: str, entries: Sequence[Entry]) -> str:
    servers = find(parse(text), [SERVERS])
    if servers is None:
        first, *rest = entries
        text = put(text, [SERVERS, first.name], to_object(first))
        return installed(text, rest) if rest else text
    return append_all(text, servers, [(entry.name, to_object(entry)) for entry in entries])


def uninstalled(text: str, name: str) -> str:
    """Without every member of this name: also the duplicates, which would come to light otherwise."""
    while (found := find(parse(text), [SERVERS])) is not None:
        at = next((n for n, one in enumerate(found.elements) if one.key == name), None)
        if at is None:
            break
        text = without(text, found, at)
    return text


def switched(text: str, name: str, enabled: bool) -> str:
    for key, off in (("enabled", False), ("disabled", True)):
        node = _member(text, name, key)
        if node is not None and (node.value == off) == enabled:
            text = replaced(text, node, not off if enabled else off)
    if not enabled and not any(_member(text, name, key) for key in ("enabled", "disabled")):
        text = append(text, _server(text, name), "disabled", True)
    return text


def exchanged(text: str, before: Entry, after: Entry) -> str:
    """Only the members that differ are written anew."""
    old, new = to_object(before), to_object(after)
    for key in [*new, *(key for key in old if key not in new)]:
        if key in ("type", "disabled") or old.get(key) != new.get(key):
            text = _with_member(text, after.name, key, new.get(key))
    return text


def _with_member(text: str, name: str, key: str, value: Any) -> str:
    server = _server(text, name)
    node = find(server, [key])
    if node is not None and value is not None:
        return text if plain(node) == value else replaced(text, node, value)
    if node is not None:
        return without(text, server, max(n for n, one in enumerate(server.elements) if one.key == key))
    return text if value is None else append(text, server, key, value)


def _server(text: str, name: str) -> Node:
    """The first of the name: the last one, which `find` gives, may be a duplicate."""
    servers = find(parse(text), [SERVERS])
    assert servers is not None
    return next(one.node for one in servers.elements if one.key == name)


def _member(text: str, name: str, key: str) -> Node | None:
    return find(_server(text, name), [key])

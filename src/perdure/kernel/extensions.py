"""Addresses of apps: two servers that use the same one get two public addresses, in lists, requests and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw

from perdure.protocol.frames import Members, encode_members, members, text_if_clear

ADDRESSED: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
"""The requests that name a resource by its `uri`."""
_PAGE: Final = "ui://"
_NAMES: Final = frozenset({"uri", "resourceUri", "ui/resourceUri"})
_CONTAINERS: Final = frozenset({"_meta", "ui", "content", "contents", "resource", "messages", "result"})
_DEPTH: Final = 8
_items = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.encode


class Addresses:
    """Which server has which address, and the public address where it differs from the server's own.

    The first server keeps its address. A page of another one becomes `ui://NAME/…`. Of other resources that two
    servers have, the first one counts.
    """

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.renamed: set[str] = set()
        """The servers of which a public address differs from their own."""
        self._inner: dict[str, str] = {}
        self._public: dict[tuple[str, str], str] = {}

    def add(self, mount: str, uri: str) -> str | None:
        """The public address of a resource; None where another server has it already."""
        if (mount, uri) in self._public:
            return self._public[mount, uri]
        public = uri
        while is_page(public) and public in self.owners:
            public = with_mount(public, mount)
        if public in self.owners:
            return None
        self.owners[public], self._inner[public], self._public[mount, uri] = mount, uri, public
        if public != uri:
            self.renamed.add(mount)
        return public

    def public(self, mount: str, uri: str) -> str:
        return self._public.get((mount, uri), uri)

    def inner(self, mount: str, uri: str) -> str:
        """What a server calls the resource that the client names so."""
        return self._inner[uri] if self.owners.get(uri) == mount else uri


def is_page(uri: str) -> bool:
    """Whether a resource is the page of an app."""
    return uri.startswith(_PAGE)


def with_mount(uri: str, mount: str) -> str:
    """`ui://page` of the server `b` is `ui://b/page`."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{mount}/{rest}"


def pages_of(definition: Members) -> list[str]:
    """The pages that a tool's definition names. They need not be in the list of resources."""
    meta = _object(definition.get("_meta"))
    named = (_object(meta.get("ui")).get("resourceUri"), meta.get("ui/resourceUri"))
    return [uri for uri in map(text_if_clear, named) if uri is not None and is_page(uri)]


def with_addresses(raw: Raw | bytes, rename: Callable[[str], str], depth: int = _DEPTH) -> Raw | bytes:
    """A definition or a result with other addresses where MCP has them; everything else byte for byte as it was."""
    text = bytes(raw)
    if depth == 0 or b"ri" not in text:
        return raw
    if text[:1] == b"[":
        items = _items.decode(text)
        renamed = [with_addresses(item, rename, depth - 1) for item in items]
        if all(new is old for new, old in zip(renamed, items, strict=True)):
            return raw
        return Raw(b"[" + b",".join(map(bytes, renamed)) + b"]")
    found = _object(Raw(text))
    changed: Members = {}
    for name, value in found.items():
        if name in _NAMES and (uri := text_if_clear(value)) is not None and rename(uri) != uri:
            changed[name] = Raw(_encode(rename(uri)))
        elif name in _CONTAINERS and (new := with_addresses(value, rename, depth - 1)) is not value:
            changed[name] = Raw(new)
    return encode_members({**found, **changed}) if changed else raw


def _object(raw: Raw | None) -> Members:
    """The members of an object; none where it is something else."""
    try:
        return members(raw) if raw is not None else {}
    except ValueError:
        return {}

"""The read API of the official registry, v0.1 and v0: pages, versions, one version. Other registries speak it too."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.registry.errors import NotInCatalog, RegistryError
from perdure.registry.http.address import Address
from perdure.registry.http.client import HttpClient, Reply, TornReply, expected

OFFICIAL_URL: Final = "https://registry.modelcontextprotocol.io"
PREFIXES: Final = ("v0.1", "v0")
PAGE: Final = 100


class Page(msgspec.Struct, frozen=True):
    """Records as they came. `cursor` leads to the next page; empty at the end."""

    records: tuple[dict[str, Any], ...]
    cursor: str = ""
    etag: str = ""
    is_unchanged: bool = False


class StaleCursor(RegistryError):
    """A place in a list that the server does not know any more."""


class OfficialApi:
    """One registry. Which of the two prefixes it serves is found out at the first question."""

    def __init__(self, fetcher: HttpClient, address: Address) -> None:
        self._fetcher = fetcher
        last = address.path.rstrip("/").rpartition("/")[2]
        self._base: Address | None = address.below() if last in PREFIXES else None
        self._address = address

    def page(
        self, cursor: str = "", *, since: str = "", search: str = "", etag: str = "", limit: int = PAGE
    ) -> Page:
        """The newest version of each server, a page at a time."""
        query = {"limit": str(limit), "version": "latest"}
        for name, value in (("cursor", cursor), ("updated_since", since), ("search", search)):
            if value:
                query[name] = value
        reply = self._get("servers", query=query, etag=etag)
        if reply.status == 304:
            return Page((), etag=etag, is_unchanged=True)
        if reply.status in (400, 404, 422) and (cursor or since):
            raise StaleCursor(f"{reply.address.shown} does not know this place in its list ({reply.status})")
        return _page(expected(reply, 200))

    def versions(self, name: str) -> Page:
        """Every version of a server. Raises NotInCatalog."""
        reply = self._get("servers", name, "versions", query={})
        if reply.status == 404:
            raise NotInCatalog(f"{reply.address.origin} has no server {name}", entry=name)
        return _page(expected(reply, 200))

    def version(self, name: str, version: str = "latest") -> dict[str, Any]:
        """One version as it came. Raises NotInCatalog."""
        reply = self._get("servers", name, "versions", version, query={})
        if reply.status == 404:
            of = "" if version == "latest" else f" {version}"
            raise NotInCatalog(f"{reply.address.origin} has no server {name}{of}", entry=name)
        found = expected(reply, 200).json()
        if not isinstance(found, dict):
            raise TornReply(f"{reply.address.shown} did not answer with a server")
        return found

    def is_there(self) -> bool:
        """Whether this place serves the API at all. What cannot be told, such as 401, is raised."""
        try:
            self.page(limit=1)
        except (NotInCatalog, TornReply):
            return False
        return True

    def _get(self, *parts: str, query: dict[str, str], etag: str = "") -> Reply:
        headers = {"if-none-match": etag} if etag else {}
        if self._base is not None:
            return self._fetcher.get(self._base.below(*parts, query=query), headers)
        for prefix in PREFIXES:
            base = self._address.below(prefix)
            reply = self._fetcher.get(base.below(*parts, query=query), headers)
            # A missing server is a 404 too; one that says so in JSON has told us that the prefix is right.
            if reply.status != 404 or (len(parts) > 1 and _speaks(reply)):
                self._base = base
                return reply
        if len(parts) > 1:
            return reply
        raise NotInCatalog(f"{self._address.shown} does not serve the registry API")


def _speaks(reply: Reply) -> bool:
    try:
        found = reply.json()
    except TornReply:
        return False
    return isinstance(found, dict) and bool({"error", "title", "status", "detail"} & found.keys())


def _page(reply: Reply) -> Page:
    found = reply.json()
    servers = found.get("servers") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not (
        isinstance(servers, list) or ("servers" in found and servers is None)
    ):
        raise TornReply(f"{reply.address.shown} did not answer with a list of servers")
    metadata = found.get("metadata")
    cursor = ""
    if isinstance(metadata, dict):
        given = metadata.get("nextCursor") or metadata.get("next_cursor")
        cursor = given if isinstance(given, str) else ""
    records = tuple(one for one in servers or () if isinstance(one, dict))
    return Page(records, cursor, reply.headers.get("etag", ""))

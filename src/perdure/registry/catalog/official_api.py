"""The read API of the official registry, v0.1 and v0: pages, versions, one version. Other registries speak it too."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.registry.errors import NotInCatalog, RegistryError
from perdure.registry.http.address import Address
from perdure.registry.http.client import HttpClient, Reply, TornReply, check_status, read_page

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
    """A cursor that the server does not know any more."""


class OfficialApi:
    """One registry. The first request detects which of the two prefixes it serves."""

    def __init__(self, client: HttpClient, address: Address) -> None:
        self._client = client
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
            raise StaleCursor(f"{reply.address.shown} does not know this cursor ({reply.status})")
        return _page(check_status(reply, 200))

    def versions(self, name: str) -> Page:
        """Every version of a server. Raises NotInCatalog."""
        reply = self._get("servers", name, "versions", query={})
        if reply.status == 404:
            raise NotInCatalog(f"{reply.address.origin} has no server {name}", entry=name)
        return _page(check_status(reply, 200))

    def version(self, name: str, version: str = "latest") -> dict[str, Any]:
        """One version as it came. Raises NotInCatalog."""
        reply = self._get("servers", name, "versions", version, query={})
        if reply.status == 404:
            suffix = "" if version == "latest" else f" {version}"
            raise NotInCatalog(f"{reply.address.origin} has no server {name}{suffix}", entry=name)
        record = check_status(reply, 200).json()
        if not isinstance(record, dict):
            raise TornReply(f"{reply.address.shown} did not answer with a server")
        return record

    def is_served(self) -> bool:
        """Whether this address serves the API at all. A reply that does not tell, such as 401, is raised."""
        try:
            self.page(limit=1)
        except (NotInCatalog, TornReply):
            return False
        return True

    def _get(self, *parts: str, query: dict[str, str], etag: str = "") -> Reply:
        headers = {"if-none-match": etag} if etag else {}
        if self._base is not None:
            return self._client.get(self._base.below(*parts, query=query), headers)
        for prefix in PREFIXES:
            base = self._address.below(prefix)
            reply = self._client.get(base.below(*parts, query=query), headers)
            # A missing server is a 404 as well; if the reply is the API's own JSON, the prefix is right.
            if reply.status != 404 or (len(parts) > 1 and _is_api_error(reply)):
                self._base = base
                return reply
        if len(parts) > 1:
            return reply
        raise NotInCatalog(f"{self._address.shown} does not serve the registry API")


def _is_api_error(reply: Reply) -> bool:
    try:
        error = reply.json()
    except TornReply:
        return False
    return isinstance(error, dict) and bool({"error", "title", "status", "detail"} & error.keys())


def _page(reply: Reply) -> Page:
    records, cursor = read_page(reply)
    return Page(tuple(records), cursor, reply.headers.get("etag", ""))

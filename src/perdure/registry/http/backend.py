"""A tiered HTTP catalog as a registry: reads for all, writes where it allows them.

    tier 1   GET /mcp-servers[?expand=spec], GET /mcp-servers/NAME [/validate]
    tier 2   POST /mcp-servers, DELETE /mcp-servers/NAME, with a bearer token; found by OPTIONS
    tier 3   GET /capabilities says what there is

What a catalog can do is negotiated before the first write and again when it refuses one; a flag counts only if it
is true, not if it is "false". Every request carries the scope. One entry that cannot be used hides no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import structs

from perdure.registry.backend import Capabilities, ServerRef, ValidationResult
from perdure.registry.catalog.records import text
from perdure.registry.entry import Entry, check_name
from perdure.registry.entry_json import from_wire, to_wire
from perdure.registry.errors import (
    AlreadyInstalled,
    InvalidEntry,
    InvalidName,
    NotInRegistry,
    Quarantined,
    RegistryUnavailable,
    Unsupported,
)
from perdure.registry.http.address import DEFAULT_SCOPE, Address, check_address, read_address
from perdure.registry.http.cache import CachingClient
from perdure.registry.http.client import HttpClient, Reply, TornReply, allows_http, expected
from perdure.registry.portable import check_portable

TOKEN: Final = "PERDURE_REGISTRY_TOKEN"
MAX_PAGES: Final = 1000
READS: Final = Capabilities()


def open_http(location: str, environ: Mapping[str, str]) -> HttpCatalog:
    return HttpCatalog(
        location, token=environ.get(TOKEN, ""), allow_http=allows_http(environ), environ=environ
    )


class HttpCatalog:
    """One scope of one catalog. Nothing is sent before the first operation."""

    def __init__(
        self,
        location: str,
        *,
        token: str = "",
        allow_http: bool = False,
        environ: Mapping[str, str] | None = None,
        fetcher: HttpClient | None = None,
    ) -> None:
        address = read_address(location)
        self._scope = address.asked("agent_scope") or DEFAULT_SCOPE
        self._base = msgspec.structs.replace(address, query=())
        self._allow_http = allow_http
        self._fetcher = fetcher or HttpClient(token=token, allow_http=allow_http, token_name=TOKEN)
        identity = hashlib.sha256(f"{token}\n{address.userinfo}".encode()).hexdigest()
        self._replies = CachingClient(self._fetcher, identity)
        self._environ = environ or {}
        self._known: Capabilities | None = None

    @property
    def backend_id(self) -> str:
        return "http"

    @property
    def location(self) -> str:
        """Where it is, without credentials."""
        return f"{self._base.shown.rstrip('/')}/?agent_scope={self._scope}"

    @property
    def capabilities(self) -> Capabilities:
        """What was negotiated; before that, what every catalog can do."""
        return self._known or READS

    @property
    def notice(self) -> str:
        """What the user should know of the last answers; empty where they are fresh."""
        age = self._replies.stale_s
        if age is None:
            return ""
        return f"{self._base.origin} does not answer; this is from {ago(age)} ago"

    def list_servers(self) -> list[ServerRef]:
        found: dict[str, ServerRef] = {}
        spare: list[ServerRef] = []
        for one in self._pages(expand=False):
            ref = self._ref(one)
            if ref.name in found or ref.error:
                repeated = not ref.error
                spare.append(structs.replace(ref, error="duplicate") if repeated else ref)
            else:
                found[ref.name] = ref
        return sorted([*found.values(), *spare], key=lambda ref: ref.name)

    def load(self, name: str) -> Entry:
        check_name(name)
        return self._loaded(name, self._get(SERVERS, name))

    def _loaded(self, name: str, reply: Reply) -> Entry:
        if reply.status == 404:
            raise NotInRegistry(f"{self._base.origin} has no server {name}", entry=name)
        return self._entry(expected(reply, 200).json(), name)

    def load_all(self) -> list[Entry]:
        """In one request where the catalog expands its list, else one by one."""
        expanded = {str(one.get("name")): one for one in reversed(list(self._pages(expand=True)))}
        entries: list[Entry] = []
        for ref in self.list_servers():
            if ref.error:
                continue
            one = expanded.get(ref.name, {})
            try:
                is_whole = bool(one.get("command") or one.get("url"))
                entries.append(self._entry(one, ref.name) if is_whole else self.load(ref.name))
            except (Quarantined, NotInRegistry):
                continue  # `list_servers` and `load` tell of it; one bad entry hides no other
        return entries

    def validate(self, name: str) -> ValidationResult:
        try:
            check_name(name)
        except InvalidName as error:
            return ValidationResult(False, (error.message,))
        try:
            entry = self.load(name)
        except (NotInRegistry, Quarantined) as error:
            return ValidationResult(False, (error.message,))
        # What is not set here is only known here: references are resolved by whoever starts the server.
        unset = dict.fromkeys(one for _, each in entry.templates() for one in each.unset(self._environ))
        doubts = tuple(f"the variable {variable} is not set" for variable in unset)
        reply = self._get(SERVERS, name, "validate")
        if reply.status in (404, 405, 501):  # a catalog that does not validate
            return ValidationResult(True, warnings=doubts)
        found = expected(reply, 200).json()
        if not isinstance(found, dict) or not isinstance(found.get("ok"), bool):
            raise TornReply(f"{reply.address.shown} did not answer with a result")
        return ValidationResult(
            found["ok"], texts(found.get("errors")), (*doubts, *texts(found.get("warnings")))
        )

    def install(self, entry: Entry) -> ServerRef:
        check_portable(entry)
        if not self._negotiated().supports_install:
            raise self._unsupported("install", entry.name)
        reply = self._fetcher.send("POST", self._place(SERVERS), msgspec.json.encode(to_wire(entry)))
        if reply.status == 409:
            raise AlreadyInstalled(f"{entry.name} is already there", entry=entry.name)
        self._written(reply, entry.name, "install", 200, 201)
        return self._ref(to_wire(entry))

    def uninstall(self, name: str) -> bool:
        check_name(name)
        if not self._negotiated().supports_uninstall:
            raise self._unsupported("uninstall", name)
        was_there = self._fetcher.get(self._place(SERVERS, name)).status != 404
        reply = self._fetcher.send("DELETE", self._place(SERVERS, name))
        if reply.status == 404:
            return False
        self._written(reply, name, "uninstall", 200, 202, 204)
        return was_there  # a catalog answers the same where it is absent

    def replace(self, entry: Entry) -> ServerRef:
        """By PUT, in one step. A catalog without it is not changed: between a DELETE and a POST the entry could be lost,
        with the literal values that only the catalog knows."""
        check_portable(entry)
        self.load(entry.name)
        if not self._negotiated().supports_install:
            raise self._unsupported("change", entry.name)
        reply = self._fetcher.send(
            "PUT", self._place(SERVERS, entry.name), msgspec.json.encode(to_wire(entry))
        )
        if reply.status in (405, 501):
            raise Unsupported(
                f"{self._base.origin} does not let anybody change a server in place",
                entry=entry.name,
                hint="uninstall it and install it again",
            )
        self._written(reply, entry.name, "change", 200, 201, 204)
        return self._ref(to_wire(entry))

    def set_enabled(self, name: str, enabled: bool) -> ServerRef:
        before = self.load(name)
        if before.enabled != enabled:
            self._switch(before, enabled)
            # Asked anew: what the cache keeps for a server that fails is older than the change.
            if self._loaded(name, self._fetcher.get(self._place(SERVERS, name))).enabled != enabled:
                raise Unsupported(
                    f"{self._base.origin} does not keep whether a server is enabled",
                    entry=name,
                    hint="uninstall it, or use a registry file of your own",
                )
        return self._ref(to_wire(structs.replace(before, enabled=enabled)))

    def _switch(self, before: Entry, enabled: bool) -> None:
        """By PATCH, which leaves everything else as it is there; else as a whole entry."""
        if not self._negotiated().supports_install:
            raise self._unsupported("change", before.name)
        body = msgspec.json.encode({"enabled": enabled})
        reply = self._fetcher.send("PATCH", self._place(SERVERS, before.name), body)
        if reply.status in (404, 405, 501):
            self.replace(structs.replace(before, enabled=enabled))
        else:
            self._written(reply, before.name, "change", 200, 204)

    def refresh_capabilities(self) -> Capabilities:
        """Asks anew. 404 means a catalog without this endpoint; anything else that is no answer is raised."""
        reply = self._fetcher.get(self._place("capabilities"))
        if reply.status not in (404, 405, 501):
            self._known = read_capabilities(expected(reply, 200))
            return self._known
        reply = self._fetcher.send("OPTIONS", self._place(SERVERS))
        if reply.status not in (404, 405, 501):
            expected(reply, 200, 204)
        allowed = {word.strip().upper() for word in reply.headers.get("allow", "").split(",")}
        writes = {"GET", "POST", "DELETE"} <= allowed
        self._known = Capabilities(supports_install=writes, supports_uninstall=writes)
        return self._known

    def close(self) -> None:
        """Every request has its own connection; there is nothing to close."""

    # Requests

    def _place(self, *parts: str, **query: str) -> Address:
        check_address(self._base, self._allow_http)
        return self._base.below(*parts, query={"agent_scope": self._scope, **query})

    def _get(self, *parts: str, **query: str) -> Reply:
        return self._replies.get(self._place(*parts, **query))

    def _pages(self, expand: bool) -> Iterator[dict[str, Any]]:
        query = {"expand": "spec"} if expand else {}
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            reply = expected(self._get(SERVERS, **query), 200)
            found = reply.json()
            servers = found.get("servers") if isinstance(found, dict) else None
            if not isinstance(found, dict) or not isinstance(servers, list):
                raise TornReply(f"{reply.address.shown} did not answer with a list of servers")
            yield from (one for one in servers if isinstance(one, dict))
            cursor = next_cursor(found)
            if not cursor:
                return
            if cursor in seen:
                break
            seen.add(cursor)
            query["cursor"] = cursor
        raise RegistryUnavailable(f"{self._base.origin} leads in circles: its list has no end")

    def _negotiated(self) -> Capabilities:
        return self._known or self.refresh_capabilities()

    def _written(self, reply: Reply, name: str, what: str, *statuses: int) -> None:
        if reply.status in (405, 501):
            self.refresh_capabilities()
            raise self._unsupported(what, name)
        if reply.status in (400, 413, 422):
            raise InvalidEntry(f"{self._base.origin} refuses this entry ({reply.status})", entry=name)
        if reply.status == 404:
            raise NotInRegistry(f"{self._base.origin} has no server {name}", entry=name)
        expected(reply, *statuses)

    def _unsupported(self, what: str, name: str) -> Unsupported:
        return Unsupported(
            f"{self._base.origin} does not let anybody {what} servers", entry=name, hint="it is read-only"
        )

    # Replies

    def _ref(self, one: Mapping[str, Any]) -> ServerRef:
        name, version = one.get("name"), one.get("version")
        error = text(one.get("error"))
        try:
            check_name(name if isinstance(name, str) else "")
        except InvalidName as problem:
            return ServerRef(name=text(name), error=problem.message, source=self.source(""))
        return ServerRef(
            name=str(name),
            description=text(one.get("description")),
            transport=text(one.get("transport")) or ("streamable-http" if one.get("url") else "stdio"),
            version=text(version) or None,
            source=self.source(str(name)),
            enabled=one.get("enabled") is not False,
            error=error,
        )

    def source(self, name: str) -> str:
        return self._base.below(SERVERS, *([name] if name else [])).shown

    def _entry(self, found: object, name: str) -> Entry:
        try:
            entry = from_wire(found)
        except InvalidEntry as error:
            raise Quarantined(f"{name} cannot be used: {error.message}", entry=name) from None
        if entry.name != name:
            raise Quarantined(f"{name} cannot be used: it answers to another name", entry=name)
        return entry


# --- What the replies of a tiered catalog mean: its capabilities, the next page, texts. Read tolerantly, flags strictly ---


SERVERS: Final = "mcp-servers"


def read_capabilities(reply: Reply) -> Capabilities:
    found = reply.json()
    if not isinstance(found, dict) or not any(key == "tier" or key.startswith("supports_") for key in found):
        raise TornReply(f"{reply.address.shown} did not answer with its capabilities")
    tier = found.get("tier")
    writes = isinstance(tier, int) and not isinstance(tier, bool) and tier >= 2

    def flag(name: str, usual: bool = False) -> bool:
        return found[name] is True if name in found else usual

    return Capabilities(
        supports_install=flag("supports_install", writes),
        supports_uninstall=flag("supports_uninstall", writes),
        supports_capability_handshake=True,
        supports_audit=flag("supports_audit"),
        durable=flag("durable"),
        supports_canonical_export=flag("supports_canonical_export"),
    )


def next_cursor(found: Mapping[str, Any]) -> str:
    metadata = found.get("metadata")
    places = (found, metadata) if isinstance(metadata, dict) else (found,)
    for place in places:
        for key in ("nextCursor", "next_cursor"):
            if isinstance(place.get(key), str) and place[key]:
                return str(place[key])
    return ""


def texts(found: object) -> tuple[str, ...]:
    return tuple(text(one) for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def ago(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"

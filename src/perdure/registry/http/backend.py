"""A tiered HTTP catalog as a registry: reads for all, writes where it allows them.

    tier 1   GET /mcp-servers[?expand=spec], GET /mcp-servers/NAME [/validate]
    tier 2   POST /mcp-servers, DELETE /mcp-servers/NAME, with a bearer token; found by OPTIONS
    tier 3   GET /capabilities says what there is

The capabilities are negotiated before the first write and again when the catalog refuses one; only a flag that is `true`
counts, not the text "false". Every request carries the scope. An entry that cannot be used does not hide the others.
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
from perdure.registry.http.client import HttpClient, Reply, TornReply, allows_http, check_status, read_page
from perdure.registry.portable import check_portable

TOKEN: Final = "PERDURE_REGISTRY_TOKEN"
MAX_PAGES: Final = 1000
SERVERS: Final = "mcp-servers"


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
        client: HttpClient | None = None,
    ) -> None:
        address = read_address(location)
        self._scope = address.parameter("agent_scope") or DEFAULT_SCOPE
        self._base = msgspec.structs.replace(address, query=())
        self._allow_http = allow_http
        self._client = client or HttpClient(token=token, allow_http=allow_http, token_name=TOKEN)
        identity = hashlib.sha256(f"{token}\n{address.userinfo}".encode()).hexdigest()
        self._cache = CachingClient(self._client, identity)
        self._environ = environ or {}
        self._negotiated: Capabilities | None = None

    @property
    def backend_id(self) -> str:
        return "http"

    @property
    def location(self) -> str:
        """Where it is, without credentials."""
        return f"{self._base.shown.rstrip('/')}/?agent_scope={self._scope}"

    @property
    def capabilities(self) -> Capabilities:
        """As negotiated; before that, reading alone."""
        return self._negotiated or Capabilities()

    @property
    def notice(self) -> str:
        """A warning that the last replies came from the cache; empty if they are fresh."""
        age = self._cache.stale_s
        if age is None:
            return ""
        return f"{self._base.origin} does not answer; this is from {ago(age)} ago"

    def list_servers(self) -> list[ServerRef]:
        refs: list[ServerRef] = []
        names: set[str] = set()
        for ref in map(self._ref, self._pages(expand=False)):
            refs.append(
                structs.replace(ref, error="duplicate") if ref.name in names and not ref.error else ref
            )
            names |= set() if ref.error else {ref.name}
        return sorted(refs, key=lambda ref: (ref.name, ref.error))

    def load(self, name: str) -> Entry:
        check_name(name)
        return self._read_entry(name, self._get(SERVERS, name))

    def _read_entry(self, name: str, reply: Reply) -> Entry:
        if reply.status == 404:
            raise NotInRegistry(f"{self._base.origin} has no server {name}", entry=name)
        return self._entry(check_status(reply, 200).json(), name)

    def load_all(self) -> list[Entry]:
        """In one request if the catalog expands its list, else one by one."""
        expanded = {str(server.get("name")): server for server in reversed(list(self._pages(expand=True)))}
        entries: list[Entry] = []
        for ref in self.list_servers():
            if ref.error:
                continue
            server = expanded.get(ref.name, {})
            try:
                is_whole = bool(server.get("command") or server.get("url"))
                entries.append(self._entry(server, ref.name) if is_whole else self.load(ref.name))
            except (Quarantined, NotInRegistry):
                continue  # `list_servers` and `load` report it
        return entries

    def validate(self, name: str) -> ValidationResult:
        try:
            entry = self.load(name)
        except (InvalidName, NotInRegistry, Quarantined) as error:
            return ValidationResult(False, (error.message,))
        # References are resolved on this machine, so only this side can say which variables are not set.
        warnings = tuple(f"the variable {variable} is not set" for variable in entry.unset(self._environ))
        reply = self._get(SERVERS, name, "validate")
        if reply.status in (404, 405, 501):  # a catalog that does not validate
            return ValidationResult(True, warnings=warnings)
        result = check_status(reply, 200).json()
        if not isinstance(result, dict) or not isinstance(result.get("ok"), bool):
            raise TornReply(f"{reply.address.shown} did not answer with a result")
        warnings = (*warnings, *_texts(result.get("warnings")))
        return ValidationResult(result["ok"], _texts(result.get("errors")), warnings)

    def install(self, entry: Entry) -> ServerRef:
        check_portable(entry)
        self._require("install", entry.name)
        reply = self._client.send("POST", self._address(SERVERS), msgspec.json.encode(to_wire(entry)))
        if reply.status == 409:
            raise AlreadyInstalled(f"{entry.name} is already there", entry=entry.name)
        self._check_written(reply, entry.name, "install", 200, 201)
        return self._ref(to_wire(entry))

    def uninstall(self, name: str) -> bool:
        check_name(name)
        self._require("uninstall", name)
        was_there = self._client.get(self._address(SERVERS, name)).status != 404
        reply = self._client.send("DELETE", self._address(SERVERS, name))
        if reply.status == 404:
            return False
        self._check_written(reply, name, "uninstall", 200, 202, 204)
        return was_there  # the reply is the same if it was absent

    def replace(self, entry: Entry) -> ServerRef:
        """By PUT, in one step. Without PUT the catalog is not changed: between a DELETE and a POST the entry could be
        lost, with the literal values that only the catalog has."""
        check_portable(entry)
        self.load(entry.name)
        self._require("change", entry.name)
        reply = self._client.send(
            "PUT", self._address(SERVERS, entry.name), msgspec.json.encode(to_wire(entry))
        )
        if reply.status in (405, 501):
            raise Unsupported(
                f"{self._base.origin} does not support changing a server in place",
                entry=entry.name,
                hint="uninstall it and install it again",
            )
        self._check_written(reply, entry.name, "change", 200, 201, 204)
        return self._ref(to_wire(entry))

    def set_enabled(self, name: str, enabled: bool) -> ServerRef:
        before = self.load(name)
        if before.enabled != enabled:
            self._switch(before, enabled)
            # Not from the cache, which may be older than the change.
            if self._read_entry(name, self._client.get(self._address(SERVERS, name))).enabled != enabled:
                raise Unsupported(
                    f"{self._base.origin} does not store whether a server is enabled",
                    entry=name,
                    hint="uninstall it, or use a registry file of your own",
                )
        return self._ref(to_wire(structs.replace(before, enabled=enabled)))

    def _switch(self, before: Entry, enabled: bool) -> None:
        """By PATCH, which leaves everything else unchanged; else as a whole entry."""
        self._require("change", before.name)
        body = msgspec.json.encode({"enabled": enabled})
        reply = self._client.send("PATCH", self._address(SERVERS, before.name), body)
        if reply.status in (404, 405, 501):
            self.replace(structs.replace(before, enabled=enabled))
        else:
            self._check_written(reply, before.name, "change", 200, 204)

    def refresh_capabilities(self) -> Capabilities:
        """404 means a catalog without this endpoint; any other failure is raised."""
        reply = self._client.get(self._address("capabilities"))
        if reply.status not in (404, 405, 501):
            self._negotiated = _read_capabilities(check_status(reply, 200))
            return self._negotiated
        reply = self._client.send("OPTIONS", self._address(SERVERS))
        if reply.status not in (404, 405, 501):
            check_status(reply, 200, 204)
        allowed = {word.strip().upper() for word in reply.headers.get("allow", "").split(",")}
        writes = {"GET", "POST", "DELETE"} <= allowed
        self._negotiated = Capabilities(supports_install=writes, supports_uninstall=writes)
        return self._negotiated

    def close(self) -> None:
        """Every request has its own connection; there is nothing to close."""

    # Requests

    def _address(self, *parts: str, **query: str) -> Address:
        check_address(self._base, self._allow_http)
        return self._base.below(*parts, query={"agent_scope": self._scope, **query})

    def _get(self, *parts: str, **query: str) -> Reply:
        return self._cache.get(self._address(*parts, **query))

    def _pages(self, expand: bool) -> Iterator[dict[str, Any]]:
        query = {"expand": "spec"} if expand else {}
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            servers, cursor = read_page(check_status(self._get(SERVERS, **query), 200))
            yield from servers
            if not cursor:
                return
            if cursor in seen:
                break
            seen.add(cursor)
            query["cursor"] = cursor
        raise RegistryUnavailable(f"{self._base.origin} has a list without an end")

    def _require(self, action: str, name: str) -> None:
        """Raise Unsupported unless the catalog supports the action."""
        capabilities = self._negotiated or self.refresh_capabilities()
        is_supported = (
            capabilities.supports_uninstall if action == "uninstall" else capabilities.supports_install
        )
        if not is_supported:
            raise self._unsupported_error(action, name)

    def _check_written(self, reply: Reply, name: str, action: str, *statuses: int) -> None:
        if reply.status in (405, 501):
            self.refresh_capabilities()
            raise self._unsupported_error(action, name)
        if reply.status in (400, 413, 422):
            raise InvalidEntry(f"{self._base.origin} refuses this entry ({reply.status})", entry=name)
        if reply.status == 404:
            raise NotInRegistry(f"{self._base.origin} has no server {name}", entry=name)
        check_status(reply, *statuses)

    def _unsupported_error(self, action: str, name: str) -> Unsupported:
        return Unsupported(
            f"{self._base.origin} does not support: {action} a server", entry=name, hint="it is read-only"
        )

    # Replies

    def _ref(self, server: Mapping[str, Any]) -> ServerRef:
        name = server.get("name")
        try:
            check_name(name if isinstance(name, str) else "")
        except InvalidName as problem:
            return ServerRef(name=text(name), error=problem.message, source=self.source(""))
        return ServerRef(
            name=str(name),
            description=text(server.get("description")),
            transport=text(server.get("transport")) or ("streamable-http" if server.get("url") else "stdio"),
            version=text(server.get("version")) or None,
            source=self.source(str(name)),
            enabled=server.get("enabled") is not False,
            error=text(server.get("error")),
        )

    def source(self, name: str) -> str:
        return self._base.below(SERVERS, *([name] if name else [])).shown

    def _entry(self, value: object, name: str) -> Entry:
        try:
            entry = from_wire(value)
        except InvalidEntry as error:
            raise Quarantined(f"{name} cannot be used: {error.message}", entry=name) from None
        if entry.name != name:
            raise Quarantined(f"{name} cannot be used: the reply has another name", entry=name)
        return entry


def _read_capabilities(reply: Reply) -> Capabilities:
    flags = reply.json()
    if not isinstance(flags, dict) or not any(key == "tier" or key.startswith("supports_") for key in flags):
        raise TornReply(f"{reply.address.shown} did not answer with its capabilities")
    tier = flags.get("tier")
    writes = isinstance(tier, int) and not isinstance(tier, bool) and tier >= 2

    def flag(name: str, default: bool = False) -> bool:
        return flags[name] is True if name in flags else default

    return Capabilities(
        supports_install=flag("supports_install", writes),
        supports_uninstall=flag("supports_uninstall", writes),
        supports_capability_handshake=True,
        supports_audit=flag("supports_audit"),
        durable=flag("durable"),
        supports_canonical_export=flag("supports_canonical_export"),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text(item) for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def ago(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"

"""What a catalog server answers: a request goes in, a response comes out; no socket is seen here.

    /capabilities /mcp-servers[/NAME[/validate]]                the tiered catalog
    /v0.1/servers[/NAME/versions[/VERSION]], the same at /v0    the official read API

Whoever writes shows the token. Where the server is not on this machine alone, whoever reads shows it, too. Only
references are served: what a literal value hides stays here.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from perdure import __version__
from perdure.registry.addresses import DEFAULT_SCOPE
from perdure.registry.catalog_replies import SERVERS
from perdure.registry.entry import Entry, check_name
from perdure.registry.errors import (
    AlreadyInstalled,
    InvalidEntry,
    InvalidName,
    NotInRegistry,
    Quarantined,
    RegistryError,
    Unsupported,
)
from perdure.registry.official.records import OFFICIAL
from perdure.registry.port import Backend, EditableBackend, ServerRef
from perdure.registry.portable import check_portable, merged, portable
from perdure.registry.serving import server_json
from perdure.registry.wire import WireError, as_wire, from_wire

MAX_PAGE: Final = 100
USUAL_PAGE: Final = 30
PREFIXES: Final = ("v0.1", "v0")


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str  # as it was sent, still encoded
    query: dict[str, str]
    headers: dict[str, str]  # by lower-case name
    body: bytes = b""


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    headers: dict[str, str] = {}


class Refused(Exception):
    """A request that gets no more than a status and a reason."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class CatalogApp:
    """One registry behind one token. `tier` hides what lower tiers do not have."""

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        *,
        token: str = "",
        reads_need_token: bool = False,
        tier: int = 3,
        scopes: frozenset[str] = frozenset(),
        changed_at: Callable[[], str] = lambda: "1970-01-01T00:00:00Z",
    ) -> None:
        self._open = open_backend
        self._token = token
        self._reads_need_token = reads_need_token
        self._tier = tier if token else 1
        self._knows_capabilities = tier == 3
        self._scopes = scopes
        self._changed_at = changed_at

    @property
    def writes(self) -> bool:
        return self._tier >= 2

    def handle(self, request: Request) -> Response:
        try:
            return self._routed(request)
        except Refused as error:
            headers = {name.replace("_", "-"): value for name, value in error.headers.items()}
            return _problem(error.status, error.reason, headers)
        except (InvalidName, InvalidEntry, WireError) as error:
            return _problem(422, str(error))
        except (NotInRegistry, Quarantined) as error:
            return _problem(404, error.message)
        except AlreadyInstalled as error:
            return _problem(409, error.message)
        except Unsupported as error:
            return _problem(405, error.message)
        except RegistryError as error:
            return _problem(503 if error.retryable else 500, error.message, {"retry-after": "1"})

    def _routed(self, request: Request) -> Response:
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        if parts == ["healthz"]:
            return Response(200, b"ok\n", {"content-type": "text/plain"})
        writes = request.method in ("POST", "PUT", "DELETE", "PATCH")
        if writes or self._reads_need_token:
            self._check_token(request)
        match parts:
            case ["capabilities"] if self._knows_capabilities:
                return self._read(request, self._capabilities)
            case [one] if one == SERVERS:
                return self._collection(request)
            case [one, name] if one == SERVERS:
                return self._server(request, name)
            case [one, name, "validate"] if one == SERVERS:
                return self._read(request, lambda: self._validated(request, name))
            case [prefix, "servers"] if prefix in PREFIXES:
                return self._read(request, lambda: self._official_page(request))
            case [prefix, "servers", name, "versions"] if prefix in PREFIXES:
                return self._read(request, lambda: _page([self._official(name)], ""))
            case [prefix, "servers", name, "versions", version] if prefix in PREFIXES:
                return self._read(request, lambda: self._official(name, version))
            case [prefix, "health" | "ping"] if prefix in PREFIXES:
                return self._read(request, lambda: {"status": "ok", "version": __version__})
        raise Refused(404, "there is nothing here")

    # The tiered catalog

    def _collection(self, request: Request) -> Response:
        methods = ["GET", "HEAD", "OPTIONS", *(["POST", "DELETE", "PUT"] if self.writes else [])]
        if request.method == "OPTIONS":
            return Response(204, b"", {"allow": ", ".join(methods)})
        if request.method == "POST" and self.writes:
            if not self._is_ours(request):
                raise Refused(403, "there is no such scope here")
            entry = self._sent(request)
            ref = self._backend().install(entry)
            return _json({"name": ref.name, "transport": ref.transport}, 201)
        return self._read(request, lambda: self._list(request), methods)

    def _server(self, request: Request, name: str) -> Response:
        methods = ["GET", "HEAD", "OPTIONS", *(["PUT", "PATCH", "DELETE"] if self.writes else [])]
        if request.method == "OPTIONS":
            return Response(204, b"", {"allow": ", ".join(methods)})
        check_name(name)
        backend = self._backend()
        if request.method == "DELETE" and self.writes:
            if self._is_ours(request):
                backend.uninstall(name)
            return Response(204)
        if not self._is_ours(request):
            raise NotInRegistry(f"{name} is not in this scope")
        if request.method in ("PUT", "PATCH") and self.writes:
            self._change(request, backend, name)
            return Response(204)
        return self._read(request, lambda: as_wire(portable(backend.load(name))), methods)

    def _change(self, request: Request, backend: Backend, name: str) -> None:
        """PUT brings a whole entry, PATCH only the switch."""
        if not isinstance(backend, EditableBackend):
            raise Unsupported("this registry cannot change an entry in place")
        if request.method == "PATCH":
            match self._sent_json(request):
                case {"enabled": bool(enabled)}:
                    backend.set_enabled(name, enabled)
                    return
            raise Refused(422, "only enabled can be changed alone")
        entry = self._sent(request)
        if entry.name != name:
            raise Refused(422, "the entry goes by another name")
        backend.replace(merged(entry, backend.load(name)))

    def _validated(self, request: Request, name: str) -> dict[str, Any]:
        """Without the warnings, which are about this machine and not about the one that asks."""
        if not self._is_ours(request):
            return {"ok": False, "errors": [f"{name} is not in this scope"], "warnings": []}
        result = self._backend().validate(name)
        return {"ok": result.ok, "errors": list(result.errors), "warnings": []}

    def _list(self, request: Request) -> dict[str, Any]:
        if not self._is_ours(request):
            return {"servers": []}
        backend = self._backend()
        if request.query.get("expand") == "spec":
            found = [as_wire(portable(entry)) for entry in backend.load_all()]
        else:
            found = [_shown_ref(ref) for ref in backend.list_servers()]
        limit = _limit(request, len(found) or 1, most=1000)
        after = request.query.get("cursor", "")
        rest = [one for one in found if one["name"] > after] if after else found
        more = {"metadata": {"nextCursor": rest[limit - 1]["name"]}} if len(rest) > limit else {}
        return {"servers": rest[:limit], **more}

    def _capabilities(self) -> dict[str, Any]:
        known = self._backend().capabilities
        return {
            "tier": 3 if self.writes else 1,
            "wire_version": 1,
            "supports_install": self.writes and known.supports_install,
            "supports_uninstall": self.writes and known.supports_uninstall,
            "supports_audit": known.supports_audit,
            "supports_canonical_export": False,
            "durable": known.durable,
        }

    def _sent(self, request: Request) -> Entry:
        entry = from_wire(self._sent_json(request))
        check_portable(entry)
        return entry

    def _sent_json(self, request: Request) -> object:
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise Refused(415, "send application/json")
        try:
            found: object = msgspec.json.decode(request.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        return found

    # The official read API

    def _records(self) -> list[dict[str, Any]]:
        at = self._changed_at()
        found: dict[str, dict[str, Any]] = {}
        for entry in self._backend().load_all():
            found.setdefault(server_json.full_name(entry), server_json.record(portable(entry), at))
        return [found[name] for name in sorted(found)]

    def _official_page(self, request: Request) -> dict[str, Any]:
        limit = _limit(request, USUAL_PAGE, most=MAX_PAGE)
        wanted = request.query.get("search", "").lower()
        version = request.query.get("version", "")
        since = request.query.get("updated_since", "")
        after = request.query.get("cursor", "")
        rest = [
            one
            for one in self._records()
            if wanted in one["server"]["name"].lower()
            and version in ("", "latest", one["server"]["version"])
            and one["server"]["name"] > after
            and (not since or one["_meta"][OFFICIAL]["updatedAt"] >= since)
        ]
        return _page(rest[:limit], rest[limit - 1]["server"]["name"] if len(rest) > limit else "")

    def _official(self, name: str, version: str = "latest") -> dict[str, Any]:
        for one in self._records():
            if one["server"]["name"] == name and version in ("latest", one["server"]["version"]):
                return one
        raise Refused(404, "Server not found")

    # Every request

    def _backend(self) -> Backend:
        return self._open()

    def _read(self, request: Request, make: Callable[[], Any], methods: list[str] | None = None) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "not here", allow=", ".join(methods or ["GET", "HEAD"]))
        body = msgspec.json.encode(make())
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"content-type": "application/json", "etag": etag, "cache-control": "no-cache"}
        if etag in request.headers.get("if-none-match", ""):
            return Response(304, b"", headers)
        return Response(200, body, headers)

    def _check_token(self, request: Request) -> None:
        if not self._token:
            raise Refused(405, "this catalog is read-only", allow="GET, HEAD, OPTIONS")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Refused(401, "a bearer token is needed", www_authenticate="Bearer")
        if not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise Refused(401, "this token is not the right one", www_authenticate="Bearer")

    def _is_ours(self, request: Request) -> bool:
        """Another scope than ours is empty."""
        return not self._scopes or request.query.get("agent_scope", DEFAULT_SCOPE) in self._scopes


def _shown_ref(ref: ServerRef) -> dict[str, Any]:
    """Without its source: where a file lies on this machine is nobody else's business."""
    found: dict[str, Any] = {
        "name": ref.name,
        "description": ref.description,
        "transport": ref.transport,
        "version": ref.version,
        "enabled": ref.enabled,
    }
    return {**found, "error": ref.error} if ref.error else found


def _limit(request: Request, usual: int, most: int) -> int:
    given = request.query.get("limit")
    if given is None:
        return usual
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= most:
        raise Refused(422, f"limit is a number from 1 to {most}")
    return int(given)


def _page(records: list[dict[str, Any]], cursor: str) -> dict[str, Any]:
    return {
        "servers": records,
        "metadata": {"count": len(records), **({"nextCursor": cursor} if cursor else {})},
    }


def _json(found: object, status: int = 200) -> Response:
    return Response(status, msgspec.json.encode(found), {"content-type": "application/json"})


def _problem(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode({"title": reason, "status": status, "detail": reason, "error": reason})
    return Response(status, body, {"content-type": "application/problem+json", **(headers or {})})

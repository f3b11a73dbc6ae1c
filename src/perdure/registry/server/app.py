"""The routes of a catalog server, from a request to a response, without a socket.

    /capabilities /mcp-servers[/NAME[/validate]]                the tiered catalog
    /v0.1/servers[/NAME/versions[/VERSION]], the same at /v0    the official read API

Writing needs the token. Reading needs it too where the server listens beyond this machine. Only references are served,
never a literal value that may be a secret.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from perdure import __version__
from perdure.registry.backend import Backend
from perdure.registry.errors import (
    AlreadyInstalled,
    InvalidEntry,
    InvalidName,
    NotInRegistry,
    Quarantined,
    RegistryError,
    Unsupported,
)
from perdure.registry.http.backend import SERVERS
from perdure.registry.server.messages import Refused, Request, Response, document, problem
from perdure.registry.server.official_api import OfficialView
from perdure.registry.server.tiered_api import TieredView

PREFIXES: Final = ("v0.1", "v0")


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
        self._token = token
        self._reads_need_token = reads_need_token
        self._knows_capabilities = tier == 3
        self._tiered = TieredView(open_backend, bool(token) and tier > 1, scopes)
        self._official = OfficialView(open_backend, changed_at)

    @property
    def writes(self) -> bool:
        return self._tiered.writes

    def handle(self, request: Request) -> Response:
        try:
            return self._routed(request)
        except Refused as error:
            headers = {name.replace("_", "-"): value for name, value in error.headers.items()}
            return problem(error.status, error.reason, headers)
        except (InvalidName, InvalidEntry) as error:
            return problem(422, str(error))
        except (NotInRegistry, Quarantined) as error:
            return problem(404, error.message)
        except AlreadyInstalled as error:
            return problem(409, error.message)
        except Unsupported as error:
            return problem(405, error.message)
        except RegistryError as error:
            return problem(503 if error.retryable else 500, error.message, {"retry-after": "1"})

    def _routed(self, request: Request) -> Response:
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        if parts == ["healthz"]:
            return Response(200, b"ok\n", {"content-type": "text/plain"})
        writes = request.method in ("POST", "PUT", "DELETE", "PATCH")
        if writes or self._reads_need_token:
            self._check_token(request)
        match parts:
            case ["capabilities"] if self._knows_capabilities:
                return document(request, self._tiered.capabilities)
            case [one] if one == SERVERS:
                return self._tiered.collection(request)
            case [one, name] if one == SERVERS:
                return self._tiered.server(request, name)
            case [one, name, "validate"] if one == SERVERS:
                return document(request, lambda: self._tiered.validated(request, name))
            case [prefix, "servers"] if prefix in PREFIXES:
                return document(request, lambda: self._official.page(request))
            case [prefix, "servers", name, "versions"] if prefix in PREFIXES:
                return document(request, lambda: self._official.versions(name))
            case [prefix, "servers", name, "versions", version] if prefix in PREFIXES:
                return document(request, lambda: self._official.version(name, version))
            case [prefix, "health" | "ping"] if prefix in PREFIXES:
                return document(request, lambda: {"status": "ok", "version": __version__})
        raise Refused(404, "there is nothing here")

    def _check_token(self, request: Request) -> None:
        if not self._token:
            raise Refused(405, "this catalog is read-only", allow="GET, HEAD, OPTIONS")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Refused(401, "a bearer token is needed", www_authenticate="Bearer")
        if not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise Refused(401, "this token is not the right one", www_authenticate="Bearer")

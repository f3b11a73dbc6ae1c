"""The tiered catalog over a registry: lists, entries, and writes where there are any. Only references are served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.registry.backend import Backend, EditableBackend, ServerRef
from perdure.registry.entry import Entry, check_name
from perdure.registry.entry_json import from_wire, to_wire
from perdure.registry.errors import NotInRegistry, Unsupported
from perdure.registry.http.address import DEFAULT_SCOPE
from perdure.registry.portable import check_portable, restore_secrets, without_secrets
from perdure.registry.server.messages import Refused, Request, Response, created, document, page_size


class TieredView:
    """Without scopes every scope sees the registry; with them, another scope is empty."""

    def __init__(self, open_backend: Callable[[], Backend], writes: bool, scopes: frozenset[str]) -> None:
        self._open = open_backend
        self.writes = writes
        self._scopes = scopes

    def collection(self, request: Request) -> Response:
        methods = ["GET", "HEAD", "OPTIONS", *(["POST", "DELETE", "PUT"] if self.writes else [])]
        if request.method == "OPTIONS":
            return Response(204, b"", {"allow": ", ".join(methods)})
        if request.method == "POST" and self.writes:
            if not self._is_ours(request):
                raise Refused(403, "there is no such scope here")
            entry = self._sent(request)
            ref = self._open().install(entry)
            return created({"name": ref.name, "transport": ref.transport})
        return document(request, lambda: self._list(request), methods)

    def server(self, request: Request, name: str) -> Response:
        methods = ["GET", "HEAD", "OPTIONS", *(["PUT", "PATCH", "DELETE"] if self.writes else [])]
        if request.method == "OPTIONS":
            return Response(204, b"", {"allow": ", ".join(methods)})
        check_name(name)
        backend = self._open()
        if request.method == "DELETE" and self.writes:
            if self._is_ours(request):
                backend.uninstall(name)
            return Response(204)
        if not self._is_ours(request):
            raise NotInRegistry(f"{name} is not in this scope")
        if request.method in ("PUT", "PATCH") and self.writes:
            self._change(request, backend, name)
            return Response(204)
        return document(request, lambda: to_wire(without_secrets(backend.load(name))), methods)

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
        backend.replace(restore_secrets(entry, backend.load(name)))

    def validated(self, request: Request, name: str) -> dict[str, Any]:
        """Without the warnings, which are about this machine and not about the one that asks."""
        if not self._is_ours(request):
            return {"ok": False, "errors": [f"{name} is not in this scope"], "warnings": []}
        result = self._open().validate(name)
        return {"ok": result.ok, "errors": list(result.errors), "warnings": []}

    def _list(self, request: Request) -> dict[str, Any]:
        if not self._is_ours(request):
            return {"servers": []}
        backend = self._open()
        if request.query.get("expand") == "spec":
            found = [to_wire(without_secrets(entry)) for entry in backend.load_all()]
        else:
            found = [_shown_ref(ref) for ref in backend.list_servers()]
        limit = page_size(request, len(found) or 1, most=1000)
        after = request.query.get("cursor", "")
        rest = [one for one in found if one["name"] > after] if after else found
        more = {"metadata": {"nextCursor": rest[limit - 1]["name"]}} if len(rest) > limit else {}
        return {"servers": rest[:limit], **more}

    def capabilities(self) -> dict[str, Any]:
        known = self._open().capabilities
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

    def _is_ours(self, request: Request) -> bool:
        return not self._scopes or request.query.get("agent_scope", DEFAULT_SCOPE) in self._scopes


def _shown_ref(ref: ServerRef) -> dict[str, Any]:
    """Without its source: paths of this machine are not served."""
    found: dict[str, Any] = {
        "name": ref.name,
        "description": ref.description,
        "transport": ref.transport,
        "version": ref.version,
        "enabled": ref.enabled,
    }
    return {**found, "error": ref.error} if ref.error else found

"""The fake server's side of a session: the era it speaks, and what its client told and asked it."""

from __future__ import annotations

import threading
from argparse import Namespace
from typing import Any, Final

from perdure.testing.fake_wire import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Object,
    Refusal,
    RequestId,
    Wire,
)

# Kept apart from perdure.protocol: a fake that shares the host's constants would share its mistakes.
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT: Final = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
META_SERVER: Final = "io.modelcontextprotocol/serverInfo"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
    }
)
_CAPABILITIES: Final[Object] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "experimental": {"x-fake": {"kept": True}},
}


def meta_of(params: Object) -> Object:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


class Question:
    """A request of the server to its client, until it is answered."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.response: Object = {}


class Session:
    def __init__(self, wire: Wire, options: Namespace) -> None:
        self._wire = wire
        self._limit: str | None = options.version_limit
        self._initialize_error: int = options.initialize_error
        self._cache_hints: Object = {"ttlMs": options.ttl_ms, "cacheScope": options.cache_scope}
        self._lock = threading.Lock()
        self._questions: dict[RequestId, Question] = {}
        self._asked = 0
        self.server_info: Object = {"name": options.name, "version": options.version}
        self.era: str | None = None if options.era == "both" else options.era
        self.protocol: str | None = None
        self.initialize_params: Object | None = None
        self.initialized = False
        self.log_level = LEVELS[0]
        self.subscriptions: set[str] = set()
        self.listens: dict[RequestId, Object] = {}
        self.roots: Any = None
        self.roots_changed = 0
        self.foreign_responses = 0

    @property
    def modern(self) -> bool:
        return self.era == "modern"

    def admit(self, method: str, params: Object) -> None:
        """Refuse a request that the era of this connection does not serve; the first one decides it."""
        if self.era is None:
            opens_modern = method != "initialize" and META_VERSION in meta_of(params)
            self.era = "modern" if opens_modern else "handshake"
        if self.modern:
            self._admit_modern(method, params)
        else:
            self._admit_handshake(method, params)

    def _admit_modern(self, method: str, params: Object) -> None:
        if method == "initialize":
            data = {"supported": list(MODERN_VERSIONS), "requested": params.get("protocolVersion", "")}
            raise Refusal(self._initialize_error, "the initialize handshake is not accepted", data)
        meta = meta_of(params)
        if missing := [key for key in (META_VERSION, META_CAPABILITIES) if key not in meta]:
            keys = ", ".join(missing)
            raise Refusal(INVALID_PARAMS, f"params._meta is missing the required envelope key(s): {keys}")
        version = meta[META_VERSION]
        if not isinstance(version, str):
            raise Refusal(INVALID_PARAMS, f"{META_VERSION} must be a string")
        if version not in MODERN_VERSIONS:
            data = {"supported": list(MODERN_VERSIONS), "requested": version}
            raise Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        self.protocol = version

    def _admit_handshake(self, method: str, params: Object) -> None:
        if method == "server/discover":
            raise Refusal(METHOD_NOT_FOUND, "Method not found", method)
        if method != "initialize" and META_VERSION in meta_of(params):
            raise Refusal(INVALID_REQUEST, "this connection serves the handshake protocol era")
        if self.protocol is None and method not in ("initialize", "ping"):
            raise Refusal(INVALID_PARAMS, "Received request before initialization was complete")

    def initialize(self, params: Object) -> Object:
        offered = params.get("protocolVersion")
        if self._limit is not None:
            self.protocol = self._limit
        else:
            self.protocol = offered if offered in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        self.initialize_params = params
        return {
            "protocolVersion": self.protocol,
            "capabilities": _CAPABILITIES,
            "serverInfo": self.server_info,
            "instructions": "A fake server for tests.",
        }

    def discover(self) -> Object:
        return {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": _CAPABILITIES,
            "instructions": "A fake server for tests.",
        }

    def complete(self, method: str, result: Object) -> Object:
        """The result as this era wants it; members a tool set itself are kept."""
        if not self.modern:
            return result
        required: Object = {"resultType": "complete"}
        if method in _CACHEABLE:
            required |= self._cache_hints
        meta = {META_SERVER: self.server_info, **meta_of(result)}
        return {**required, **result, "_meta": meta}

    def logs(self, level: str, request_meta: Object) -> bool:
        """Whether the client wants messages of this level: for the session, or in 2026 for the request."""
        wanted = request_meta.get(META_LOG_LEVEL) if self.modern else self.log_level
        return wanted in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)

    def client_of(self, request_meta: Object) -> Object | None:
        if not self.modern:
            return self.initialize_params
        return {
            "protocolVersion": request_meta.get(META_VERSION),
            "clientInfo": request_meta.get(META_CLIENT),
            "capabilities": request_meta.get(META_CAPABILITIES),
        }

    def listen(self, identity: RequestId, params: Object) -> None:
        requested = params.get("notifications")
        honored = {kind: wanted for kind, wanted in (requested or {}).items() if wanted}
        self.listens[identity] = honored
        meta = {META_SUBSCRIPTION: identity}
        self._wire.notify(
            "notifications/subscriptions/acknowledged", {"notifications": honored, "_meta": meta}
        )

    def end_listens(self) -> int:
        ended = list(self.listens)
        self.listens.clear()
        for identity in ended:
            result = self.complete("subscriptions/listen", {"_meta": {META_SUBSCRIPTION: identity}})
            self._wire.answer(identity, result)
        return len(ended)

    def list_changed(self, kind: str) -> int:
        method = f"notifications/{kind}/list_changed"
        if not self.modern:
            self._wire.notify(method)
            return 1
        streams = [key for key, honored in self.listens.items() if honored.get(f"{kind}ListChanged")]
        for identity in streams:
            self._wire.notify(method, {"_meta": {META_SUBSCRIPTION: identity}})
        return len(streams)

    def resource_updated(self, uri: str) -> int:
        method = "notifications/resources/updated"
        if not self.modern:
            if uri not in self.subscriptions:
                return 0
            self._wire.notify(method, {"uri": uri})
            return 1
        streams = [
            key for key, honored in self.listens.items() if uri in honored.get("resourceSubscriptions", ())
        ]
        for identity in streams:
            self._wire.notify(method, {"uri": uri, "_meta": {META_SUBSCRIPTION: identity}})
        return len(streams)

    def ask(self, method: str, params: Object | None) -> tuple[RequestId, Question]:
        """Send the client a request. Ids count from 0: they collide with its own, and one is falsy."""
        question = Question()
        with self._lock:
            identity = self._asked
            self._asked += 1
            self._questions[identity] = question
        self._wire.ask(identity, method, params)
        return identity, question

    def abandon(self, identity: RequestId) -> None:
        with self._lock:
            self._questions.pop(identity, None)
        self._wire.notify("notifications/cancelled", {"requestId": identity, "reason": "no longer needed"})

    def answered(self, frame: Object) -> None:
        with self._lock:
            question = (
                self._questions.pop(frame["id"], None) if isinstance(frame.get("id"), int | str) else None
            )
        if question is None:
            self.foreign_responses += 1
            return
        question.response = frame
        question.done.set()

"""The two protocol eras and what tells them apart on the wire.

| | handshake era (2024-11-05 … 2025-11-25) | 2026-07-28 |
|---|---|---|
| opening | `initialize`, `notifications/initialized` | none; `server/discover` on request |
| version, client, capabilities | once, in `initialize` | in `_meta` of every request |
| results | plain | `resultType`; lists and reads also `ttlMs`, `cacheScope` |
| change notifications | to the session | on a `subscriptions/listen` stream |
| server asks the client | a request of its own | an `input_required` result, then a retry |
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Raw

from perdure.protocol.frames import INVALID_PARAMS, Members, decode_id, encode_members, members

Era = Literal["handshake", "modern"]

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]
SUPPORTED_VERSIONS: Final = (*MODERN_VERSIONS, *reversed(HANDSHAKE_VERSIONS))

_PREFIX: Final = "io.modelcontextprotocol/"
TASKS: Final = _PREFIX + "tasks"
"""The extension under which a call can be answered with a task."""
META_VERSION: Final = _PREFIX + "protocolVersion"
META_CLIENT: Final = _PREFIX + "clientInfo"
META_CAPABILITIES: Final = _PREFIX + "clientCapabilities"
META_LOG_LEVEL: Final = _PREFIX + "logLevel"
META_SUBSCRIPTION: Final = _PREFIX + "subscriptionId"
META_SERVER: Final = _PREFIX + "serverInfo"
ENVELOPE_KEYS: Final = (META_VERSION, META_CLIENT, META_CAPABILITIES, META_LOG_LEVEL)

# What the host tells its own worker about a call, and the worker tells the host about a tool.
META_INVOCATION: Final = "perdure/invocation"
META_CALLER: Final = "perdure/client"
META_AGE: Final = "perdure/ageMs"
META_CONTRACT: Final = "perdure/contract"
NOTICE: Final = "notifications/perdure/notice"
"""From the built-in worker to its host: something that `health` has to tell."""
PROBE_METHOD: Final = "perdure/probe"
FILE_FAULTS_METHOD: Final = "notifications/perdure/file_faults"

UNSUPPORTED_VERSION: Final = -32022
MISSING_CAPABILITY: Final = -32021
RESOURCE_NOT_FOUND: Final = -32002

CACHEABLE: Final = frozenset(
    {
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    }
)
TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "tasks/list"})
MODERN_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
INPUT_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def negotiate(offered: object) -> str:
    """The handshake version to answer an offer with: the offered one where it is known."""
    return offered if isinstance(offered, str) and offered in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE


def modern_result(method: str, result: Raw | bytes, server: bytes) -> Raw:
    """A handshake-era result with the members that 2026-07-28 wants; those present are kept. `server` says who answers."""
    found: Members = members(result)
    added: Members = {}
    try:
        meta = members(found.pop("_meta", Raw(b"{}")))
        found["_meta"] = encode_members({META_SERVER: Raw(server), **meta})
    except ValueError:
        found = members(result)  # a `_meta` that is no object is the server's to explain
    if "resultType" not in found:
        added["resultType"] = Raw(b'"complete"')
    if method in CACHEABLE:
        if "ttlMs" not in found:
            added["ttlMs"] = Raw(b"0")
        if "cacheScope" not in found:
            added["cacheScope"] = Raw(b'"private"')
    return encode_members({**added, **found})


class EnvelopeFault(msgspec.Struct, frozen=True):
    """A JSON-RPC error for a request whose `_meta` does not meet 2026-07-28."""

    code: int
    message: str
    data: dict[str, object] | None = None


def check_envelope(meta: Members) -> EnvelopeFault | None:
    """The first rule of 2026-07-28 that the `_meta` of a request breaks. Every server end uses this check."""
    if missing := [key for key in (META_VERSION, META_CAPABILITIES) if key not in meta]:
        message = f"params._meta needs {' and '.join(missing)}, as every request of 2026-07-28."
        return EnvelopeFault(INVALID_PARAMS, message)
    version = decode_id(meta[META_VERSION])
    if not isinstance(version, str):
        return EnvelopeFault(INVALID_PARAMS, f"{META_VERSION} must be a string.")
    if bytes(meta[META_CAPABILITIES])[:1] != b"{":
        return EnvelopeFault(INVALID_PARAMS, f"{META_CAPABILITIES} must be an object.")
    return unsupported_version(version) if version not in MODERN_VERSIONS else None


def unsupported_version(version: str) -> EnvelopeFault:
    message = f"unsupported protocol version {version[:64]}: use {' or '.join(MODERN_VERSIONS)}."
    data: dict[str, object] = {"supported": list(MODERN_VERSIONS), "requested": version}
    return EnvelopeFault(UNSUPPORTED_VERSION, message, data)

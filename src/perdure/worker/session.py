"""The client and the protocol era of each request: one pipe serves both eras.

initialize                            handshake era, whenever it comes (also after server/discover)
a request with the _meta envelope     2026-07-28, once the envelope is whole and the version known
any other request                     handshake era, before and after initialize alike
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure import __version__
from perdure.protocol import eras
from perdure.protocol.frames import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Members,
    RequestId,
    decode_id,
    members,
)
from perdure.protocol.msgspec_types import prepare_type

SERVER_INFO: Final = {"name": "perdure", "title": "Perdure", "version": __version__}
CAPABILITIES: Final[dict[str, Any]] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}

_HANDSHAKE_ONLY: Final = frozenset({"ping", "logging/setLevel"})
_MODERN_ONLY: Final = frozenset({"server/discover", "subscriptions/listen"})
_SERVER_META: Final = msgspec.json.encode(SERVER_INFO)


class Refusal(msgspec.Struct, frozen=True):
    """A JSON-RPC error for a request that is not served."""

    code: int
    message: str
    data: object = None


class Asked(msgspec.Struct, frozen=True):
    """A request as far as every method needs it: its era, its params, its `_meta`, and its sender."""

    era: eras.Era
    method: str
    params: Members
    meta: Members
    client: str
    session: str
    process: str | None
    log_level: str | None
    disabled_groups: frozenset[str] = frozenset()
    """Groups of tools that the session of the caller does not list."""

    def text(self, name: str) -> str | None:
        """A member of params that is a string, or None."""
        return _text(self.params.get(name))

    def meta_id(self, key: str) -> RequestId | None:
        """A member of `_meta` that is an integer (0 too) or a string, as tokens and keys are."""
        raw = self.meta.get(key)
        return decode_id(raw) if raw is not None else None

    def invocation_key(self) -> str | None:
        key = self.meta_id(eras.META_INVOCATION)
        return key if isinstance(key, str) else None

    def age_s(self) -> float:
        """How long ago the host took the call on."""
        age = self.meta_id(eras.META_AGE)
        return max(age, 0) / 1000 if isinstance(age, int) else 0.0


class _Caller(msgspec.Struct, frozen=True):
    """The client that the host calls for."""

    name: str | None = None
    session: str | None = None
    process: str | None = None
    disabled_groups: frozenset[str] = frozenset()


class Session:
    """The client of the handshake; a 2026-07-28 request names its client itself."""

    def __init__(self) -> None:
        self._id = os.urandom(8).hex()
        self._client = "unknown"
        self._last_caller: tuple[bytes, _Caller] = b"", _Caller()
        self.log_level: str | None = None

    def asked(self, method: str, raw_params: Raw | None) -> Asked | Refusal:
        """The request with its era, or an error."""
        try:
            params = members(raw_params) if raw_params is not None else {}
            meta = members(params["_meta"]) if "_meta" in params else {}
        except ValueError:
            return Refusal(
                INVALID_PARAMS, "params and params._meta must be objects without duplicate members"
            )
        is_modern = method != "initialize" and any(key in meta for key in eras.ENVELOPE_KEYS)
        if is_modern or method in _MODERN_ONLY:
            if (fault := eras.check_envelope(meta)) is not None:
                return Refusal(fault.code, fault.message, fault.data)
            if method in _HANDSHAKE_ONLY:
                return Refusal(METHOD_NOT_FOUND, f"{method} is not part of {eras.LATEST_MODERN}")
        own = _name(meta.get(eras.META_CLIENT)) if is_modern else None
        caller = self._caller(meta.get(eras.META_CALLER))
        return Asked(
            era="modern" if is_modern else "handshake",
            method=method,
            params=params,
            meta=meta,
            client=caller.name or own or self._client,
            session=caller.session or self._id,
            process=caller.process,
            log_level=_text(meta.get(eras.META_LOG_LEVEL)) if is_modern else self.log_level,
            disabled_groups=caller.disabled_groups,
        )

    def _caller(self, raw: Raw | None) -> _Caller:
        """Decoded once while it stays the same."""
        if raw is None:
            return _Caller()
        encoded = bytes(raw)
        if encoded != self._last_caller[0]:
            try:
                self._last_caller = encoded, msgspec.json.decode(encoded, type=prepare_type(_Caller))
            except msgspec.MsgspecError:
                self._last_caller = encoded, _Caller()
        return self._last_caller[1]

    def initialize(self, asked: Asked, instructions: str) -> dict[str, Any]:
        self._client = _name(asked.params.get("clientInfo")) or self._client
        return {
            "protocolVersion": eras.negotiate(asked.text("protocolVersion")),
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER_INFO,
            "instructions": instructions,
        }


def discovery(instructions: str) -> dict[str, Any]:
    return {
        "supportedVersions": list(eras.SUPPORTED_VERSIONS),
        "capabilities": CAPABILITIES,
        "instructions": instructions,
    }


def shaped(asked: Asked, result: bytes) -> bytes:
    """A result in the form of its request's era."""
    if asked.era == "handshake":
        return result
    return bytes(eras.modern_result(asked.method, result, _SERVER_META))


def _text(raw: Raw | None) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else None
    except msgspec.MsgspecError:
        return None


def _object(raw: Raw | None) -> Members:
    try:
        return members(raw) if raw is not None else {}
    except ValueError:
        return {}


def _name(raw: Raw | None) -> str | None:
    return _text(_object(raw).get("name"))

"""A request of the client's, opened as far as routing needs, and the ways to answer it at once."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel import metrics
from perdure.kernel.context import Context
from perdure.protocol import eras
from perdure.protocol.eras import Era
from perdure.protocol.frames import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    Members,
    Request,
    RequestId,
    decode_id,
    encode_result,
    members,
)

_MODERN_ONLY = frozenset({"server/discover", "subscriptions/listen"})


class Incoming(msgspec.Struct):
    """A request of the client's, opened as far as routing needs."""

    id: RequestId
    method: str
    raw: bytes | None
    params: Members
    meta: Members
    era: Era
    token: RequestId | None
    extra: dict[str, bytes]
    waited: bool = False


class Refusal(Exception):
    """The request is answered with this error and goes no further."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def open_request(frame: Request, *, waited: bool) -> Incoming:
    raw = bytes(frame.params) if frame.params is not None else None
    try:
        params = members(raw) if raw is not None else {}
        meta = members(params["_meta"]) if "_meta" in params else {}
    except ValueError:
        raise Refusal(INVALID_PARAMS, "params must be an object in which every name stands once.") from None
    is_modern = frame.method != "initialize" and (eras.META_VERSION in meta or frame.method in _MODERN_ONLY)
    token = scalar(meta.get("progressToken"))
    extra = {key: bytes(value) for key, value in frame.extra.items()}
    incoming = Incoming(
        frame.id,
        frame.method,
        raw,
        params,
        meta,
        "modern" if is_modern else "handshake",
        token,
        extra,
        waited,
    )
    if is_modern:
        _check_envelope(incoming)
    return incoming


def scalar(raw: Raw | None) -> RequestId | None:
    return decode_id(raw) if raw is not None else None


def text(request: Incoming, key: str) -> str:
    value = scalar(request.params.get(key))
    if not isinstance(value, str):
        raise Refusal(INVALID_PARAMS, f"{request.method} needs {key}, a string.")
    return value


def _check_envelope(request: Incoming) -> None:
    if (fault := eras.check_envelope(request.meta)) is not None:
        raise Refusal(fault.code, fault.message, fault.data)


def refuse_if_closing(k: Context, request: Incoming) -> None:
    """No new work at the end of a session; what the host answers itself it answers to the last."""
    if k.state.session.closing is not None and not request.waited:
        data = {"class": "process", "code": "closing", "outcome": "not_started", "retry": "later"}
        raise Refusal(INVALID_REQUEST, "the session is closing: this request did not run.", data)


def reply(k: Context, request: Incoming, result: bytes) -> None:
    """Answer a request that the host serves itself."""
    metrics.accepted(k, request.method)
    send(k, request.id, request.method, request.era, result, k.now)


def send(k: Context, identity: RequestId, method: str, era: Era, result: bytes, accepted_at: float) -> None:
    metrics.ended(k, method, accepted_at, metrics.result_ending(method, result))
    body = eras.modern_result(method, result, k.public.identity()) if era == "modern" else result
    k.to_client(encode_result(identity, body))

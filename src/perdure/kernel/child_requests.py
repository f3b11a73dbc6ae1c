"""Requests of the host's own to a server, each with the purpose that its answer serves."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel.context import Context
from perdure.kernel.state import Link, Purpose, Route
from perdure.protocol import eras
from perdure.protocol.frames import Members, encode_members, encode_request

_encode = msgspec.json.encode


def send_request(
    k: Context,
    link: Link,
    method: str,
    params: Members,
    purpose: Purpose,
    capabilities: bytes | None = None,
) -> int:
    """A request of the host's own to a child, with these capabilities in place of the client's."""
    identity = k.mint()
    k.state.routes[identity] = Route(link.mount, link.generation, purpose)
    if link.era == "modern":
        meta = envelope(k)
        if capabilities is not None:
            meta[eras.META_CAPABILITIES] = Raw(capabilities)
        params = {**params, "_meta": encode_members(meta)}
    k.to_child(link, encode_request(identity, method, encode_members(params) if params else None))
    return identity


def envelope(k: Context) -> Members:
    """The `_meta` that a 2026 server needs on every request."""
    session = k.state.session
    meta = {
        eras.META_VERSION: Raw(_encode(eras.LATEST_MODERN)),
        eras.META_CLIENT: Raw(session.client_info),
        eras.META_CAPABILITIES: Raw(session.capabilities),
    }
    if session.log_level:
        meta[eras.META_LOG_LEVEL] = Raw(_encode(session.log_level))
    return meta


def forget_requests(k: Context, link: Link) -> None:
    """Drop the routes of a generation that is no more."""
    gone = [i for i, r in k.state.routes.items() if (r.mount, r.generation) == (link.mount, link.generation)]
    for identity in gone:
        del k.state.routes[identity]

"""What `perdure serve` can be told besides the options of every host: where it listens, who may come, and how much."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class OAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Access tokens of an authorization server. `jwks` or `introspection` where they are not found by its metadata."""

    issuer: str
    audience: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    jwks: str | None = None
    introspection: str | None = None
    client_id: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    leeway: Annotated[float, Meta(ge=0, le=300)] = 30.0


class OAuthFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """`[serve.oauth]`. The secret of `client-id` is taken from PERDURE_OAUTH_CLIENT_SECRET alone."""

    issuer: str | None = None
    audience: list[str] | str | None = None
    scopes: list[str] | str | None = None
    jwks: str | None = None
    introspection: str | None = None
    client_id: str | None = None
    algorithms: list[str] | str | None = None
    leeway: float | None = None


class ServeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every limit of `perdure serve`. A request over a limit is refused; nothing is dropped.

    The text below each field is its line in `docs/reference/limits.md`.
    """

    connections: Positive = 2000
    """Open HTTP connections. One more gets 503."""
    sessions: Positive = 100_000
    """Open sessions, in memory or on disk. One more gets 503."""
    sessions_in_memory: Positive = 2000
    """Sessions in memory. The one that was idle longest moves to disk and comes back when it is used."""
    session_days: Rate = 7
    """How long a session may be idle before it is deleted."""
    session_requests: Positive = 256
    """Requests of one session, or of one 2026 client, that wait at the same time. The next one gets 429."""
    session_rate: Rate = 2000
    """Requests of one session per second, with bursts of twice as many. Above it: 429."""
    address_rate: Rate = 10_000
    """Requests without a session from one address per second. Behind a proxy all clients have one address."""
    opening_rate: Rate = 200
    """Sessions that one address, or one OAuth subject, may open per second, with bursts of ten times as many."""
    body_bytes: Positive = 64 * 1024 * 1024
    """The largest request body. A larger one gets 413."""
    bodies_bytes: Positive = 256 * 1024 * 1024
    """Bytes of all request bodies that are being read at the same time. Above it: 503."""
    header_bytes: Positive = 32 * 1024
    """The largest request head. A larger one gets 431."""
    header_s: Seconds = 10.0
    """How long a client may take to send the head of a request. Then it gets 408. An idle connection is closed as late."""
    body_s: Seconds = 60.0
    """How long a client may take to send a body. Then it gets 408."""
    drain_s: Seconds = 5.0
    """How long running requests may go on after SIGTERM."""


class ServeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """`[serve]` in `perdure.toml`. A token is never written there: it is PERDURE_TOKEN."""

    host: str | None = None
    port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    metrics: bool | None = None
    certificate: str | None = None
    key: str | None = None
    public_url: str | None = None
    oauth: OAuthFile | None = None
    limits: dict[str, float] = {}


class Serving(msgspec.Struct, frozen=True):
    """All of it settled."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8765
    metrics: bool = False
    certificate: str | None = None
    key: str | None = None
    public_url: str | None = None
    oauth: OAuth | None = None
    limits: ServeLimits = ServeLimits()

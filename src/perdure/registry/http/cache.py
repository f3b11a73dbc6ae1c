"""The HTTP cache: replies are revalidated with their ETag, and used as they are while a server fails.

`no-store` is not stored, `stale-if-error=N` limits the use of a stale reply, `must-revalidate` forbids it; without either a
reply is used for a day. Only an unreachable server and a 5xx or busy reply are covered: a rejected token and a torn reply
are raised.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from perdure.protocol.msgspec_types import prepare_type
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.http.address import Address
from perdure.registry.http.client import BUSY, HttpClient, Reply, TornReply, check_status
from perdure.storage.disk_cache import Shelved

STALE_S: Final = 86_400.0
_STALE: Final = re.compile(r"stale-if-error\s*=\s*\"?(\d{1,9})", re.ASCII)


class _CachedReply(msgspec.Struct, frozen=True):
    etag: str
    at: float
    stale_s: float
    body: bytes


class CachingClient:
    """`identity` separates the replies to different credentials."""

    def __init__(
        self,
        client: HttpClient,
        identity: str,
        now: Callable[[], float] = time.time,
        shelf: Shelved | None = None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._now = now
        self._shelf = shelf or Shelved("reply")
        self.stale_s: float | None = None  # the age of the oldest stale reply that was used

    def get(self, address: Address) -> Reply:
        """The reply, whatever its status; a stale one if the server fails."""
        key = hashlib.sha256(f"{self._identity}\n{address.origin}{address.target}".encode()).hexdigest()
        cached = self._load(key)
        try:
            reply = self._client.get(
                address, {"if-none-match": cached.etag} if cached and cached.etag else {}
            )
            if reply.status >= 500 or reply.status in BUSY:
                check_status(reply)
        except TornReply:
            raise
        except RegistryUnavailable:
            if cached is None or not 0 <= (age := self._now() - cached.at) <= cached.stale_s:
                raise
            self.stale_s = max(self.stale_s or 0.0, age)
            return Reply(200, {}, cached.body, address)
        if reply.status == 304 and cached is not None:
            self._save(key, cached.etag, cached.stale_s, cached.body)
            return Reply(200, reply.headers, cached.body, address)
        if reply.status == 200:
            reply.json()  # a reply that is not JSON is not stored
            self._store(key, reply)
        return reply

    def _store(self, key: str, reply: Reply) -> None:
        control = reply.headers.get("cache-control", "").lower()
        if "no-store" in control:
            return
        allowed = _STALE.search(control)
        stale_s = float(allowed[1]) if allowed else 0.0 if "must-revalidate" in control else STALE_S
        self._save(key, reply.headers.get("etag", ""), stale_s, reply.body)

    def _load(self, key: str) -> _CachedReply | None:
        data = self._shelf.load(key)
        try:
            return msgspec.msgpack.decode(data, type=prepare_type(_CachedReply)) if data is not None else None
        except msgspec.DecodeError:
            return None

    def _save(self, key: str, etag: str, stale_s: float, body: bytes) -> None:
        self._shelf.save(key, msgspec.msgpack.encode(_CachedReply(etag, self._now(), stale_s, body)))

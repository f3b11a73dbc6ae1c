"""Replies kept from one command to the next: asked again with their ETag, and used as they are while a server fails.

The rules are HTTP's own: `no-store` is not kept, `stale-if-error=N` says for how long an old reply will do, and
`must-revalidate` that it will not. A server that says nothing is covered for a day. Only "not reachable" and "busy
or broken" are covered: a refused token stays refused, and a torn reply is told.
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
from perdure.registry.http.client import BUSY, HttpClient, Reply, TornReply, expected
from perdure.storage.disk_cache import Shelved

STALE_S: Final = 86_400.0
_STALE: Final = re.compile(r"stale-if-error\s*=\s*\"?(\d{1,9})", re.ASCII)


class _CachedReply(msgspec.Struct, frozen=True):
    etag: str
    at: float
    stale_s: float
    body: bytes


class CachingClient:
    """GET with a memory. `identity` keeps the replies to different credentials apart."""

    def __init__(
        self,
        fetcher: HttpClient,
        identity: str,
        now: Callable[[], float] = time.time,
        shelf: Shelved | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._identity = identity
        self._now = now
        self._shelf = shelf or Shelved("reply")
        self.stale_s: float | None = None  # the age of the oldest reply that had to do since this was made

    def get(self, address: Address) -> Reply:
        """The reply, whatever its status; an old one where the server fails and its time is not over."""
        key = hashlib.sha256(f"{self._identity}\n{address.origin}{address.target}".encode()).hexdigest()
        kept = self._load(key)
        try:
            reply = self._fetcher.get(address, {"if-none-match": kept.etag} if kept and kept.etag else {})
            if reply.status >= 500 or reply.status in BUSY:
                expected(reply)
        except TornReply:
            raise
        except RegistryUnavailable:
            if kept is None or not 0 <= (age := self._now() - kept.at) <= kept.stale_s:
                raise
            self.stale_s = max(self.stale_s or 0.0, age)
            return Reply(200, {}, kept.body, address)
        if reply.status == 304 and kept is not None:
            self._save(key, kept.etag, kept.stale_s, kept.body)
            return Reply(200, reply.headers, kept.body, address)
        if reply.status == 200:
            reply.json()  # what is not even JSON is not kept
            self._keep(key, reply)
        return reply

    def _keep(self, key: str, reply: Reply) -> None:
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

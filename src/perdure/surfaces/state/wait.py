"""Waiting for a change: nothing is polled by the client, nothing that changed in between is missed."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.protocol.tools import arg
from perdure.storage.state import Change, Span, prefix_end
from perdure.storage.state_rounds import Payload
from perdure.surfaces.state.limits import (
    LONGEST_WAIT_S,
    MOST_REVISIONS,
    MOST_WAITS,
    bad_argument,
    named,
    unlisted,
)
from perdure.surfaces.state.service import StateService

CANCEL_S = 0.25


class Wait(msgspec.Struct, frozen=True):
    key: Annotated[str | None, arg("Give key or prefix.")] = None
    prefix: str | None = None
    after: Annotated[int | None, arg("A revision; default: now.")] = None
    timeout_s: float = 30
    namespace: str = unlisted("default")


def state_wait(service: StateService, params: Wait, call: Call) -> Payload:
    span = _span(params)
    if not 0 <= params.timeout_s <= LONGEST_WAIT_S:
        raise bad_argument("timeout_s", f"timeout_s must be from 0 to {LONGEST_WAIT_S:.0f} seconds.")
    if params.after is not None and not 0 <= params.after < MOST_REVISIONS:
        raise bad_argument(
            "after", "after must be a revision: a number that an earlier answer had as revision."
        )
    if not service.waits.acquire(blocking=False):
        raise refuse(
            "quota_exceeded",
            "too_many_waits",
            f"{MOST_WAITS} calls of state_wait are waiting, which is the limit.",
            next_step=call_again(),
            suggested_action="retry_later",
        )
    try:
        return _waited(service, span, params, call)
    finally:
        service.waits.release()


def _waited(service: StateService, span: Span, params: Wait, call: Call) -> Payload:
    backend = service.backend
    until = time.monotonic() + params.timeout_s
    after = params.after if params.after is not None else _now(service, call)
    while True:
        log = backend.changes(span, after)
        if log.changes:
            shown = [_shown(change) for change in log.changes]
            return {"status": "changed", "revision": log.revision, "changes": shown}
        left = backend.next_expiry(span)
        over = time.monotonic() + left if left is not None else None
        while not backend.wait_beyond(log.revision, _pause(until, over)):
            if call.cancelled.is_set():
                raise refuse(
                    "blocked",
                    "cancelled",
                    "cancelled while it waited: nothing was changed.",
                    next_step=call_again(),
                )
            if over is not None and over <= time.monotonic():
                service.expire_due()
                break
            if time.monotonic() >= until:
                return {"status": "timeout", "revision": log.revision, "changes": []}


def _now(service: StateService, call: Call) -> int:
    """When the call was made, which may be before this worker got it: what changed since is not missed."""
    return service.backend.revision() if not call.age_s else service.backend.revision_before(call.age_s)


def _pause(until: float, over: float | None) -> float:
    """Until the time is up, a key expires, or the call may have been cancelled."""
    soonest = until if over is None else min(until, over)
    return max(0.01, min(CANCEL_S, soonest - time.monotonic()))


def _span(params: Wait) -> Span:
    if (params.key is None) == (params.prefix is None):
        changes = {"key": FILL} if params.key is None else {"prefix": None}
        raise bad_argument("key", "give key or prefix, exactly one.", **changes)
    if params.key is not None:
        named("key", params.namespace, params.key)
        return Span("key", params.namespace, params.key, params.key + "\x01")  # no key holds NUL
    prefix = params.prefix or ""
    named("key", params.namespace, prefix or "-", what="prefix")
    return Span("key", params.namespace, prefix, prefix_end(prefix))


def _shown(change: Change) -> dict[str, Any]:
    entry = change.entry
    return {
        "key": entry.key,
        "version": entry.version,
        "revision": entry.revision,
        "deleted": entry.value is None,
    }

"""Leases and once-keys, as pure functions over a step.

    acquire ──▶ held (owner, token, until) ──renew──▶ held ──release or expiry──▶ free
    begin   ──▶ running (token, until) ──finish──▶ done (outcome); running ──expiry──▶ free again

A token is the store's revision when it was given out: it grows for ever, over all leases. A holder with an
old token is refused, however late it wakes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.storage.state import Entry, Name
from perdure.storage.state_rounds import Payload, Step
from perdure.surfaces.state.limits import expiry
from perdure.text.times import format_time

OUTCOME_KEPT_S: Final = 90 * 86400.0


class Held(msgspec.Struct, frozen=True):
    owner: str
    token: int


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    token: int
    is_done: bool = False
    outcome: str | None = None


_held = msgspec.json.Decoder(Held)
_run = msgspec.json.Decoder(Run)


def holds(step: Step, lease: Name, token: int) -> bool:
    entry = step.live(lease)
    return entry is not None and _held.decode(entry.value or "").token == token


def stale_token(step: Step, lease: Name, token: int, key: str) -> Payload:
    message = f"Lease token {token} does not hold the lease now. Acquire it again before writing."
    entry = step.live(lease)
    holder = _lease(entry, step.revision, with_token=False) if entry is not None else {}
    return {
        "status": "conflict",
        "key": key,
        "revision": step.revision,
        "message": message,
        "reason": "stale_token",
        "lease": lease[2],
        "lease_token": token,
        **{name: holder[name] for name in ("owner", "expires_at") if name in holder},
    }


def acquire(step: Step, name: Name, owner: str, ttl_s: float, token: int | None) -> Payload:
    entry = step.live(name)
    if entry is None:
        held = Held(owner, step.next_revision)
    else:
        held = _held.decode(entry.value or "")
        if held.token != token:
            return {"status": "held", **_lease(entry, step.revision, with_token=False)}
    return {"status": "ok", **_lease(step.put(name, _text(held), expiry(ttl_s, step.now)))}


def renew(step: Step, name: Name, ttl_s: float, token: int) -> Payload:
    entry = step.live(name)
    if entry is None or not holds(step, name, token):
        return _lost(step, name)
    return {"status": "ok", **_lease(step.put(name, entry.value, expiry(ttl_s, step.now)))}


def release(step: Step, name: Name, token: int) -> Payload:
    if not holds(step, name, token):
        return _lost(step, name)
    gone = step.put(name, None)
    return {"status": "ok", "name": name[2], "token": token, "revision": gone.revision}


def lease_status(entry: Entry | None, name: Name, revision: int, token: int | None) -> Payload:
    if entry is None:
        return {"status": "not_found", "name": name[2], "revision": revision}
    shown = _lease(entry, revision)
    if token is not None:
        return {"status": "ok" if shown["token"] == token else "lost", **shown}
    return {"status": "held", **shown}


def begin(step: Step, name: Name, ttl_s: float) -> Payload:
    entry = step.live(name)
    if entry is None:
        made = step.put(name, _text(Run(step.next_revision)), expiry(ttl_s, step.now))
        return {"status": "run", **_once(made)}
    run = _run.decode(entry.value or "")
    return {"status": "done" if run.is_done else "running", **_once(entry, step.revision, with_token=False)}


def finish(step: Step, name: Name, token: int, outcome: str | None) -> Payload:
    entry = step.live(name)
    run = _run.decode(entry.value or "") if entry is not None else None
    if entry is None or run is None or run.token != token:
        return {"status": "lost", "key": name[2], "revision": step.revision}
    if not run.is_done:
        done = Run(token, True, outcome)
        entry = step.put(name, _text(done), expiry(OUTCOME_KEPT_S, step.now))
    return {"status": "done", **_once(entry)}


def once_status(entry: Entry | None, name: Name, revision: int, token: int | None) -> Payload:
    """`entry` may be a tombstone: a run whose time was over before it finished."""
    if entry is None:
        return {"status": "not_found", "key": name[2], "revision": revision}
    if entry.value is None:
        return {"status": "lost", "key": name[2], "revision": revision}
    run = _run.decode(entry.value)
    status = "lost" if token not in (None, run.token) else "done" if run.is_done else "running"
    return {"status": status, **_once(entry, revision, with_token=False)}


def _lost(step: Step, name: Name) -> Payload:
    entry = step.live(name)
    if entry is None:
        return {"status": "lost", "name": name[2], "revision": step.revision}
    return {"status": "lost", **_lease(entry, step.revision, with_token=False)}


def _lease(entry: Entry, revision: int | None = None, *, with_token: bool = True) -> dict[str, Any]:
    held = _held.decode(entry.value or "")
    found: dict[str, Any] = {"name": entry.key, "owner": held.owner}
    if with_token:
        found["token"] = held.token
    if entry.expires is not None:
        found["expires_at"] = format_time(entry.expires)
    return {**found, "revision": entry.revision if revision is None else revision}


def _once(entry: Entry, revision: int | None = None, *, with_token: bool = True) -> dict[str, Any]:
    run = _run.decode(entry.value or "")
    found: dict[str, Any] = {"key": entry.key}
    if with_token:
        found["token"] = run.token
    if run.is_done:
        found["outcome"] = run.outcome
    elif entry.expires is not None:
        found["expires_at"] = format_time(entry.expires)
    return {**found, "revision": entry.revision if revision is None else revision}


def _text(held: Held | Run) -> str:
    return msgspec.json.encode(held).decode()

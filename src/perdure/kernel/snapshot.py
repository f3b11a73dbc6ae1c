"""The snapshot of a session for an upgrade in place: all of its state as bytes, taken up exactly or refused whole (law 15).

A client may choose an id, and a progress token, of any size, but msgpack has no integer beyond 64 bits: a wider one is an
extension value. An extension cannot be a key, so the ids of calls that are wider are read from the calls themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from perdure.kernel.state import (
    Answered,
    ForCall,
    ForProbe,
    Held,
    Invocation,
    Parked,
    Queued,
    Serving,
    Starting,
    State,
)
from perdure.protocol.faults import Fault
from perdure.protocol.frames import RequestId
from perdure.protocol.mounts import Limits, MountSpec

SNAPSHOT_VERSION: Final = 3
_BEFORE: Final = 2
_WIDE_INTEGER: Final = 1


class Capsule(msgspec.Struct):
    version: int
    now: float
    state: State


def dump_state(state: State, now: float) -> bytes:
    capsule = Capsule(SNAPSHOT_VERSION, now, state)
    try:
        return msgspec.msgpack.encode(capsule)
    except OverflowError:
        plain = msgspec.to_builtins(capsule, builtin_types=(bytes,))
        plain["state"]["ids"] = {key: seq for key, seq in state.ids.items() if not _is_wide(key)}
        return msgspec.msgpack.encode(_without_wide_integers(plain))


def load_state(data: bytes, specs: Mapping[str, MountSpec], limits: Limits) -> Capsule:
    """Raises ValueError for a snapshot that does not fit these mounts, or whose parts contradict each other."""
    try:
        plain = msgspec.msgpack.decode(data, ext_hook=_read_extension)
        if plain["version"] == _BEFORE:
            plain["version"] = SNAPSHOT_VERSION
            upgrade_session(plain["state"]["session"])
            for mount in plain["state"]["mounts"].values():
                for link in mount["links"].values():
                    _upgrade_link(link, plain["state"]["routes"])
            for call in plain["state"]["calls"].values():
                upgrade_call(call)
        capsule = msgspec.convert(plain, type=Capsule)
    except (
        msgspec.MsgspecError,
        RecursionError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
    ) as error:
        raise ValueError(f"not a snapshot: {error}") from None
    if capsule.version != SNAPSHOT_VERSION:
        raise ValueError(f"snapshot version {capsule.version} is not {SNAPSHOT_VERSION}")
    for call in _listed_calls(capsule.state):
        if _is_wide(call.public_id):
            capsule.state.ids[call.public_id] = call.seq
    _check_consistent(capsule.state, specs, limits)
    return capsule


def upgrade_session(session: dict[str, Any]) -> None:
    """Rewrite a session of the version before, whose phase was told by flags."""
    if "phase" in session:
        return
    version = session.pop("version", "")
    phases = {"live": "Ready", "initialized": "Initializing", "modern": "Modern", "seen": "Uninitialized"}
    flags = {name: session.pop(name, False) for name in phases}
    phase = next((phases[name] for name, is_set in flags.items() if is_set), "New")
    session["phase"] = {"type": phase, "version": version}


def _upgrade_link(link: dict[str, Any], routes: dict[int, Any]) -> None:
    """Rewrite a generation of the version before: what was asked of it was told by ids and flags."""
    link["catalog"], pending = link.pop("draft"), link.pop("listing")
    items, size, is_outdated = link.pop("listed_items", 0), link.pop("listed_bytes", 0), link.pop("relist")
    if pending:
        listing = {"pending": pending, "draft": link["catalog"], "items": items, "size": size}
        link["lists"] = {"type": "Listing", "is_outdated": is_outdated, **listing}
    elif link["stage"]["type"] in ("Spawned", "Opening"):
        link["lists"] = {"type": "Unlisted"}
    else:
        link["lists"] = {"type": "Outdated" if is_outdated else "Listed"}
    ping, stream = routes.get(link.pop("pinged")), routes.get(link["listen"])
    link["ping_until"] = ping["purpose"]["until"] if ping is not None else None
    if stream is not None:
        state = "StreamOpen" if stream["purpose"].get("is_open") else "StreamAsked"
        link["stream"] = {"type": state, "child_id": link["listen"]}
    else:
        link["stream"] = {"type": "StreamEnded" if link["listen"] else "NoStream"}
    link["streams_reopened"] = link.pop("relistened", 0)


def upgrade_call(call: dict[str, Any]) -> None:
    """Rewrite a call of the version before, whose states left some of their data to the call."""
    if "keys" not in call:
        return
    keys, pointers = call.pop("keys"), call.pop("conflict", ())
    call["conflicts"] = (
        {"type": "ReadKeys", "keys": keys}
        if keys is not None
        else {"type": "UnreadKeys", "pointers": pointers}
    )
    is_overdue, fault = call.pop("overdue", False), call.pop("fault", None)
    state = call["state"]
    match state["type"]:
        case "InFlight" if is_overdue:
            state["type"] = "Overdue"
        case "Held" | "Probing":
            state["fault"] = fault or msgspec.to_builtins(Fault("process", "lost", 0))
            state["may_run"] = is_overdue
            call["deadline"] = state.pop("deadline", call["deadline"])
        case "Parked" if state.get("result") is not None or state.get("error") is not None:
            state["type"] = "Answered"
        case _:
            pass


def _is_wide(value: object) -> bool:
    return type(value) is int and not -(1 << 63) <= value < 1 << 64


def _without_wide_integers(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_wide_integers(member) for key, member in value.items()}
        case list() | tuple():
            return [_without_wide_integers(item) for item in value]
        case _:
            return Ext(_WIDE_INTEGER, f"{value:x}".encode()) if _is_wide(value) else value


def _read_extension(code: int, data: memoryview) -> int:
    if code != _WIDE_INTEGER:
        raise ValueError(f"unknown extension {code}")
    return int(bytes(data), 16)


def _listed_calls(state: State) -> list[Invocation]:
    return [
        call
        for call in state.calls.values()
        if not isinstance(call.state, Parked | Answered) and not call.task
    ]


def _check_consistent(state: State, specs: Mapping[str, MountSpec], limits: Limits) -> None:
    """A capsule whose parts contradict each other is refused whole."""
    if set(state.mounts) != set(specs):
        raise ValueError("snapshot names other mounts")
    if len(state.calls) > limits.pending:
        raise ValueError("snapshot holds more pending work than the bound")
    waiting = _listed_calls(state)
    listed: dict[RequestId, int] = {c.public_id: c.seq for c in waiting}
    if listed != state.ids or len(listed) != len(waiting):
        raise ValueError("snapshot ids and invocations disagree")
    for seq, call in state.calls.items():
        if call.seq != seq or seq > state.seq or call.mount not in state.mounts:
            raise ValueError("snapshot invocation is not its own")
        if call.replays > max(limits.replays, limits.probes) or call.attempts < call.replays:
            raise ValueError("snapshot attempts are over the limit")
    for name, mount in state.mounts.items():
        waiting_here = [s for s, c in state.calls.items() if c.mount == name and isinstance(c.state, Queued)]
        if mount.name != name or mount.queue != sorted(waiting_here):
            raise ValueError("snapshot queue is out of order")
        if any(g > mount.generation or g != link.generation for g, link in mount.links.items()):
            raise ValueError("snapshot generation is not its own")
        if isinstance(mount.phase, Serving | Starting) and mount.phase.generation not in mount.links:
            raise ValueError("snapshot mount has no generation that serves")
        held_by = [c.state for c in state.calls.values() if c.mount == name]
        for held in held_by:
            if not isinstance(held, Queued | Held) and held.generation not in mount.links:
                raise ValueError("snapshot invocation is with a generation that is not there")
    for identity, route in state.routes.items():
        owner = state.mounts.get(route.mount)
        if identity > state.seq or owner is None or route.generation not in owner.links:
            raise ValueError("snapshot route leads nowhere")
        if isinstance(route.purpose, ForCall | ForProbe) and route.purpose.seq not in state.calls:
            raise ValueError("snapshot route leads nowhere")

"""What can happen next in a world, and what the kernel is then told.

An action is a line of text (`call put k`, `die w 0`, `tick`) that means the same in every history in
which it is possible, so that a history can be printed, shortened and run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.kernel.client_actions import client_event
from harness.kernel.scopes import TASK_TTL_S, TOOLS, Scope, uri_of
from harness.kernel.server_actions import PROBES, child_events, is_call
from harness.kernel.world import Child, Pending, World
from perdure.kernel.core import Kernel
from perdure.kernel.events import Event, Reload, Shutdown, Tick

# --- what is possible -----------------------------------------------------------------------------


def possible(world: World, scope: Scope, kernel: Kernel) -> list[str]:
    """Every action that this scope allows now, in a fixed order."""
    found: list[str] = []
    left = {verb for verb, most in scope.budget.items() if world.used.get(verb, 0) < most}
    if world.has_exited:
        return []
    _client_actions(world, scope, left, found)
    for mount in scope.mounts:
        for index, child in enumerate(world.alive(mount)):
            _child_actions(world, child, f"{mount} {index}", left, found)
    if scope.limits.task_after_s or scope.tasks:
        found += [verb for verb in ("age", "lose-host") if verb in left]
    if "tick" in left and kernel.next_wake() is not None:
        found.append("tick")
    if "reload" in left:
        found += ["reload same", "reload new"]
    return found


def _client_actions(world: World, scope: Scope, left: set[str], found: list[str]) -> None:
    handshake = scope.client == "handshake"
    ready = world.is_initialized if handshake else True
    if handshake and not world.is_initialized and "init" in left:
        found.append("init")
    if handshake and world.is_initialized and not world.is_live and "initialized" in left:
        found.append("initialized")
    found += [verb for verb in ("ping", "bad", "big") if verb in left]
    if not ready:
        return
    found += [verb for verb in ("list", "health", "close") if verb in left]
    if not handshake:
        found += [verb for verb in ("discover", "listen") if verb in left]
        if "unlisten" in left and any(w.kind == "listen" for w in world.wants.values()):
            found.append("unlisten")
        if "retry" in left and world.parked:
            found.append("retry")
    if "call" in left:
        for known in TOOLS:
            if known.mount in scope.mounts and known.name in scope.tools:
                found += [f"call {known.name} {key}" for key in (scope.keys if known.keyed else ("-",))]
    calls = [w for w in world.wants.values() if w.kind == "call"]
    if "dup" in left and calls:
        found.append("dup")
    if "cancel" in left:
        found += [f"cancel {i}" for i in _ends(calls)]
    for verb in ("get", "input", "stop"):
        if verb in left:
            found += [f"{verb} {i}" for i in _ends(list(world.tasks))]
    if scope.rich:
        _session_actions(world, scope, left, found, is_handshake=handshake)
    for verb in ("restart", "disable", "enable"):
        if verb in left:
            found += [f"{verb} {mount}" for mount in scope.mounts]
    for verb in ("reply", "refuse"):
        if verb in left:
            found += [f"{verb} {i}" for i in _ends(list(world.questions))]
    if "stray-reply" in left:
        found.append("stray-reply")


def _session_actions(
    world: World, scope: Scope, left: set[str], found: list[str], *, is_handshake: bool
) -> None:
    if "read" in left:
        found += [f"read {mount}" for mount in scope.mounts]
    if not is_handshake:
        return
    found += [verb for verb in ("level", "roots") if verb in left]
    busy = {want.uri for want in world.wants.values()}
    for mount in scope.mounts:
        uri = uri_of(mount)
        if uri not in busy and "subscribe" in left:
            found.append(f"subscribe {mount}")
        if uri not in busy and "unsubscribe" in left and uri in world.subscribed:
            found.append(f"unsubscribe {mount}")


def _ends(items: list[Any]) -> list[int]:
    """The oldest and the newest: enough to tell order apart, and few enough to try all."""
    return [0, -1] if len(items) > 1 else [0] if items else []


def _child_actions(world: World, child: Child, name: str, left: set[str], found: list[str]) -> None:
    if "die" in left:
        found.append(f"die {name}")
    own = [p for p in child.pending if not is_call(p)]
    if "serve" in left and (not child.is_up or own):
        found.append(f"serve {name}")
    if "come" in left and not child.is_up:
        found.append(f"come {name}")
    if not child.is_up:
        if "up" in left:
            found.append(f"up {name}")
        return
    for verb in ("open", "fail"):
        if verb in left and own:
            found.append(f"{verb} {name}")
    if "shrug" in left and own and own[0].method in PROBES:
        found.append(f"shrug {name}")
    calls = [p for p in child.pending if is_call(p)]
    for verb in ("answer", "error", "garble", "work", "progress"):
        if verb in left:
            found += [f"{verb} {name} {i}" for i in _ends(calls) if _makes_sense(verb, calls[i])]
    if "need" in left and child.era == "modern" and calls and not calls[0].has_run:
        found.append(f"need {name} 0")
    if "task" in left and child.has_tasks:
        found += [f"task {name} {i}" for i in _ends(calls) if not calls[i].has_run]
    for verb in ("finish", "tell"):
        if verb in left:
            found += [f"{verb} {name} {i}" for i in _ends(world.tasks_of(child))]
    for verb in ("ask", "change", "log", "noise", "stray"):
        if verb in left and (verb != "ask" or child.era == "handshake"):
            found.append(f"{verb} {name}")
    if "update" in left and child.is_rich:
        found.append(f"update {name}")
    if "unask" in left and child.asks:
        found.append(f"unask {name}")
    if "again" in left and child.last_answer:
        found.append(f"again {name}")
    if "full" in left and not child.is_full:
        found.append(f"full {name}")
    if "drain" in left and child.is_full:
        found.append(f"drain {name}")


def _makes_sense(verb: str, request: Pending) -> bool:
    if verb == "work":
        return not request.has_run
    return verb != "progress" or request.token is not None


# --- what the kernel is told ------------------------------------------------------------------------


def perform(world: World, scope: Scope, kernel: Kernel, action: str) -> Iterator[Event]:
    """The events of one action; none where it is not possible in this world."""
    verb, *rest = action.split(" ")
    if world.has_exited:
        return
    world.used[verb] = world.used.get(verb, 0) + 1
    if verb == "tick":
        wake = kernel.next_wake()
        if wake is not None:
            world.now = max(world.now, wake)
            yield Tick()
    elif verb == "age":
        world.now += TASK_TTL_S
        yield Tick()
    elif verb == "reload":
        for mount in scope.mounts:
            world.catalogs[mount] = world.catalogs.get(mount, 1) + (rest[0] == "new")
        yield Reload()
    elif verb == "close":
        world.is_closed = True
        yield Shutdown()
    elif len(rest) > 1 and rest[0] in scope.mounts:
        alive = world.alive(rest[0])
        if int(rest[1]) < len(alive):
            yield from child_events(world, verb, alive[int(rest[1])], int(rest[2]) if len(rest) > 2 else 0)
    else:
        event = client_event(world, scope, verb, rest)
        if event is not None:
            yield event

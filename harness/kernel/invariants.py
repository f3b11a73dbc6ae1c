"""The promises, checked after every step against what was seen on both sides of the kernel.

| group | invariants |
|---|---|
| answers | one-answer, own-answer, same-step, modern-shape, honest-outcome, exactly-once |
| dispatch | never-twice, lost-before-replay, replay-budget, order, conflict, fence, fresh-ids, known-generation |
| servers | one-life, no-kill, backoff, opaque-candidate |
| questions | right-asker, asked-once, cancelled-on-loss |
| bounds | pending, queue, in-flight, asks, listens |
| time | no-livelock, deadline, quiescence |
| session | session-state, heard |
| tasks | task-known, task-unique, task-route, task-final, task-lost, task-honest, task-recorded, task-heard |
| snapshot | same-future |
"""

from __future__ import annotations

from typing import Any

from harness.kernel.world import Want, World
from perdure.kernel.core import Kernel
from perdure.kernel.state import Held, Serving
from perdure.protocol.mounts import Limits


class Violation(Exception):
    """A promise that was broken."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


def demand(holds: object, invariant: str, detail: str = "") -> None:
    if not holds:
        raise Violation(invariant, detail)


def check_result(world: World, want: Want, result: dict[str, Any]) -> None:
    """A result is of its request, in the request's era, and says honestly how it came about."""
    if want.modern:
        demand("resultType" in result, "modern-shape", f"{want.kind} without resultType")
    if want.kind == "list" and want.modern:
        demand("ttlMs" in result and "cacheScope" in result, "modern-shape", "a list without cache hints")
    demand(want.kind != "broken", "one-answer", "a broken frame was answered with a result")
    if want.kind == "level":
        world.level = want.uri
    if want.kind != "call":
        return
    if want.tool == "resources/subscribe":
        world.subscribed = sorted({*world.subscribed, want.uri})
        world.in_doubt = [uri for uri in world.in_doubt if uri != want.uri]
        return
    if want.tool == "resources/unsubscribe":
        world.subscribed = [uri for uri in world.subscribed if uri != want.uri]
        return
    if result.get("resultType") == "input_required":
        if result["requestState"] != "s":  # the host's own ticket: the call goes on
            want.ticket = result["requestState"]
            for question in result["inputRequests"].values():
                asker = f"{want.mount}.{want.sends[-1].generation}."
                demand(question["params"]["q"].startswith(asker), "right-asker", f"{want.tag}: {question}")
            want.input_keys = [f"{k}={q['params']['q']}" for k, q in result["inputRequests"].items()]
            world.parked.append(want)
        return
    demand(result["content"][0]["text"] == want.tag, "own-answer", f"{want.tag} was answered with {result}")
    demand(want.sends, "own-answer", f"{want.tag} was answered and never sent")
    if want.replay in ("probe", "never"):
        times = world.executed.get(want.tag, 0)
        demand(times == 1, "exactly-once", f"{want.tag} was answered as done and happened {times} times")
    said = result.get("_meta", {}).get("perdure/outcome")
    if want.attempts() > 1 or want.probes:
        expected = {
            "outcome": "replayed" if want.attempts() > 1 else "probed_done",
            "attempts": want.attempts(),
        }
        demand(said == expected, "honest-outcome", f"{want.tag}: {said} is not {expected}")
    else:
        demand(said is None, "honest-outcome", f"{want.tag}: {said}")


def check_error(world: World, want: Want, error: dict[str, Any]) -> None:
    """An error says honestly whether the call was sent, and how often."""
    if want.kind != "call":
        refusable = want.kind in ("broken", "listen") or world.is_closed
        demand(refusable, "one-answer", f"{want.kind} was refused: {error}")
        return
    if error["code"] == -32050:
        demand(error["message"] == want.tag and want.sends, "own-answer", f"{want.tag}: {error}")
        return
    data = error.get("data", {})
    outcome, attempts = data.get("outcome"), want.attempts()
    if want.uri and not want.sends and outcome is None:
        return  # no server is known that has the resource
    if outcome is None:  # the client's own refusal of a question, or a server that asks too much
        demand(want.sends, "honest-outcome", f"{want.tag}: {error}")
        return
    happened = world.executed.get(want.tag, 0)
    if outcome == "not_started":
        demand(attempts == 0 and happened == 0, "honest-outcome", f"{want.tag} had started: {error}")
    else:
        demand(outcome == "unknown" and attempts > 0, "honest-outcome", f"{want.tag}: {error}")
    if "attempts" in data:
        lost_ticket = data["code"] == "question_lost"
        demand(
            lost_ticket or data["attempts"] == attempts,
            "honest-outcome",
            f"{want.tag}: {error}, sent {attempts} times",
        )


def check_replay(world: World, want: Want, limits: Limits) -> None:
    """A call may be sent again only if that is safe, and not too often."""
    demand(want.replay != "never", "never-twice", f"{want.tag} was sent twice")
    last = want.sends[-1].generation
    demand(world.is_gone(want.mount, last), "lost-before-replay", f"{want.tag} may still run on {last}")
    if want.replay == "probe":
        demand(want.absent, "lost-before-replay", f"{want.tag} was sent again, no probe said absent")
    budget = limits.probes if want.replay == "probe" else limits.replays
    demand(want.attempts() <= budget, "replay-budget", f"{want.tag} was sent {want.attempts() + 1} times")


def check_bounds(world: World, kernel: Kernel, limits: Limits) -> None:
    """Nothing grows past its bound, and what waits has a reason to."""
    state = kernel.state
    waiters = {waiter.public_id for waiter in state.waiters}
    calls = [w for w in world.wants.values() if w.kind == "call" and w.id not in waiters]
    demand(len(state.calls) <= limits.pending, "bounds", f"{len(state.calls)} pending")
    demand(len(calls) <= limits.pending, "bounds", f"{len(calls)} calls open")
    demand(len(world.questions) <= limits.asks and len(state.asks) <= limits.asks, "bounds", "questions")
    demand(sum(w.kind == "listen" for w in world.wants.values()) <= limits.listens, "bounds", "streams")
    for call in state.calls.values():
        served = isinstance(state.mounts[call.mount].phase, Serving)
        demand(not (served and isinstance(call.state, Held)), "probe-at-once", f"{call.name} is held")
    for mount in state.mounts.values():
        waiting = [w for w in world.calls(mount.name) if world.queued(w) and w.id not in waiters]
        demand(len(waiting) <= limits.queue, "bounds", f"{len(waiting)} calls wait for {mount.name}")
        for link in mount.links.values():
            demand(len(link.deferred) <= limits.deferred, "bounds", "deferred questions")

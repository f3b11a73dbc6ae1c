"""The judge of one step: what the kernel did with an event, seen from both of its sides."""

from __future__ import annotations

from typing import Any

import msgspec

from harness.kernel.client_actions import TAG
from harness.kernel.invariants import check_bounds, check_error, check_replay, check_result, demand
from harness.kernel.scopes import FIND, WORKER, Scope
from harness.kernel.task_laws import TaskLaws
from harness.kernel.world import Child, Pending, Question, Send, Want, World
from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    ChildFrame,
    ChildLost,
    Effect,
    Event,
    Exit,
    SaveTask,
    Spawn,
    Stop,
    Tick,
    ToChild,
    ToClient,
)
from perdure.kernel.state import Disabled, Draining, Idle, Live, Open, Serving, Settled, Starting, Stopped
from perdure.protocol.eras import META_INVOCATION, TASK_METHODS

_decode = msgspec.json.decode


def _public(kernel: Kernel) -> set[tuple[str, int]]:
    return {
        (link.mount, link.generation)
        for mount in kernel.state.mounts.values()
        for link in mount.links.values()
        if isinstance(link.stage, Live | Draining)
    }


class Judge:
    """Watches one step: made before the event is handed over, asked to judge its effects after."""

    def __init__(self, world: World, scope: Scope, kernel: Kernel, action: str, event: Event) -> None:
        self.world, self.scope, self.kernel, self.event = world, scope, kernel, event
        self.verb = action.split(" ")[0]
        self.dispatched: dict[str, int] = {}
        self.public = _public(kernel)
        self.current: dict[str, int] = {}
        self.rolling: set[str] = set()
        self.refusing: set[str] = set()
        self.roots_told: set[tuple[str, int]] = set()
        self.updates = 0
        self.tasks = TaskLaws(world, kernel)
        for mount in kernel.state.mounts.values():
            if isinstance(mount.phase, Serving | Starting):
                self.current[mount.name] = mount.phase.generation
            elif isinstance(mount.phase, Open | Stopped | Disabled):
                self.refusing.add(mount.name)
            if not isinstance(mount.rollout, Settled):
                self.rolling.add(mount.name)
        if isinstance(event, ChildLost):
            self._lost(event.mount, event.generation)

    def judge(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToClient(frame):
                    self._to_client(_decode(frame))
                case ToChild(mount, generation):
                    self._to_child(mount, generation, _decode(effect.frame))
                case Spawn(mount, generation):
                    self._spawn(mount, generation)
                case Stop(mount, generation, force):
                    self._stop(mount, generation, force=force)
                case SaveTask(handle, data):
                    self.tasks.on_record(handle, data)
                case Exit():
                    self.world.has_exited = True
                case _:
                    pass
        self._after()

    # --- servers come and go -----------------------------------------------------------------------

    def _spawn(self, mount: str, generation: int) -> None:
        world = self.world
        newest = max((c.generation for c in world.children if c.mount == mount), default=0)
        demand(generation > newest, "fresh-ids", f"generation {generation} of {mount} after {newest}")
        if self.verb in ("restart", "enable") or (self.verb == "reload" and mount not in self.current):
            world.fails[mount] = 0
        fails, limits = world.fails.get(mount, 0), self.scope.limits
        waited = world.now - world.lost_at.get(mount, -1e9) + 1e-6
        if fails >= limits.unproductive_starts:
            demand(
                waited >= limits.circuit_s,
                "backoff",
                f"{mount} restarted after {fails} failures, circuit not open",
            )
        elif fails > 1:
            least = 0.5 * min(limits.backoff_max_s, limits.backoff_s * 2.0 ** (fails - 2))
            demand(waited >= least, "backoff", f"{mount} restarted {waited:.3f} s after failure {fails}")
        world.children = [c for c in world.children if not c.is_gone or c.mount != mount or c.pending]
        child = Child(mount, generation, self.scope.children, world.catalogs.get(mount, 1))
        child.is_rich, child.has_tasks = self.scope.rich, self.scope.tasks
        child.keeps_tasks = self.scope.keeps_tasks
        world.children.append(child)
        demand(len(world.alive(mount)) <= 8, "bounds", f"{mount} has too many generations")

    def _lost(self, mount: str, generation: int) -> None:
        child = self.world.child(mount, generation)
        if child is None or self.current.get(mount) != generation or mount in self.rolling:
            return
        self.world.fails[mount] = 0 if child.is_productive else self.world.fails.get(mount, 0) + 1
        self.world.lost_at[mount] = self.world.now
        del self.current[mount]

    def _stop(self, mount: str, generation: int, *, force: bool) -> None:
        child = self.world.child(mount, generation)
        demand(child is not None and not child.is_gone, "one-life", f"{mount}.{generation} stopped twice")
        assert child is not None
        busy = [
            w.tag
            for w in self.world.calls(mount)
            if self.world.flying(w) and w.sends[-1].generation == generation
        ]
        busy += self.tasks.running_on(mount, generation)
        by_right = self.verb in ("tick", "age", "restart", "disable", "garble")
        demand(by_right or not busy, "no-kill", f"{mount}.{generation} stopped while it runs {busy}")
        child.is_gone = True
        if force:
            self._lost(mount, generation)
        elif isinstance(self.kernel.state.mounts[mount].phase, Idle):
            # A lazy server that has nothing to do.
            wanted = self.world.wanted(mount)
            demand(not wanted, "session-state", f"{mount} was stopped, but {wanted} are subscribed to")
            self.current.pop(mount, None)

    # --- what servers are sent ------------------------------------------------------------------------

    def _to_child(self, mount: str, generation: int, message: dict[str, Any]) -> None:
        child = self.world.child(mount, generation)
        demand(
            child is not None and child.is_up and not child.is_gone,
            "known-generation",
            f"{mount}.{generation}",
        )
        assert child is not None
        if "method" not in message:
            self._answer_to_child(child, message)
        elif "id" in message:
            demand(
                message["id"] > self.world.top_child_id, "fresh-ids", f"id {message['id']} was used before"
            )
            self.world.top_child_id = message["id"]
            self._request_to_child(child, message)
        elif message["method"] == "notifications/cancelled":
            # Its deadline passed, or its stream was renewed: from here on nobody counts on its answer.
            for want in self.world.calls(mount):
                if want.sends and want.sends[-1].child_id == message["params"]["requestId"]:
                    want.in_doubt = True
        elif message["method"] == "notifications/roots/list_changed":
            self.roots_told.add((mount, generation))

    def _request_to_child(self, child: Child, message: dict[str, Any]) -> None:
        identity, method, params = message["id"], message["method"], message.get("params", {})
        meta = params.get("_meta", {})
        if method == "subscriptions/listen":
            child.subscribed = params["notifications"].get("resourceSubscriptions", [])
            return
        pending = Pending(identity, method, token=meta.get("progressToken"))
        if method == "perdure/probe" or params.get("name") == FIND:
            pending.method = FIND if method == "tools/call" else method
            pending.tag = (
                self.world.tags[params["key"]] if child.mount == WORKER else params["arguments"]["tag"]
            )
            self._probe(child, pending.tag)
        elif method == "tools/call":
            pending.tag, pending.tool = params["arguments"]["tag"], params["name"]
            if META_INVOCATION in meta:
                self.world.tags[meta[META_INVOCATION]] = pending.tag
            self._dispatch(child, pending, params.get("inputResponses"))
        elif method in TASK_METHODS:
            pending.uri, pending.tool = params["taskId"], meta.get(TAG, "")
            self.tasks.on_request(child, pending)
        elif TAG in meta:
            pending.tag, pending.tool, pending.uri = meta[TAG], method, params["uri"]
            if META_INVOCATION in meta:
                self.world.tags[meta[META_INVOCATION]] = pending.tag
            self._dispatch(child, pending, params.get("inputResponses"))
        elif method == "logging/setLevel":
            child.level = params["level"]
        elif method == "resources/subscribe":
            uri = params["uri"]
            asked = {want.uri for want in self.world.wants.values()}
            known = {*self.world.subscribed, *self.world.in_doubt, *asked}
            demand(uri in known, "session-state", f"{child.mount} was told {uri}, which nobody wants")
            child.subscribed = sorted({*child.subscribed, uri})
        elif method == "resources/unsubscribe":
            child.subscribed = [uri for uri in child.subscribed if uri != params["uri"]]
        child.pending.append(pending)

    def _probe(self, child: Child, tag: str) -> None:
        want = self.world.by_tag(tag)
        demand(want is not None and want.replay == "probe" and want.sends, "never-twice", f"probe for {tag}")
        assert want is not None
        want.probes += 1
        want.in_doubt, want.absent, want.done = True, False, False
        demand(want.probes <= self.scope.limits.probes, "replay-budget", f"{want.probes} probes for {tag}")

    def _dispatch(self, child: Child, pending: Pending, inputs: dict[str, Any] | None) -> None:
        world, limits = self.world, self.scope.limits
        want = world.by_tag(pending.tag)
        demand(
            want is not None and (want.id in world.wants or want in world.detached),
            "one-answer",
            f"{pending.tag} is sent after its end",
        )
        assert want is not None
        demand(
            pending.tool == want.tool and child.mount == want.mount,
            "own-answer",
            f"{want.tag} sent elsewhere",
        )
        send = Send(child.generation, pending.id)
        if inputs is not None and want.sends and want.sends[-1].generation == child.generation:
            demand(
                inputs["x"]["a"].startswith(f"{child.mount}.{child.generation}."), "right-asker", str(inputs)
            )
            send.goes_on = True
            want.sends.append(send)
            return
        if want.sends:
            check_replay(world, want, limits)
        floor = world.floors.get(child.mount, 0)
        demand(child.generation >= floor, "fence", f"{want.tag} sent to {child.generation} behind {floor}")
        world.floors[child.mount] = child.generation
        if not want.uri:  # which server a resource belongs to may be known later than it was asked for
            earlier = self.dispatched.get(child.mount, 0)
            demand(want.order > earlier, "order", f"{want.tag} sent after a younger call in one step")
            self.dispatched[child.mount] = want.order
        self._conflicts(want, child.generation)
        demand(not child.is_full, "bounds", f"{want.tag} was sent into a full outbox")
        want.sends.append(send)
        want.in_doubt = want.absent = want.done = False
        flying = [
            w
            for w in world.calls(child.mount)
            if world.flying(w) and w.sends[-1].generation == child.generation
        ]
        demand(len(flying) <= limits.in_flight, "bounds", f"{len(flying)} calls in flight")

    def _conflicts(self, want: Want, generation: int) -> None:
        world = self.world
        others = [w for w in world.calls(want.mount) if w is not want]
        parked = [w for w in world.parked if w.mount == want.mount]
        undecided = [w for w in others if world.held(w)]
        undecided += [w for w in (*others, *parked) if self._left_behind(w, generation)]
        barred = {w.key for w in undecided if w.key}
        demand(
            not want.key or want.key not in barred,
            "conflict",
            f"{want.tag} overtakes undecided work on {want.key}",
        )
        for older in others:
            if older.order < want.order and world.queued(older) and not older.uri and not want.uri:
                demand(older.key and older.key in barred, "order", f"{want.tag} overtakes {older.tag}")

    def _left_behind(self, want: Want, generation: int) -> bool:
        return self.world.flying(want) and want.sends[-1].generation < generation

    def _answer_to_child(self, child: Child, message: dict[str, Any]) -> None:
        identity = message["id"]
        demand(
            identity in child.asks,
            "asked-once",
            f"{child.mount}.{child.generation} never asked {identity}, or has its answer",
        )
        child.asks.remove(identity)
        if "result" in message:
            marker = f"{child.mount}.{child.generation}.{identity}"
            answers = {marker, self.world.roots} if marker in self.world.roots_questions else {marker}
            demand(
                message["result"].get("a") in answers - {""},
                "right-asker",
                f"{marker} got {message['result']}",
            )

    # --- what the client is sent ---------------------------------------------------------------------------

    def _to_client(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._answer_to_client(message)
        elif "id" in message:
            marker = message["params"]["q"]
            mount, generation, number = self._speaker(marker)
            demand(self.world.is_live, "opaque-candidate", "the client is asked before it is ready")
            child = self.world.child(mount, generation)
            asked = child is not None and (child.era == "modern" or int(number) in child.asks)
            demand(asked, "asked-once", f"{marker} was withdrawn or answered")
            demand(message["id"] not in self.world.questions, "fresh-ids", f"question id {message['id']}")
            self.world.questions[message["id"]] = Question(message["id"], mount, generation, marker)
        elif message["method"] == "notifications/progress":
            self._progress(message["params"])
        elif message["method"] == "notifications/cancelled":
            gone = self.world.questions.pop(message["params"]["requestId"], None)
            demand(gone is not None, "asked-once", "a question that is not open was cancelled")
        elif message["method"] == "notifications/resources/updated":
            self.updates += 1
        elif message["method"] == "notifications/tasks":
            self.tasks.on_notification(message["params"])
        elif message["method"] == "notifications/message":
            self._speaker(message["params"]["data"] + ".0")

    def _speaker(self, marker: str) -> tuple[str, int, str]:
        """Who is heard, which must be a generation that serves or has served."""
        mount, generation, number = marker.split(".")
        demand(
            (mount, int(generation)) in self.public | _public(self.kernel),
            "opaque-candidate",
            f"{mount}.{generation} is heard before it serves",
        )
        return mount, int(generation), number

    def _progress(self, params: dict[str, Any]) -> None:
        token, value = params["progressToken"], params["progress"]
        want = next((w for w in self.world.wants.values() if w.token == token), None)
        demand(want is not None, "one-answer", f"progress for {token}, which has ended or never was")
        assert want is not None
        demand(value > want.progress, "progress", f"{want.tag} went from {want.progress} to {value}")
        want.progress = value

    def _answer_to_client(self, message: dict[str, Any]) -> None:
        identity = message["id"]
        if identity is None:
            demand(self.verb == "dup", "one-answer", f"an answer to nobody: {message}")
            self.verb = "dup answered"
            return
        want = self.world.wants.get(identity)
        demand(want is not None, "one-answer", f"{identity!r} is answered, but not open: {message}")
        assert want is not None
        if want.kind == "task":
            self.tasks.on_answer(want, message)
        elif message.get("result", {}).get("resultType") == "task":
            self.tasks.on_created(want, message["result"])
        elif "error" in message:
            check_error(self.world, want, message["error"])
            if want.tool == "resources/unsubscribe":
                self.world.in_doubt.append(want.uri)
        else:
            check_result(self.world, want, message["result"])
        del self.world.wants[identity]

    def _check_session_state(self) -> None:
        """A server that serves knows what its predecessors were told (law 13), and the client hears what it asked for."""
        world, session = self.world, self.kernel.state.session
        for mount in self.kernel.state.mounts.values():
            link = mount.serving_link()
            child = world.child(mount.name, link.generation) if link is not None else None
            if child is None or not child.is_rich:
                continue
            missing = world.wanted(mount.name) - {*child.subscribed}
            demand(not missing, "session-state", f"{mount.name} serves and was not told {missing}")
            if child.era == "handshake" and world.level:
                demand(child.level == world.level, "session-state", f"level {child.level} of {mount.name}")
        if self.verb == "roots":
            handshake = {key for key in self.public if self.scope.children == "handshake"}
            demand(handshake <= self.roots_told, "session-state", "a server was not told of changed roots")
        if isinstance(self.event, ChildFrame) and self.verb == "update":
            is_public = (self.event.mount, self.event.generation) in self.public
            streams = sum(
                want.kind == "listen" and want.uri.startswith(f"{self.event.mount}:")
                for want in world.wants.values()
            )
            expected = session.live + streams if is_public else 0
            demand(self.updates == expected, "heard", f"{self.updates} of {expected} updates")
        else:
            demand(not self.updates, "heard", "an update that no server sent")

    # --- after the step -----------------------------------------------------------------------------------------

    def _after(self) -> None:
        world, state = self.world, self.kernel.state
        demand(self.verb != "dup", "one-answer", "a duplicate id was not refused")
        for want in world.wants.values():
            if (
                want.order != world.order
                or want.at < world.now
                or want.kind in ("listen", "discover", "initialize", "task")
            ):
                continue
            settled = all(m.settled for m in state.mounts.values())
            if want.kind != "call":
                demand(
                    want.kind == "list" and not settled, "same-step", f"{want.kind} was not answered at once"
                )
            elif self.verb == "call":
                demand(
                    want.mount not in self.refusing,
                    "same-step",
                    f"{want.mount} is not available, but {want.tag} waits",
                )
        if all(m.settled for m in state.mounts.values()):
            demand(
                not any(w.kind == "list" for w in world.wants.values()),
                "same-step",
                "a list waits for nothing",
            )
        for question in world.questions.values():
            gone = world.is_gone(question.mount, question.generation)
            demand(not gone, "cancelled-on-loss", f"{question.marker} is still asked")
        self._check_session_state()
        self.tasks.check()
        check_bounds(world, self.kernel, self.scope.limits)
        if isinstance(self.event, Tick) and not world.has_exited:
            wake = self.kernel.next_wake()
            demand(wake is None or wake > world.now, "no-livelock", f"next wake {wake} at {world.now}")
        for tag, times in world.executed.items():
            demand(
                times == 1 or tag.startswith("convergent"), "exactly-once", f"{tag} happened {times} times"
            )

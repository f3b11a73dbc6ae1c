"""Running histories: one step at a time, to the end, every one of a small scope, many at random, and the shortest."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from harness.kernel.actions import perform, possible
from harness.kernel.invariants import Violation, demand
from harness.kernel.judge import Judge
from harness.kernel.scopes import Scope
from harness.kernel.world import World, copy_of, from_copy
from perdure.kernel.core import Kernel
from perdure.kernel.events import Effect, Event
from perdure.kernel.state import Task
from perdure.kernel.tasks import adopt

ENDINGS = ("answering", "dying", "silent")
_PATIENCE = 500  # steps to quiescence; the longest honest end needs under a hundred


class Failure(msgspec.Struct):
    """A history that broke a promise."""

    scope: str
    actions: list[str]
    ending: str
    invariant: str
    detail: str


class Run:
    """One history under way: the kernel, the world around it, and what has happened."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.kernel = scope.kernel()
        self.world = World()
        self.actions: list[str] = []
        self.steps = 0
        self.twin: Kernel | None = None
        judge = Judge(self.world, scope, self.kernel, "start", None)  # type: ignore[arg-type]
        judge.judge(self.kernel.start(0.0))
        for action in scope.opening:
            self.act(action)
        self.world.used.clear()

    def possible(self) -> list[str]:
        return possible(self.world, self.scope, self.kernel)

    def act(self, action: str) -> None:
        self.actions.append(action)
        if action == "lose-host":
            self._lose_host()
        for event in perform(self.world, self.scope, self.kernel, action):
            self._feed(action, event)

    def _feed(self, action: str, event: Event) -> None:
        self.steps += 1
        judge = Judge(self.world, self.scope, self.kernel, action, event)
        twin = self._restored() if self.twin is not None else None
        effects = self._handle(self.kernel, event)
        if twin is not None:
            same = self._handle(twin, event) == effects and twin.snapshot() == self.kernel.snapshot()
            demand(same, "same-future", "a restored kernel goes on differently")
            self.kernel = judge.kernel = twin
        try:
            judge.judge(effects)
        except (LookupError, TypeError, AssertionError):
            raise Violation("intelligible", traceback.format_exc(limit=-2)) from None

    def _lose_host(self) -> None:
        """A kill of the host: the next one has nothing but the records, and nobody is connected to it."""
        world = self.world
        world.lose_host()
        records = [
            msgspec.json.decode(task.record, type=Task) for task in world.tasks.values() if task.record
        ]
        tasks = adopt(records, lambda host: False, world.now)
        for handle, task in tasks.items():
            world.tasks[handle].record = msgspec.json.encode(task)
        self.kernel = self.scope.kernel(tasks, f"s{world.order}", world.now)
        judge = Judge(world, self.scope, self.kernel, "start", None)  # type: ignore[arg-type]
        judge.judge(self.kernel.start(world.now))

    def _restored(self) -> Kernel:
        twin = self.scope.kernel(now=self.kernel.state.session.started_at)
        _restore(twin, self.kernel.snapshot())
        return twin

    def _handle(self, kernel: Kernel, event: Event) -> list[Effect]:
        try:
            return kernel.handle(event, self.world.now)
        except Exception:
            raise Violation("no-exception", traceback.format_exc(limit=-3)) from None

    # --- branching: law 15 at every node --------------------------------------------------------

    def save(self) -> tuple[bytes, bytes, list[str]]:
        return self.kernel.snapshot(), copy_of(self.world), list(self.actions)

    def load(self, saved: tuple[bytes, bytes, list[str]]) -> None:
        _restore(self.kernel, saved[0])
        self.world = from_copy(saved[1])
        self.actions = list(saved[2])

    # --- the end ------------------------------------------------------------------------------------

    def finish(self, ending: str) -> None:
        """Let everyone answer, die or stay silent until nothing is open, then look at what is left."""
        world = self.world
        world.used.clear()
        for _ in range(_PATIENCE):
            if world.has_exited or self._is_quiet():
                break
            action = self._next(ending)
            if action is None:
                break
            for event in perform(world, self.scope, self.kernel, action):
                self._feed(action, event)
        self._judge_end(ending)

    def _is_quiet(self) -> bool:
        busy = any(w.kind != "listen" for w in self.world.wants.values())
        return not (busy or self.world.parked or self.kernel.state.calls or self._leaving())

    def _leaving(self) -> list[str]:
        """Mounts with a fenced generation that has nothing left to do. One with a task stays until the task has ended."""
        kernel = self.kernel
        return [
            mount.name
            for mount in kernel.state.mounts.values()
            if sum(not kernel.tasks_at(link) for link in mount.links.values()) > 1
        ]

    def _next(self, ending: str) -> str | None:
        world = self.world
        if world.questions:
            return "reply 0" if ending == "answering" else "refuse 0"
        if ending != "silent":
            for mount in self.scope.mounts:
                for index, child in enumerate(world.alive(mount)):
                    if not child.is_up:
                        return f"serve {mount} {index}"
                    if child.is_full:
                        return f"drain {mount} {index}"
                    if child.pending:
                        if ending == "dying" and world.used.get("die", 0) < 3:
                            return f"die {mount} {index}"
                        own = any(not p.tag or p.method in ("perdure/probe", "find") for p in child.pending)
                        return f"serve {mount} {index}" if own else f"answer {mount} {index} 0"
        world.parked.clear()  # the client does not come back: the deadline ends these
        return "tick" if self.kernel.next_wake() is not None else None

    def _judge_end(self, ending: str) -> None:
        state = self.kernel.state
        open_ = [f"{w.kind} {w.tag}" for w in self.world.wants.values() if w.kind != "listen"]
        demand(not open_, "quiescence", f"never answered: {open_} ({ending})")
        left = [c.state for c in state.calls.values()]
        demand(not left and not state.ids, "quiescence", f"left behind: {left} ({ending})")
        demand(not any(m.queue for m in state.mounts.values()), "quiescence", "a queue is not empty")
        tied = [a for a in state.asks.values() if a.call]
        demand(not tied, "quiescence", f"questions of ended calls: {tied}")
        if not self.world.has_exited:
            many = self._leaving()
            demand(not many, "quiescence", f"a fenced generation never left: {many} ({ending})")


def _restore(kernel: Kernel, snapshot: bytes) -> None:
    try:
        kernel.restore(snapshot)
    except ValueError as error:
        raise Violation("same-future", f"the kernel refuses its own snapshot: {error}") from None


# --- exhaustive -------------------------------------------------------------------------------------------


class Tally(msgspec.Struct):
    histories: set[int] = set()
    ends: int = 0
    steps: int = 0
    failure: Failure | None = None


def _digest(before: bytes, action: str) -> bytes:
    return blake2b(before + action.encode(), digest_size=8).digest()


def exhaust(scope: Scope, tally: Tally, share: int = 0, shares: int = 1, most: int = 1 << 60) -> None:
    """Every history of the scope up to its depth; `share` of `shares` takes its part of the second moves."""
    run = Run(scope)
    stack = [(run.save(), scope.name.encode(), 0)]
    try:
        while stack and len(tally.histories) < most:
            saved, digest, depth = stack.pop()
            run.load(saved)
            for number, action in enumerate(run.possible()):
                if depth == 1 and number % shares != share:
                    continue
                run.load(saved)
                run.twin = run.kernel if number == 0 else None
                run.act(action)
                mark = _digest(digest, action)
                tally.histories.add(int.from_bytes(mark))
                if depth + 1 < scope.depth:
                    stack.append((run.save(), mark, depth + 1))
                else:
                    tally.ends += 1
                    _end(run, ENDINGS[mark[0] % 3])
    except Violation as broken:
        tally.failure = Failure(scope.name, list(run.actions), _ending(run), broken.invariant, broken.detail)
    tally.steps += run.steps


def _end(run: Run, ending: str) -> None:
    run.actions.append(f"end {ending}")
    run.twin = None
    run.finish(ending)


def _ending(run: Run) -> str:
    if run.actions and run.actions[-1].startswith("end "):
        return run.actions.pop().removeprefix("end ")
    return ""


# --- at random -------------------------------------------------------------------------------------------------


WEIGHTS = {
    "serve": 6, "open": 5, "up": 5, "call": 6, "answer": 5, "die": 2, "work": 2, "tick": 2, "init": 9,
    "initialized": 9, "close": 0.1, "disable": 0.2, "enable": 2, "restart": 0.3, "bad": 0.3, "big": 0.3,
    "ping": 0.4, "health": 0.4, "noise": 0.3, "stray": 0.5, "stray-reply": 0.3, "reload": 0.8, "retry": 4,
    "reply": 1, "ask": 2, "shrug": 2, "full": 0.4, "drain": 2, "fail": 0.4,
}  # fmt: skip


def wander(scope: Scope, seed: int, tally: Tally) -> None:
    """One long random history, its every prefix checked, then run to its end."""
    dice = random.Random(f"{scope.name}:{seed}")
    run = Run(scope)
    digest = scope.name.encode()
    try:
        for _ in range(dice.randrange(12, scope.depth)):
            choices = run.possible()
            if not choices:
                break
            # A verb is drawn first: ten things to call must not drown one thing to answer.
            by_verb: dict[str, list[str]] = {}
            for choice in choices:
                by_verb.setdefault(choice.split(" ", 1)[0], []).append(choice)
            verb = dice.choices(list(by_verb), [WEIGHTS.get(v, 1.0) for v in by_verb])[0]
            action = dice.choice(by_verb[verb])
            run.twin = run.kernel if dice.random() < 0.1 else None
            run.act(action)
            digest = _digest(digest, action)
            tally.histories.add(int.from_bytes(digest))
        tally.ends += 1
        _end(run, ENDINGS[seed % 3])
    except Violation as broken:
        tally.failure = Failure(scope.name, list(run.actions), _ending(run), broken.invariant, broken.detail)
    tally.steps += run.steps


# --- the shortest history that still breaks the promise ------------------------------------------------------------


def replay(scope: Scope, actions: list[str], ending: str) -> Violation | None:
    opening = list(scope.opening)
    try:
        run = Run(scope)
        for action in actions[len(opening) :] if actions[: len(opening)] == opening else actions:
            run.twin = run.kernel
            run.act(action)
        if ending:
            run.finish(ending)
    except Violation as broken:
        return broken
    return None


def shrink(scope: Scope, failure: Failure) -> Failure:
    """Leave out whatever is not needed, largest pieces first."""
    actions = failure.actions[len(scope.opening) :]
    for smaller, ending in _smaller(actions, failure.ending):
        broken = replay(scope, [*scope.opening, *smaller], ending)
        if broken is not None and broken.invariant == failure.invariant:
            found = Failure(scope.name, [*scope.opening, *smaller], ending, broken.invariant, broken.detail)
            return shrink(scope, found)
    return failure


def _smaller(actions: list[str], ending: str) -> Iterator[tuple[list[str], str]]:
    if ending:
        yield actions, ""
    size = max(1, len(actions) // 2)
    while True:
        for start in range(0, len(actions), size):
            yield actions[:start] + actions[start + size :], ending
        if size == 1:
            return
        size //= 2

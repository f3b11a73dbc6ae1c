"""One session of a storm: calls in flight, kills, the last recovery, and the judge's verdict."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from harness.crash import foreign, judge, neighbour
from harness.crash.aim import Aim
from harness.crash.bare import Bare
from harness.crash.calls import Call
from harness.crash.gates import Gates
from harness.crash.hosted import Hosted, outlived
from harness.crash.neighbour import Neighbour
from harness.crash.place import Place
from harness.crash.plan import RANDOM, Plan, Victim, reachable
from harness.crash.wire import Frame
from harness.crash.workload import Workload, favoured, initial

IN_FLIGHT: Final = 4
PATIENCE_S: Final = 60.0
NOTICED_S: Final = 0.5
THINK_S: Final = 0.03
_POLL_S: Final = 0.002


class Outcome(msgspec.Struct):
    """What a session came to. `kills` counts by victim and point; `folder` is kept where something is wrong."""

    plan: Plan
    kills: Counter[tuple[Victim, str]]
    counts: Counter[str]
    violations: list[str] = []
    history: list[str] = []
    folder: str = ""


class Stuck(Exception):
    """Nothing happened for so long that nothing will."""


class Session:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self.outcome = Outcome(plan, Counter(), Counter())
        self._plan = plan
        self._chance = plan.chance()
        self._place = Place(folder, plan)
        self._work = Workload(self._chance)
        self._editor = foreign.Editor(self._place, self._chance)
        self._open: dict[int, Call] = {}
        self._acknowledged = 0
        self._lives = 0
        self._ended: list[tuple[str, float]] = []
        self._disturbed: set[str] = set()
        self._is_opened = False
        self._began = self._heard_at = self._sent_at = time.monotonic()
        self._killed_at = 0.0
        self._aim = Aim(plan, self._chance)
        self._neighbour: Neighbour | None = None

    def run(self) -> Outcome:
        self._editor.lay_out(initial(self._chance))
        self._start(armed=True)
        self._neighbour = Neighbour(self._place) if self._plan.neighbour else None
        try:
            self._storm()
            self._drain()
            self._last_words()
            self._recover()
        except Stuck as stuck:
            self._blame(str(stuck))
        self._judge()
        return self.outcome

    # --- the storm ----------------------------------------------------------------------------------------

    def _storm(self) -> None:
        while self._aim:
            self._fill()
            self._step()
            if self._aim.is_due():
                self._kill(RANDOM, self._actor.worker())

    def _step(self) -> None:
        """Whatever comes next: answers, a worker that stands at a gate, or nothing."""
        for frame in self._actor.wire.poll(_POLL_S):
            self._hear(frame)
        for call in self._neighbour.heard() if self._neighbour is not None else ():
            self._settle(call)
        if self._actor.wire.ended:
            raise Stuck(f"the process at the other end ended by itself, with {self._actor.leave()}")
        if (stopped := self._gates.waiting()) is not None:
            self._heard_at = time.monotonic()
            self._at_gate(*stopped)
        if time.monotonic() - self._heard_at > PATIENCE_S:
            raise Stuck(f"silent for {PATIENCE_S} s; open: {', '.join(map(str, self._open.values()))}")

    def _fill(self) -> None:
        think = THINK_S if self._plan.kind == "paced" else 0.0
        while len(self._open) < IN_FLIGHT and time.monotonic() - self._sent_at >= think:
            call = self._work.next(favoured(self._aim.point))
            call.floor = self._acknowledged
            self._open[call.number] = call
            # The host may not have noticed yet, and give it to the one that is dead.
            call.hits += time.monotonic() - self._killed_at < NOTICED_S
            self._say(f"{call} is sent")
            self._actor.call(call)
            self._sent_at = time.monotonic()
        if self._neighbour is not None and self._neighbour.is_idle:
            call = self._work.next(neighbour.KINDS, strictly=True)
            call.floor = self._acknowledged
            self._say(f"{call} is sent to the neighbour")
            self._neighbour.send(call)

    def _hear(self, frame: Frame) -> None:
        self._heard_at = time.monotonic()
        identity = frame.get("id")
        if isinstance(identity, str) and identity.startswith("probe "):
            self._probed(self._open[int(identity.removeprefix("probe "))], frame)
        elif identity == "open":
            self._is_opened = True
        elif isinstance(identity, int):
            call = self._work.calls[identity]
            call.take(frame)
            if self._open.pop(identity, None) is not None:
                self._aim.work_goes_on()
                self._settle(call)

    def _settle(self, call: Call) -> None:
        self._say(f"{call} is {call.fate}")
        if call.fate == "done":
            self._acknowledged = max([self._acknowledged, *call.journal_ids()])
        self._work.settled(call)

    # --- gates and kills --------------------------------------------------------------------------------------

    def _at_gate(self, point: str, worker: int) -> None:
        if self._plan.foreign and point == foreign.AT and self._chance.random() < 0.4:
            edit = self._editor.edit_one(list(self._open.values()))
            if edit is not None:
                self._work.avoid(edit.path)
                self._say(f"another program edits {edit.path} at {point}")
        if self._aim.is_at(point) and self._chance.random() < 0.7:
            self._kill(point, worker)
        else:
            self._gates.open(point)

    def _kill(self, point: str, worker: int | None) -> None:
        victim = self._aim.victim
        if not self._actor.kill(victim, worker, self._chance):
            self._aim.miss()
            return
        self._count(victim, point)
        self._killed_at = time.monotonic()
        for call in self._open.values():
            call.hits += 1
        if victim == "worker":
            self._gates.open(point)
        else:
            self._replace()
        self._aim.hit()

    def _count(self, victim: Victim, point: str) -> None:
        self._say(f"kill {victim} at {point}")
        self.outcome.kills[victim, point] += 1

    def _replace(self) -> None:
        """Hear what was said last; then another host, or another worker, on the same workspace."""
        self._hear_out()
        self._actor.close()
        if isinstance(self._actor, Hosted):
            self._ended.append((self._actor.mark, time.monotonic()))
            if self._chance.random() < 0.5:
                self._gates.open_all()  # an orphan goes on where it stands, until it is ended
            self._abandon()
        self._start(armed=True)

    def _hear_out(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self._actor.wire.ended:
            for frame in self._actor.wire.poll(0.1):
                self._hear(frame)
            if time.monotonic() > until:
                raise Stuck("somebody holds the pipe of a killed process open")

    def _abandon(self) -> None:
        """Its host is gone: nobody will ever say what became of these, and they may still become something."""
        for call in self._open.values():
            call.fate = "unanswered"
            self._disturbed |= set(call.paths)
            self._settle(call)
        self._open.clear()

    def _start(self, *, armed: bool, points: tuple[str, ...] = ()) -> None:
        self._lives += 1
        wanted = set(points or self._plan.points) | ({foreign.AT} if self._plan.foreign else set())
        self._gates = Gates(
            self._place.folder / f"gates{self._lives}", tuple(sorted(wanted)) if armed else ()
        )
        faults = [self._gates.faults()] if armed else []
        if armed and not self._plan.exchange:
            faults.append("write.before_exchange=enosys")
        if self._plan.kind == "bare" or points or not armed:
            bare = Bare(self._place, ";".join(faults))
            self._actor: Hosted | Bare = bare
            self._ask_back(bare)
        else:
            mark = f"{self._place.folder.name}.{self._lives}"
            self._actor = Hosted(self._place, ";".join(faults), mark)
        self._heard_at = time.monotonic()

    # --- what a host does, for a worker that has none ----------------------------------------------------------

    def _ask_back(self, actor: Bare) -> None:
        for call in self._open.values():
            actor.probe(call)

    def _probed(self, call: Call, frame: Frame) -> None:
        said = frame.get("result", {})
        if said.get("status") == "done":
            self._hear({"id": call.number, "result": said["result"]})
        elif said.get("status") == "absent":
            self._actor.call(call)
        else:
            self._blame(f"{call} was probed: {frame}")

    # --- the end -----------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        while self._open or (self._neighbour is not None and self._neighbour.open):
            self._step()

    def _last_words(self) -> None:
        """Everybody dies once more with calls in flight, and so does whoever recovers."""
        if self._neighbour is not None and (code := self._neighbour.leave()) != 0:
            self._blame(f"the neighbour ended with {code}")
        self._neighbour = None
        until = time.monotonic() + self._chance.uniform(0.005, 0.03)
        while time.monotonic() < until:
            self._fill()
            self._step()
        victim: Victim = "bare" if self._plan.kind == "bare" else "both"
        self._actor.kill(victim, self._actor.worker(), self._chance)
        self._count(victim, RANDOM)
        self._hear_out()
        self._actor.close()
        if isinstance(self._actor, Hosted):
            self._ended.append((self._actor.mark, time.monotonic()))
            self._abandon()
        for mark, at in self._ended:
            if left := outlived(mark, at):
                self._blame(f"processes outlived their host: {left}")
        self._kill_recovery()

    def _kill_recovery(self) -> None:
        point = self._chance.choice(("recover.one", "recover.one", *reachable()))
        self._start(armed=True, points=("recover.one", point))
        self._actor.wire.request("open", "tools/call", {"name": "journal_tail", "arguments": {}})
        at, until = RANDOM, time.monotonic() + 0.2
        while at == RANDOM and time.monotonic() < until:
            self._actor.wire.poll(_POLL_S)
            stopped = self._gates.waiting()
            if stopped is not None and self._chance.random() < 0.5:
                at = stopped[0]
            elif stopped is not None:
                self._gates.open(stopped[0])
        self._actor.kill("bare", None, self._chance)
        self._count("bare", at)
        self._actor.close()

    def _recover(self) -> None:
        """A worker that nobody disturbs settles everything."""
        self._start(armed=False)
        self._actor.wire.request("open", "tools/call", {"name": "journal_tail", "arguments": {}})
        while self._open or not self._is_opened:
            self._step()
        if (code := self._actor.leave()) != 0:
            self._blame(f"the last worker ended with {code}")
        self._actor.close()

    def _judge(self) -> None:
        calls, counts = self._work.calls, self.outcome.counts
        counts.update({"calls": len(calls), "foreign edits": len(self._editor.touched)})
        for call in calls:
            counts[call.fate] += 1
        touched = self._editor.touched | self._disturbed
        self.outcome.violations += judge.verdict(self._place, calls, self._editor.edits, touched)

    def _blame(self, what: str) -> None:
        self._say(what)
        self.outcome.violations.append(what)

    def _say(self, what: str) -> None:
        self.outcome.history.append(f"{time.monotonic() - self._began:8.3f}  {what}")

"""Group commit: callers that come together share one transaction, one lock and one fsync.

    callers ──▶ queue ──▶ one of them leads: a round for all who wait ──▶ each gets its own result

A job is a pure decision over loaded rows. One that refuses changes nothing and takes nothing from the others.
A job whose invocation key the store knows already is not run again: it gets the answer it had.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from perdure.protocol import relief
from perdure.storage.in_line import InLine
from perdure.storage.state import (
    Answer,
    Author,
    Change,
    Entry,
    Loaded,
    Name,
    StateBackend,
    StateError,
    Usage,
    Wanted,
    Written,
    state_error,
)

MOST_PER_ROUND: Final = 64
PATIENCE_S: Final = 20.0
EXPIRY: Final = Author("perdure", "", "expiry")

Payload = dict[str, Any]


class Step:
    """One job's view of the round: what was loaded, what earlier jobs wrote, and its own writes on top."""

    def __init__(self, working: Working, author: Author) -> None:
        self._working = working
        self._author = author
        self.now = working.now
        self.revision = working.revision
        self.writes: dict[Name, Entry] = {}
        self.changes: list[Change] = []
        self.usage: dict[str, Usage] = {}

    @property
    def next_revision(self) -> int:
        """The revision of what this job writes."""
        return self._working.revision + 1

    def entry(self, name: Name) -> Entry | None:
        """The latest of a name, live or a tombstone."""
        return self.writes.get(name) or self._working.entries.get(name)

    def live(self, name: Name) -> Entry | None:
        found = self.entry(name)
        return found if found is not None and found.value is not None else None

    def used(self, namespace: str) -> Usage:
        return _sum(self._working.used(namespace), self.usage.get(namespace, Usage()))

    def put(self, name: Name, value: str | None, expires: int | None = None, *, version: int = 1) -> Entry:
        """The next version of a name, or a later one where one is given: what is imported keeps its own."""
        before = self.entry(name)
        made = Entry(
            *name,
            version=max(version, before.version + 1 if before is not None else 1),
            revision=self.next_revision,
            updated=self.now,
            expires=expires,
            value=value,
        )
        self.usage[name[1]] = _sum(self.usage.get(name[1], Usage()), growth(before, made))
        self.writes[name] = made
        self.changes.append(Change(made, self._author))
        return made


class Working:
    """The rows of one round while it is decided."""

    def __init__(self, loaded: Loaded) -> None:
        self.now = loaded.now
        self.revision = loaded.revision
        self.entries = dict(loaded.entries)
        self.answers = dict(loaded.answers)
        self._loaded_usage = loaded.usage
        self._growth: dict[str, Usage] = {}
        self._changed: dict[Name, Entry] = {}
        self._changes: list[Change] = []
        self._new_answers: list[Answer] = []

    def used(self, namespace: str) -> Usage:
        return _sum(self._loaded_usage.get(namespace, Usage()), self._growth.get(namespace, Usage()))

    def expire(self, entry: Entry) -> None:
        """Expiry is a change like any other."""
        self.revision += 1
        gone = msgspec.structs.replace(
            entry,
            version=entry.version + 1,
            revision=self.revision,
            updated=self.now,
            expires=None,
            value=None,
        )
        self._keep([gone], [Change(gone, EXPIRY)], {entry.namespace: growth(entry, gone)})

    def settle(self, names: Iterable[Name]) -> None:
        """Before a job looks at its names: what is over by now has become a tombstone."""
        for name in names:
            entry = self.entries.get(name)
            if entry is not None and entry.value is not None and not entry.is_live(self.now):
                self.expire(entry)

    def take(self, step: Step) -> None:
        if step.changes:
            self.revision += 1
            self._keep(list(step.writes.values()), step.changes, step.usage)

    def remember(self, answer: Answer) -> None:
        self.answers[answer.key] = answer
        self._new_answers.append(answer)

    def written(self) -> Written | None:
        if not self._changes:
            return None
        return Written(
            self.revision, list(self._changed.values()), self._changes, self._growth, self._new_answers
        )

    def _keep(self, entries: list[Entry], changes: list[Change], usage: dict[str, Usage]) -> None:
        for entry in entries:
            self.entries[entry.name] = self._changed[entry.name] = entry
        self._changes += changes
        for namespace, more in usage.items():
            self._growth[namespace] = _sum(self._growth.get(namespace, Usage()), more)


def growth(before: Entry | None, after: Entry) -> Usage:
    return Usage(_count(after) - _count(before), _size(after) - _size(before))


def _count(entry: Entry | None) -> int:
    return int(entry is not None and entry.value is not None)


def _size(entry: Entry | None) -> int:
    if entry is None or entry.value is None:
        return 0
    return len(entry.key.encode()) + len(entry.value.encode())


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(one.keys + other.keys, one.bytes + other.bytes)


class Job(InLine[Payload]):
    """A decision that waits for its round. `decide` gives the payload, or raises ToolError to change nothing."""

    def __init__(
        self,
        rounds: Rounds,
        names: frozenset[Name],
        decide: Callable[[Step], Payload],
        author: Author,
        *,
        key: str,
        view: tuple[str, str] = ("json", "full"),
    ) -> None:
        super().__init__(rounds)
        self.names = names
        self.decide = decide
        self.author = author
        self.key = key
        self.view = view
        self.payload: Payload | None = None
        self.is_called = False
        self.until = 0.0

    def value(self) -> Payload:
        assert self.payload is not None
        return self.payload

    def run(self, working: Working) -> None:
        self.payload = self.error = None  # a round may be tried again
        if (known := working.answers.get(self.key)) is not None:
            self.payload = msgspec.json.decode(known.result)
            return
        working.settle(self.names)
        step = Step(working, self.author)
        try:
            self.payload = self.decide(step)
        except Exception as error:  # its own caller's, and nobody else's in this round
            self.error = error
            return
        working.take(step)
        if step.changes:
            encoded = msgspec.json.encode(self.payload)
            working.remember(Answer(self.key, self.author.tool, *self.view, encoded))


class Rounds:
    """`patience_s`: how long a job waits for a turn before it is refused, untried."""

    def __init__(self, backend: StateBackend, patience_s: float = PATIENCE_S) -> None:
        self._backend = backend
        self._patience_s = patience_s
        self._waiting: deque[Job] = deque()
        self._is_led = False
        self._guard = threading.Lock()

    def submit(self, job: Job) -> Payload:
        """Block until the job's effect is durable, or refused. Raises what refused it."""
        if not job.wait(self._patience_s):
            if self._withdraw(job):
                raise _too_late()
            job.wait_on()
        if not job.is_done:
            self.lead(job)
        return job.result()

    def enter(self, job: Job) -> bool:
        """Put a job in line. True where nobody leads: whoever asked does, from now on."""
        job.until = time.monotonic() + self._patience_s
        with self._guard:
            self._waiting.append(job)
            leads = not self._is_led
            self._is_led = True
        return leads

    def lead(self, own: Job | None = None) -> None:
        """Round after round, until nobody waits; or until one's own job is done, then somebody else goes on."""
        while batch := self._next(own):
            late = [job for job in batch if job.until < time.monotonic()]
            for job in late:
                job.error = _too_late()
            if in_time := [job for job in batch if job.error is None]:
                self._round(in_time)
            for job in batch:
                job.finish()

    def _next(self, own: Job | None) -> list[Job]:
        with self._guard:
            if not self._waiting:
                self._is_led = False
                return []
            if own is not None and own.is_done and self._is_handed_over():
                return []
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_PER_ROUND))]
            for job in batch:
                job.is_called = True
            return batch

    def _is_handed_over(self) -> bool:
        """To the thread of one who waits; where those who wait have none, to one made for them."""
        for job in self._waiting:
            if job.lead is not None:
                job.is_called = True
                job.lead()
                return True
        try:
            threading.Thread(target=self.lead, name="state-leader", daemon=True).start()
        except RuntimeError:
            return False  # there are too many
        return True

    def _withdraw(self, job: Job) -> bool:
        """Give up waiting, unless a round has begun with it or it is its turn to lead."""
        with self._guard:
            if job.is_called:
                return False
            self._waiting.remove(job)
            return True

    def _round(self, batch: list[Job]) -> None:
        try:
            self._backend.round(_wanted(batch), lambda loaded: _decided(loaded, batch))
        except BaseException as error:  # a caller must never wait for ever
            for job in batch:
                job.error = error


def _too_late() -> StateError:
    return state_error("resource", "state_busy", "the state store has not come to this call in time")


def _wanted(batch: list[Job]) -> Wanted:
    names = frozenset(name for job in batch for name in job.names)
    return Wanted(names, frozenset(name[1] for name in names), frozenset(job.key for job in batch))


def _decided(loaded: Loaded, batch: list[Job]) -> Written | None:
    working = Working(loaded)
    for entry in loaded.due:
        working.entries.setdefault(entry.name, entry)
    working.settle(entry.name for entry in loaded.due)
    for job in batch:
        job.run(working)
    relief.if_asked()  # the commit waits for the disk, or for the server
    return working.written()

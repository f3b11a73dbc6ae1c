"""Rounds of the state store: the jobs of a batch are decided over loaded rows, and written in one transaction.

A job is a pure decision. One that refuses changes nothing and takes nothing from the others. A job whose invocation key the
store knows already is not run again: it gets the answer it had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from perdure.storage import group_commit
from perdure.storage.errors import StateError
from perdure.storage.group_commit import GroupCommit
from perdure.storage.state import (
    Answer,
    Author,
    Change,
    Entry,
    Loaded,
    Name,
    StateBackend,
    Usage,
    Wanted,
    Written,
)

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


class Job(group_commit.Job):
    """A decision that waits for its round. `decide` gives the payload, or raises to change nothing."""

    def __init__(
        self,
        names: frozenset[Name],
        decide: Callable[[Step], Payload],
        author: Author,
        *,
        key: str,
        view: tuple[str, str] = ("json", "full"),
    ) -> None:
        super().__init__()
        self.names = names
        self.decide = decide
        self.author = author
        self.key = key
        self.view = view
        self.deadline = 0.0

    def run(self, working: Working) -> None:
        self.result = self.error = None  # a round may be tried again
        if (known := working.answers.get(self.key)) is not None:
            self.result = msgspec.json.decode(known.result)
            return
        working.settle(self.names)
        step = Step(working, self.author)
        try:
            self.result = self.decide(step)
        except Exception as error:  # its own caller's, and no other job's of this round
            self.error = error
            return
        working.take(step)
        if step.changes:
            encoded = msgspec.json.encode(self.result)
            working.remember(Answer(self.key, self.author.tool, *self.view, encoded))


class Rounds:
    """The commit thread of a state store. A job that waited longer than `patience_s` for its round is refused, untried."""

    def __init__(self, backend: StateBackend, patience_s: float = PATIENCE_S) -> None:
        self._backend = backend
        self._patience_s = patience_s
        self._commits: GroupCommit[Job] = GroupCommit("state-commit", self._run_round, _closed)

    def submit(self, job: Job) -> Future[Payload]:
        """The future is completed when the job's effect is durable, or refused."""
        job.deadline = time.monotonic() + self._patience_s
        return self._commits.submit(job)

    def close(self) -> None:
        self._commits.close()

    def _run_round(self, batch: list[Job]) -> None:
        now = time.monotonic()
        for job in batch:
            if job.deadline < now:
                job.error = StateError(
                    "resource", "state_busy", "the state store has not come to this call in time"
                )
        if in_time := [job for job in batch if job.error is None]:
            self._backend.round(_wanted(in_time), lambda loaded: _decided(loaded, in_time))


def _closed() -> StateError:
    return StateError("resource", "state_closed", "the state store is being closed")


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
    return working.written()

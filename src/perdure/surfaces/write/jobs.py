"""What a round is made of: jobs, each one caller's change, and what they plan to put on disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, Protocol

from perdure.storage.journal import Journal
from perdure.surfaces.port import Flag
from perdure.surfaces.waiting import Waited, Work
from perdure.surfaces.write.syncing import SyncPass


class Line(Protocol):
    """Where jobs wait for their round."""

    def enter(self, job: Job) -> bool:
        """Put a job in line. True where nobody leads: whoever asked does, from now on."""

    def lead(self, own: Job | None = None) -> None:
        """Work for all in line."""


class Landing(Protocol):
    """A planned change whose intent is durable: what is left is to make it so."""

    seqs: list[int]
    payload: Any
    is_stuck: bool
    """It failed, and a part of it could not be taken back: its intents stay open, for the next start."""

    def land(self) -> None:
        """Put the change on disk. Raises ToolError where it cannot be, with everything as it was."""

    def failed(self, journal: Journal, error: Exception) -> None:
        """In a transaction: conclude the intents that did not land. Called again where that did not commit."""

    def concluded(self, error: Exception) -> None:
        """It did: the error may now tell what was kept."""

    def close(self) -> None:
        """Give up what is held for a landing that does not happen."""

    def begin_sync(self, syncing: SyncPass) -> None:
        """Start on what `sync` will wait for."""

    def sync(self, syncing: SyncPass) -> None:
        """Make what landed durable by itself, so that the journal no longer has to vouch for it."""


class NoFiles:
    """A round of the journal alone: no file changes with it, so nothing can fail to land."""

    is_stuck = False

    def __init__(self, payload: Any) -> None:
        self.seqs: list[int] = []
        self.payload = payload

    def land(self) -> None:
        pass

    def failed(self, journal: Journal, error: Exception) -> None:
        pass

    def concluded(self, error: Exception) -> None:
        pass

    def close(self) -> None:
        pass

    def begin_sync(self, syncing: SyncPass) -> None:
        pass

    def sync(self, syncing: SyncPass) -> None:
        pass


class Job:
    """One caller's change, from submission to its payload or its error."""

    def __init__(
        self,
        line: Line,
        paths: frozenset[str],
        plan: Callable[[], Landing | None],
        cancelled: Flag | None,
    ) -> None:
        self._line = line
        self.paths = paths
        self.plan = plan
        self.cancelled = cancelled
        self.landing: Landing | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self.lead: Work | None = None
        """Where a thread waits for this job: have that thread lead."""
        self._resume: Work | None = None

    def __await__(self) -> Generator[Waited, None, Any]:
        yield self
        return self.result()

    def begin(self, resume: Work) -> Work | None:
        self._resume = resume
        return self._line.lead if self._line.enter(self) else None

    def wait(self) -> None:
        """Until it is done, or it is this thread's turn to lead."""
        woken = threading.Lock()
        woken.acquire()
        self._resume = self.lead = woken.release
        if self._line.enter(self):
            return
        woken.acquire()

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    def finish(self) -> None:
        self.is_done = True
        resume, self._resume = self._resume, None
        assert resume is not None
        resume()

    def result(self) -> Any:
        """Once. What went wrong knows from where it was raised, and there this job is known: neither would ever go."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self.landing.payload if self.landing is not None else None

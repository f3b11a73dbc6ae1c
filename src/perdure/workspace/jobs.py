"""What a round is made of: jobs, each one caller's change, and what they plan to put on disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from perdure.protocol.calls import Flag
from perdure.storage.beside import Helper
from perdure.storage.in_line import InLine, Line
from perdure.storage.journal import Journal
from perdure.workspace.sync_pass import SyncPass


class NextRound(Exception):
    """Not a refusal: an earlier job of the round has claimed the same, so this one is planned in the next round."""


class Claims:
    """What the jobs of one round plan to change, by name. A job sees files as they were before the round, and the
    journal as the jobs before it leave it: it must touch nothing that one of those has claimed.

    Only the thread that plans uses it.
    """

    def __init__(self) -> None:
        self._earlier: set[Hashable] = set()
        self._own: set[Hashable] = set()
        self._is_first = True

    def begin_round(self) -> None:
        self._earlier.clear()
        self._own.clear()
        self._is_first = True

    def begin_job(self) -> None:
        self._own.clear()

    def end_job(self) -> None:
        """It is planned: what it claimed is its own until the round is over."""
        self._earlier |= self._own
        self._is_first = False

    def claim(self, *names: Hashable) -> None:
        if not self._earlier.isdisjoint(names):
            raise NextRound
        self._own.update(names)

    def claim_journal(self) -> None:
        """For a job that decides by the journal as a whole: every row in it must have landed."""
        if not self._is_first:
            raise NextRound


class Landing(Protocol):
    """A planned change whose intent is durable: what is left is to make it so."""

    seqs: list[int]
    payload: Any
    is_stuck: bool
    """It failed, and a part of it could not be taken back: its intents stay open, for the next start."""

    def begin(self, helper: Helper, most: int) -> int:
        """Before it is decided: make ready, beside the commit, what nobody can see. Returns how many of `most` files."""

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

    def begin(self, helper: Helper, most: int) -> int:
        return 0

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


class Job(InLine[Any]):
    """One caller's change, from submission to its payload or its error."""

    def __init__(
        self,
        line: Line,
        paths: frozenset[str],
        plan: Callable[[], Landing | None],
        cancelled: Flag | None,
    ) -> None:
        super().__init__(line)
        self.paths = paths
        self.plan = plan
        self.cancelled = cancelled
        self.landing: Landing | None = None
        self.is_postponed = False

    def value(self) -> Any:
        return self.landing.payload if self.landing is not None else None

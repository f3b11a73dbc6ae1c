"""What a round is made of: jobs, each one caller's change, and what they plan to put on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from perdure.storage.beside import Helper
from perdure.storage.in_line import InLine, Line
from perdure.storage.journal import Journal
from perdure.surfaces.port import Flag
from perdure.surfaces.write.syncing import SyncPass


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

    def value(self) -> Any:
        return self.landing.payload if self.landing is not None else None

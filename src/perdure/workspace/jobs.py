"""The jobs of a round: what one caller changes in the journal, and on disk once that is durable."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from perdure.protocol.calls import Flag
from perdure.protocol.envelope import ToolError
from perdure.storage import group_commit
from perdure.storage.journal import Journal
from perdure.workspace.deferred import DeferredWork
from perdure.workspace.sync_pass import AppliedChanges


class NextRound(Exception):
    """Not a refusal: an earlier job of the round has claimed the same file, so this one is staged in the next round."""


class Claims:
    """What the jobs of one round plan to change, by name. A job sees files as they were before the round, and the
    journal as the jobs before it leave it: it must touch nothing that one of those has claimed.

    Only the commit thread uses it.
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
        """The job is staged: its claims hold until the round is over."""
        self._earlier |= self._own
        self._is_first = False

    def claim(self, *names: Hashable) -> None:
        if not self._earlier.isdisjoint(names):
            raise NextRound
        self._own.update(names)

    def claim_journal(self) -> None:
        """For a job that decides by the journal as a whole: every row in it must have been applied."""
        if not self._is_first:
            raise NextRound


class Job(group_commit.Job):
    """A job that changes the journal alone, unless a subclass says otherwise."""

    paths: frozenset[str] = frozenset()
    """As the caller spelled them: two jobs that share one are not put into the same round."""
    cancelled: Flag | None = None
    is_stuck = False
    """A part of the change is on disk and could not be taken back: its intents stay open, for recovery."""

    def __init__(self) -> None:
        super().__init__()
        self.seqs: list[int] = []
        self.deferred = DeferredWork()

    def stage(self) -> None:
        """In the transaction: decide, write the rows, set `result`. Raises to change nothing."""

    def record_refusal(self, error: ToolError) -> ToolError:
        """In the transaction, after `stage` was rolled back: keep what was refused. Returns the error to answer."""
        return error

    def apply(self) -> None:
        """After COMMIT: make the change on disk. Raises where it cannot be made, with everything as it was."""

    def record_failure(self, journal: Journal, error: Exception) -> None:
        """In a transaction: conclude the intents that `apply` could not fulfil. Called again where that is rolled back."""

    def describe_failure(self, error: Exception) -> Exception:
        """Once the failure is recorded: the error to answer."""
        return error

    def applied(self) -> AppliedChanges | None:
        """What is to be synced later."""
        return None

    def discard(self) -> None:
        """Release what is held for a change that does not happen."""


class JournalJob(Job):
    """Runs a function in the transaction. Its value is the result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def stage(self) -> None:
        self.result = self._work()

"""Work of one call that is too slow for the workspace's lock.

A plan that needs the result of such work is given up, the work is done outside the lock, and the call is planned again.
The key says what the result depends on, a file's hash or identity for instance: where that changed meanwhile, the plan
asks under another key, and the work is done again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final, NoReturn, TypeVar

from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.errors import StorageError
from perdure.workspace.errors import WorkspaceError

T = TypeVar("T")

LARGE: Final = 1 << 20
"""From how many bytes on a file is hashed, copied and edited outside the lock."""
MOST: Final = 8
"""How often the same work is done for one call."""


class Deferred(Exception):
    """Not a refusal: the plan waits for this work."""

    def __init__(self, key: Hashable, work: Callable[[], Any]) -> None:
        super().__init__()
        self.key = key
        self.work = work


class DeferredWork:
    """The results that one call has waited for."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}
        self._refusals: dict[Hashable, ToolError | StorageError | WorkspaceError] = {}
        self._runs: Counter[Hashable] = Counter()

    def result(self, key: Hashable, work: Callable[[], T]) -> T:
        """In a plan: the result of the work, or the plan is given up for it."""
        if key not in self._results:
            self.request(key, work)
        result: T = self._results[key]
        return result

    def request(self, key: Hashable, work: Callable[[], Any]) -> NoReturn:
        """Give the plan up for this work. If the work was refused, the refusal is raised here, as if it had been done
        here."""
        if key in self._refusals:
            raise self._refusals[key]
        raise Deferred(key, work)

    def find(self, key: Hashable) -> Any | None:
        return self._results.get(key)

    def add(self, key: Hashable, result: Any) -> None:
        self._results[key] = result

    def run(self, deferred: Deferred) -> None:
        """Outside the lock."""
        key = deferred.key
        self._runs[key] += 1
        if self._runs[key] > MOST:
            self._refusals[key] = refuse(
                "conflict",
                "file_changing",
                "another program changed the file each time while it was being read.",
                next_step=call_again(),
                suggested_action="retry_later",
            )
            return
        try:
            self._results[key] = deferred.work()
        except OSError as error:
            self._refusals[key] = tool_error(error)
        except (ToolError, StorageError, WorkspaceError) as error:
            self._refusals[key] = error

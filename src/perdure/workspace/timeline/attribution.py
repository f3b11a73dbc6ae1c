"""Which call made a change, as a pure function of the open calls and the path.

Every beginning and every end of a call is an observation, so the set of open calls is constant between two
observations.

| open calls | whose input names the path | the change is of |
|---|---|---|
| none | a call that ended a short while ago | that call, late |
| none | none | another program |
| one | | that call |
| several | exactly one of them | that one |
| several | several of them | all that name it: shared |
| several | none of them | all open calls: shared |

A shared change goes to the call that began first, with the others named. An input names a path where it names the
file or a folder above it. Calls of Perdure's own tools are no candidates: they write their rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.storage.timeline import CallRecord

LATE_SHELL_US: Final = 60 * 1_000_000
"""How long after its end a shell command may still change what it names: it can have started a process in the
background."""
LATE_OTHER_US: Final = 10 * 1_000_000
"""The same for other tools, where only a formatter or the like can follow."""


class Author(NamedTuple):
    """`calls` is empty for another program; it has several calls where a change is shared, the oldest first."""

    calls: tuple[CallRecord, ...] = ()
    is_late: bool = False


def attribute(
    path: str, open_calls: Sequence[CallRecord], ended_calls: Sequence[CallRecord], now_us: int
) -> Author:
    """`open_calls` in the order of their beginning; `ended_calls` the newest first."""
    candidates = [call for call in open_calls if call.txn is not None]
    if not candidates:
        for call in ended_calls:
            if _is_recent(call, now_us) and names(call, path):
                return Author((call,), is_late=True)
        return Author()
    if len(candidates) == 1:
        return Author((candidates[0],))
    naming = [call for call in candidates if names(call, path)]
    return Author(tuple(naming or candidates))


def names(call: CallRecord, path: str) -> bool:
    return any(path == named or path.startswith(f"{named}/") for named in call.paths)


def _is_recent(call: CallRecord, now_us: int) -> bool:
    limit = LATE_SHELL_US if call.command is not None else LATE_OTHER_US
    return call.status != "late" and call.ended is not None and now_us - call.ended <= limit

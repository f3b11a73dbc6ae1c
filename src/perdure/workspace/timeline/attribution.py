"""Which call made a change, as a pure function of the open calls and the path.

Every beginning and every end of a call is an observation, so the set of open calls is constant between two
observations.

| open calls | whose input names the path | the change is of |
|---|---|---|
| none | a call that ended a short while ago | that call, late |
| none | none | another program |
| one | | that call |
| several | none of them | all open calls: shared |
| several | some of them | these, and all calls that name nothing; shared where that is more than one |

A call that names only other paths is taken at its word. One that names nothing (`make`) may have changed anything, so names
alone cannot tell it apart from a call that names the path. A shared change is in the change set of its first author, with
the others named: calls that name the path come first, then the order of their beginning. An input names a path where it
names the file or a folder above it. Calls of Perdure's own tools are no candidates: they write their rows themselves.
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
    """`calls` is empty for another program. It has several calls where a change is shared; the first keeps it."""

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
    if not naming:
        return Author(tuple(candidates))
    return Author((*naming, *(call for call in candidates if not call.paths)))


def names(call: CallRecord, path: str) -> bool:
    return any(path == named or path.startswith(f"{named}/") for named in call.paths)


def _is_recent(call: CallRecord, now_us: int) -> bool:
    limit = LATE_SHELL_US if call.command is not None else LATE_OTHER_US
    # An end in the future: the clock was set back, and nobody knows how long ago it was.
    return call.status != "late" and call.ended is not None and 0 <= now_us - call.ended <= limit

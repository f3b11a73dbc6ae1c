"""Everything that can go wrong behind the host, as one tree of values.

    transport    a pipe broke, a write failed
    process      a child exited, could not be started, or was killed
    protocol     a child broke the protocol
    timeout      a deadline passed
    downstream   the server itself answered with an error
    resource     a bound was reached
    replay       the replay budget is spent
    rollout      a candidate was refused
    ambiguous    the outcome cannot be known
    invariant    the host found itself inconsistent

A fault is raised once, where it happens, and shaped once, in `host_error`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

FaultClass = Literal[
    "transport",
    "process",
    "protocol",
    "timeout",
    "downstream",
    "resource",
    "replay",
    "rollout",
    "ambiguous",
    "invariant",
]
Outcome = Literal["not_started", "replayed", "probed_done", "unknown"]
Retry = Literal["safe", "after_probe", "never", "later"]

# Outside of -32768…-32000, which JSON-RPC and 2026-07-28 reserve.
OUTCOME_UNKNOWN: Final = -31094
REPLAYS_EXHAUSTED: Final = -31095
TOO_MANY_PENDING: Final = -31096
QUEUE_FULL: Final = -31097
UNAVAILABLE: Final = -31098
DEADLINE: Final = -31099


# Another attempt ends the same way, until somebody changes what is started.
PERMANENT: Final = frozenset({"command_not_allowed", "unset_variable", "invalid_entry", "sign_in_required"})


class Fault(msgspec.Struct, frozen=True, rename={"fault_class": "class"}):
    """One fault: class and stable code for machines, detail and hint for people."""

    fault_class: FaultClass
    code: str
    generation: int = 0
    detail: str = ""
    hint: str = ""


def printable(text: str) -> str:
    """A text of a file or a path as it can be sent: half of a surrogate pair as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()

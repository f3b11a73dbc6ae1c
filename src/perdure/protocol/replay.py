"""What may happen to a call whose outcome was lost (law 3).

    Convergent      another attempt is equivalent to one
    ProbeRequired   a probe decides: Completed | SafeToRetry | StillUnknown
    NeverReplay     one dispatch at most, then an honest "unknown"

Absence of evidence is NeverReplay. A restart, silence or a hint never grants a replay.
"""

from __future__ import annotations

import msgspec


class Convergent(msgspec.Struct, frozen=True, tag=True):
    pass


class NeverReplay(msgspec.Struct, frozen=True, tag=True):
    pass


class ProbeRequired(msgspec.Struct, frozen=True, tag=True):
    """Ask `tool` with arguments taken from the lost call by JSON Pointer; without one, the worker's journal."""

    tool: str = ""
    arguments: dict[str, str] = {}


ReplayClass = Convergent | ProbeRequired | NeverReplay

CONVERGENT = Convergent()
NEVER = NeverReplay()
JOURNAL = ProbeRequired()

# Methods that only read, by the protocol's own definition. tools/call is decided per tool.
READ_METHODS = frozenset(
    {
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/result",
        "tasks/cancel",
        "server/discover",
    }
)


class Completed(msgspec.Struct, frozen=True, tag=True):
    """The effect happened; this is its result, as the client would have seen it."""

    result: msgspec.Raw


class SafeToRetry(msgspec.Struct, frozen=True, tag=True):
    """The effect did not happen."""


class StillUnknown(msgspec.Struct, frozen=True, tag=True):
    pass


ProbeAnswer = Completed | SafeToRetry | StillUnknown
SAFE_TO_RETRY = SafeToRetry()
STILL_UNKNOWN = StillUnknown()


def from_annotations(read_only: bool, idempotent: bool) -> ReplayClass:
    return CONVERGENT if read_only or idempotent else NEVER


def pointer(document: object, path: str) -> object:
    """The value at a JSON Pointer (RFC 6901). Raises LookupError where there is none."""
    if path == "":
        return document
    if not path.startswith("/"):
        raise LookupError(path)
    value = document
    for part in path[1:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value[key]
        elif isinstance(value, list) and key.isdigit():
            value = value[int(key)]
        else:
            raise LookupError(path)
    return value


def pointed(document: object, path: str) -> list[object]:
    """Every value at a JSON Pointer in which `*` stands for each item of a list; none where there is none."""
    head, star, rest = path.partition("/*")
    if not star:
        try:
            return [pointer(document, path)]
        except LookupError:
            return []
    try:
        items = pointer(document, head)
    except LookupError:
        return []
    return [found for item in items for found in pointed(item, rest)] if isinstance(items, list) else []

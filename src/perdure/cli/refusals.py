"""A refused call as a command tells it: to a person in words, with `--json` as the envelope that tools give."""

from __future__ import annotations

import sys
from json import dumps
from typing import Any, Final

import msgspec

from perdure.cli.screen import clean, encodable
from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError

EXIT_CODES: Final = {
    "invalid_input": 2,
    "conflict": 3,
    "stale_precondition": 3,
    "quota_exceeded": 4,
    "policy_violation": 4,
}
USAGE: Final = 2
UNAVAILABLE: Final = 4
# What the sentence says already, or what only a program has use for.
_TOLD: Final = frozenset({"tool", "reason", "message", "next", "path", "fault"})


def exit_code(envelope: dict[str, Any]) -> int:
    if "fault" in envelope["context"]:
        return UNAVAILABLE
    if (envelope["error"], envelope["reason_hint"]) == ("policy_violation", "encoding"):
        return USAGE  # what was sent is incomplete or malformed, not forbidden
    if envelope["context"].get("reason") == "escapes_workspace":
        return USAGE  # a path that was mistyped
    return EXIT_CODES.get(envelope["error"], 1)


def in_words(command: str, envelope: dict[str, Any]) -> str:
    """One sentence, then what else is known, a line each; last the code, as tools give it."""
    context = envelope["context"]
    message = context.get("message") or envelope["error"].replace("_", " ")
    path = context.get("path")
    where = f": {clean(path)}" if isinstance(path, str) and path and path not in message else ""
    lines = [f"perdure {command}: {clean(message)}{where}"]
    lines += [f"  {clean(name)}: {_plain(value)}" for name, value in context.items() if name not in _TOLD]
    if envelope["detected_patterns"]:
        lines.append(f"  found: {', '.join(map(clean, envelope['detected_patterns']))}")
    if envelope["draft"]:
        lines.append(f"  the content is kept as draft {clean(envelope['draft'])}")
    if "reason" in context:
        lines.append(f"[{envelope['error']}/{clean(context['reason'])}]")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return clean(value if isinstance(value, str) else dumps(value, ensure_ascii=False))


def tell(command: str, error: ToolError | StorageError, as_json: bool) -> int:
    """Say it, and return the exit code."""
    found = msgspec.to_builtins(tool_error(error).envelope)
    if as_json:
        print(encodable(msgspec.json.encode(found).decode()))
    else:
        print(in_words(command, found), file=sys.stderr)
    return exit_code(found)

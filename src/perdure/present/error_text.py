"""An error as text: the sentence of a failed call, and one line for people and logs."""

from __future__ import annotations

from typing import Final

from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import Envelope, ToolError
from perdure.storage.errors import StorageError

NOT_DONE: Final = {
    "safe_write": "not written",
    "edit": "not edited",
    "safe_replace": "not edited",
    "transaction": "nothing written",
    "read": "not read",
    "restore": "not restored",
    "undo": "nothing undone",
    "rewind": "nothing undone",
    "chunk_write": "chunk not stored",
    "chunk_append": "chunk not stored",
    "chunk_compose": "not composed",
    "chunk_preview": "not composed",
    "scratch_put": "not stored",
    "scratch_get": "not read",
    "scratch_drop": "nothing dropped",
    "checkpoint": "checkpoint not saved",
    "checkpoint_read": "checkpoint not read",
    "handoff_write": "handoff not written",
    "handoff_read": "handoff not read",
}
# After these reasons a part of the effect may be there.
_UNKNOWN: Final = frozenset({"unexpected", "not_loaded"})


def sentence(tool: str, envelope: Envelope) -> str:
    """The message of a refusal, after what did not happen.

    The code that refuses a path or a content does not know what it was for, so it says the cause, and this the outcome.
    """
    context = envelope.context
    message = str(context.get("message", envelope.error))
    outcome = NOT_DONE.get(tool)
    is_known = envelope.error != "write_corruption" and "incident" not in context
    if outcome is None or not is_known or context.get("reason") in _UNKNOWN:
        return message
    return message if message.startswith(("not ", "nothing ", outcome)) else f"{outcome}: {message}"


def describe_error(error: BaseException) -> str:
    """One line without any content: it may be shown, and is logged."""
    if isinstance(error, (ToolError, StorageError)):
        envelope = tool_error(error).envelope
        return str(envelope.context.get("message") or envelope.error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"{place}{error.strerror or type(error).__name__}"
    return type(error).__name__

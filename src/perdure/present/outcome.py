"""What did not happen, at the beginning of the sentence of a refusal.

The place that refuses a path or a content does not know what it was for, so the cause is said there and the outcome here.
"""

from __future__ import annotations

from typing import Final

from perdure.protocol.envelope import Envelope

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
# Then a part of the effect may be there.
_UNKNOWN: Final = frozenset({"unexpected", "not_loaded"})


def sentence(tool: str, envelope: Envelope) -> str:
    """The message of a refusal, with what did not happen where nothing did."""
    context = envelope.context
    message = str(context.get("message", envelope.error))
    outcome = NOT_DONE.get(tool)
    is_known = envelope.error != "write_corruption" and "incident" not in context
    if outcome is None or not is_known or context.get("reason") in _UNKNOWN:
        return message
    return message if message.startswith(("not ", "nothing ", outcome)) else f"{outcome}: {message}"

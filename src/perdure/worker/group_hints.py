"""After a failure: which group of tools helps, where the session does not list it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from perdure.protocol.envelope import Envelope
from perdure.protocol.tool_groups import GROUP_OF

# Groups that help although the error does not name one of their tools.
_BY_REASON: Final = {"risk": "scratch"}
_WORD = re.compile(r"[a-z0-9_]+")


def hint_in_envelope(envelope: Envelope, disabled: Collection[str]) -> Envelope:
    """The envelope; with `enable`, the call that lists the tools which it tells the caller to use."""
    context = envelope.context
    if not disabled:
        return envelope
    words = _WORD.findall(f"{context.get('next', '')} {context.get('message', '')}")
    named = [GROUP_OF.get(word) for word in words] + [_BY_REASON.get(str(context.get("reason")))]
    group = next((name for name in named if name in disabled), None)
    if group is None:
        return envelope
    return msgspec.structs.replace(envelope, context={**context, "enable": _enable(group)})


def hint_in_payload(tool: str, payload: Any, disabled: Collection[str]) -> Any:
    """A `set_state` that lost against another agent may need a lock, or several keys at once."""
    is_conflict = tool == "set_state" and isinstance(payload, dict) and payload.get("status") == "conflict"
    if is_conflict and "coordination" in disabled:
        return {**payload, "enable": _enable("coordination")}
    return payload


def _enable(group: str) -> str:
    return f"tools action=enable group={group}"

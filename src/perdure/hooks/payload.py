"""The JSON object that a client gives to a hook: the fields that all clients share, and the event made of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from perdure.hooks.tool_calls import PATCH_TOOL, command_line, may_change_files, named_files, own_tool
from perdure.workspace.timeline.event import EventKind, HookAnswer, HookEvent

Payload = Mapping[str, Any]
MAX_NAME: Final = 200
_TOOL_KINDS: Final = ("before_tool", "after_tool", "failed_tool")
# A client sends this as a prompt when a task in the background has ended. No person asked.
NOTIFICATION: Final = "<task-notification>"


def text(payload: Payload, *keys: str) -> str | None:
    """The first of these fields that holds a text."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def name(payload: Payload, *keys: str) -> str | None:
    """The same for an identity, which is never long."""
    value = text(payload, *keys)
    return None if value is None else value[:MAX_NAME]


def is_of_a_person(payload: Payload) -> bool:
    """Whether a prompt begins a turn. The prompt of a subagent comes from its agent."""
    prompt = payload.get("prompt")
    is_notification = isinstance(prompt, str) and prompt.lstrip().startswith(NOTIFICATION)
    return not is_notification and agent(payload) is None


def agent(payload: Payload) -> str | None:
    return name(payload, "agent_id", "subagent_id")


def new_event(
    client: str,
    payload: Payload,
    kinds: Mapping[str, EventKind],
    readers: frozenset[str],
    project: str | None = None,
) -> HookEvent | None:
    """From the fields as Claude Code names them. None for an event that the time machine does not need, and where the client
    left out what an event needs: a session, or the name of a tool."""
    kind = kinds.get(str(payload.get("hook_event_name")))
    if kind is None or (kind == "prompt" and not is_of_a_person(payload)):
        return None
    session = name(payload, "session_id")
    if session is None:
        return None
    where = text(payload, "cwd") or project or os.getcwd()
    if kind not in _TOOL_KINDS:
        return HookEvent(
            client=client, kind=kind, session=session, cwd=where, project=project, agent=agent(payload)
        )
    if (tool := name(payload, "tool_name")) is None:
        return None
    tool_input = payload.get("tool_input")
    own = own_tool(tool)
    is_patch = tool == PATCH_TOOL
    return HookEvent(
        client=client,
        kind=kind,
        session=session,
        cwd=where,
        project=project,
        agent=agent(payload),
        tool=tool,
        call_id=name(payload, "tool_use_id"),
        command=None if is_patch or own is not None else command_line(tool_input),
        paths=named_files(tool_input),
        may_change_files=may_change_files(tool, readers),
        own_tool=own,
        response=payload.get("tool_response") if own is not None else None,
    )


def reply(event: str, answer: HookAnswer) -> dict[str, Any] | None:
    """What the hook of Claude Code and Codex prints for an event of this name; None where there is nothing to say."""
    if answer.refusal:
        decision = {"permissionDecision": "deny", "permissionDecisionReason": answer.refusal}
        return {"hookSpecificOutput": {"hookEventName": event, **decision}}
    if answer.notice:
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer.notice}}
    return None

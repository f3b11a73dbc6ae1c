"""The clients with hooks, and which of them sent a payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from perdure.hooks.payload import Payload
from perdure.workspace.timeline.event import HookAnswer, HookEvent

_GEMINI_EVENTS: Final = frozenset({"BeforeTool", "AfterTool", "BeforeAgent", "AfterAgent"})


class HookClient(Protocol):
    """What the module of a client has."""

    @property
    def PRESET(self) -> Mapping[str, Any]:
        """What the client's file needs beside the hooks."""

    def read_event(self, payload: Payload, environ: Mapping[str, str]) -> HookEvent | None:
        """None for an event that the time machine does not need."""

    def reply(self, payload: Payload, answer: HookAnswer) -> dict[str, Any] | None:
        """What the hook prints for this client; None where there is nothing to say."""

    def entries(self, command: str, address: str | None = None) -> dict[str, Any]:
        """What is added to the list of each event. `address` is where the client posts its hooks, where it can."""


def client_module(client: str) -> HookClient:
    """Only this client's module is loaded."""
    match client:
        case "claude-code":
            from perdure.hooks import claude_code

            return claude_code
        case "codex":
            from perdure.hooks import codex

            return codex
        case "gemini":
            from perdure.hooks import gemini

            return gemini
        case "cursor":
            from perdure.hooks import cursor

            return cursor
    raise KeyError(client)


def sender(payload: Payload) -> str:
    """The client that wrote a payload, by the fields that only it writes."""
    if "cursor_version" in payload or "generation_id" in payload:
        return "cursor"
    if str(payload.get("hook_event_name")) in _GEMINI_EVENTS or "timestamp" in payload:
        return "gemini"
    transcript = payload.get("transcript_path")
    if "turn_id" in payload or (isinstance(transcript, str) and "/rollout-" in transcript):
        return "codex"
    return "claude-code"


def read_event(payload: Payload, client: str | None, environ: Mapping[str, str]) -> HookEvent | None:
    """The event of a payload. `client` is the one that the entry was made for."""
    writer = sender(payload)
    if writer == "cursor" and client == "claude-code":
        from perdure.hooks.cursor import has_own_entry

        if has_own_entry(environ):
            return None
    return _module(writer, client).read_event(payload, environ)


def reply(payload: Payload, client: str | None, answer: HookAnswer) -> str:
    """What the hook prints, in the form that the client expects; empty for nothing."""
    import json

    made = _module(sender(payload), client).reply(payload, answer)
    return json.dumps(made) if made is not None else ""


def _module(writer: str, client: str | None) -> HookClient:
    return client_module(writer if writer == "cursor" else client or writer)

"""One tool call from its raw arguments to its result. Every failure on the way is an envelope."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from perdure.present.normalize import arguments, given_arguments, presentation, required, strict_object
from perdure.present.outcome import sentence
from perdure.present.result import CallToolResult, answer, failure
from perdure.protocol.calls import Call
from perdure.protocol.envelope import Envelope, ToolError, refuse
from perdure.protocol.next_step import ask_user, call_again, complete
from perdure.protocol.tools import View
from perdure.protocol.waiting import finished
from perdure.storage.os_errors import os_refusal
from perdure.surfaces.port import Tool
from perdure.worker.diagnostics import Diagnostics
from perdure.worker.group_hints import hint_in_envelope, hint_in_payload


def run(tool: Tool, called_as: str, raw_arguments: Raw | None, **more: Any) -> CallToolResult:
    """As `steps`, all of it in this thread."""
    return finished(steps(tool, called_as, raw_arguments, **more))


async def steps(
    tool: Tool,
    called_as: str,
    raw_arguments: Raw | None,
    *,
    default: View,
    roots: tuple[str, ...],
    context: Callable[[View], Call],
    diagnostics: Diagnostics,
    disabled_groups: Collection[str] = (),
) -> CallToolResult:
    """Normalize, run, present."""
    view = default
    sent: Mapping[str, Any] | None = None
    params: msgspec.Struct | None = None
    name = called_as if "." in called_as else tool.spec.name
    try:
        given = strict_object(raw_arguments) if raw_arguments is not None else {}
        sent = given
        view, rest = presentation(given, default)
        # Clients of the dotted names were written for a server that always sent every key.
        if "." in called_as and view.render == "json":
            view = View("json", "full")
        params = arguments(tool.spec.params, rest, roots=roots)
        if tool.steps is not None:
            payload = await tool.steps(params, context(view))
        else:
            payload = tool.handler(params, context(view))
        return answer(hint_in_payload(name, payload, disabled_groups), tool.shape, view, name, sent)
    except ToolError as error:
        envelope = hint_in_envelope(error.envelope, disabled_groups)
        return failure(placed(envelope, name, _sent(tool, sent, params)), view)
    except (Exception, SystemExit) as error:
        envelope = _unexpected(tool.spec.name, error, diagnostics)
        return failure(placed(envelope, name, _sent(tool, sent, params)), view)


def _sent(tool: Tool, sent: Mapping[str, Any] | None, params: msgspec.Struct | None) -> Mapping[str, Any]:
    """The arguments to repeat: as they were understood, else as they came, else those that a call must give."""
    if params is not None:
        return given_arguments(params)
    return sent if sent is not None else required(tool.spec.params)


def placed(envelope: Envelope, tool: str, sent: Mapping[str, Any]) -> Envelope:
    """The envelope with the call that failed: its tool, and a next step that repeats its arguments."""
    context: dict[str, Any] = {"tool": tool, **envelope.context, "message": sentence(tool, envelope)}
    if "next" in context:
        context["next"] = complete(context["next"], tool, sent, envelope.draft)
    return msgspec.structs.replace(envelope, context=context)


def _unexpected(tool: str, error: BaseException, diagnostics: Diagnostics) -> Envelope:
    """An exception's message may quote content or host paths, so only its kind goes further."""
    incident = diagnostics.unexpected(tool, error)
    if isinstance(error, OSError):
        return os_refusal(error, incident=incident).envelope
    if isinstance(error, ImportError):
        _look_again()
        return refuse(
            "blocked",
            "not_loaded",
            "a part of Perdure could not be loaded, and whether the call took effect is not known.",
            next_step=call_again(),
            suggested_action="retry_later",
            incident=incident,
        ).envelope
    return refuse(
        "blocked",
        "unexpected",
        f"{tool} failed with an unexpected {type(error).__name__}, and whether it took effect is not known.",
        next_step=ask_user(
            f"to report incident {incident}, which Perdure wrote to its log, and check what the call has changed."
        ),
        suggested_action="ask_user",
        exception=type(error).__name__,
        incident=incident,
    ).envelope


def _look_again() -> None:
    """A folder that could not be looked at once is taken for no folder by every later import, until this is forgotten."""
    for path in [path for path, finder in sys.path_importer_cache.items() if finder is None]:
        del sys.path_importer_cache[path]

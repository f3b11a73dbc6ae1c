"""One tool call, from its raw arguments to its result. Every failure becomes an envelope."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure.present.error_text import sentence
from perdure.present.normalize import arguments, given_arguments, presentation, required, strict_object
from perdure.present.result import CallToolResult, answer, failure
from perdure.present.tool_errors import os_refusal, tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import Envelope, ToolError, refuse
from perdure.protocol.next_step import ask_user, call_again, complete
from perdure.protocol.tool_groups import GROUP_OF
from perdure.protocol.tools import View
from perdure.storage.errors import StorageError, StoreReplaced
from perdure.surfaces.port import Tool
from perdure.worker.diagnostics import Diagnostics

REOPEN_TRIES: Final = 3
# Groups that help although the error does not name one of their tools.
_BY_REASON: Final = {"risk": "scratch"}
_WORD = re.compile(r"[a-z0-9_]+")


class ToolCall:
    """`roots` are the workspaces; `context` makes the call that the handler sees, in the view that its arguments ask for."""

    def __init__(
        self,
        tool: Tool,
        called_as: str,
        raw_arguments: Raw | None,
        *,
        default: View,
        roots: tuple[str, ...],
        context: Callable[[View], Call],
        diagnostics: Diagnostics,
        disabled_groups: Collection[str] = (),
    ) -> None:
        self._tool = tool
        self._called_as = called_as
        self._raw_arguments = raw_arguments
        self._view = default
        self._roots = roots
        self._context = context
        self._diagnostics = diagnostics
        self._disabled_groups = disabled_groups
        self._name = called_as if "." in called_as else tool.spec.name
        self._sent: Mapping[str, Any] | None = None
        self._params: msgspec.Struct | None = None
        self._tries = 0

    def is_brief(self) -> bool:
        """Whether the reading thread may start the call itself."""
        try:
            return self._tool.is_brief(self._parse())
        except ToolError:
            return False  # `start` raises and answers it

    def start(self, reply: Callable[[CallToolResult], None], again: Callable[[], object]) -> None:
        """Run the handler. `reply` is called once: here, or by the thread that completes the handler's future. `again` has
        the call started once more, on another thread than the one that completed the future."""
        try:
            outcome = self._tool.handler(self._parse(), self._context(self._view))
        except (Exception, SystemExit) as error:
            self._fail(error, reply, again)
            return
        if isinstance(outcome, Future):
            outcome.add_done_callback(lambda done: self._complete(done, reply, again))
        else:
            reply(self._success(outcome))

    def run(self) -> CallToolResult:
        """Run the handler and wait for its result."""
        while True:
            try:
                return self._success(self._tool.run(self._parse(), self._context(self._view)))
            except (Exception, SystemExit) as error:
                if not self._is_retried(error):
                    return self._failure(error)

    def _complete(
        self, done: Future[Any], reply: Callable[[CallToolResult], None], again: Callable[[], object]
    ) -> None:
        try:
            payload = done.result()
        except (Exception, SystemExit) as error:
            self._fail(error, reply, again)
        else:
            reply(self._success(payload))

    def _fail(
        self, error: BaseException, reply: Callable[[CallToolResult], None], again: Callable[[], object]
    ) -> None:
        if self._is_retried(error):
            again()
        else:
            reply(self._failure(error))

    def _is_retried(self, error: BaseException) -> bool:
        """The store was replaced before anything was changed: the call is made again on the one that is there now."""
        self._tries += 1
        return isinstance(error, StoreReplaced) and self._tries <= REOPEN_TRIES

    def _parse(self) -> msgspec.Struct:
        if self._params is None:
            raw = self._raw_arguments
            self._sent = given = strict_object(raw) if raw is not None else {}
            self._view, rest = presentation(given, self._view)
            # Clients of the dotted names were written for a server that always sent every key.
            if "." in self._called_as and self._view.render == "json":
                self._view = View("json", "full")
            self._params = arguments(self._tool.spec.params, rest, roots=self._roots)
        return self._params

    def _success(self, payload: Any) -> CallToolResult:
        try:
            shown = hint_in_payload(self._name, payload, self._disabled_groups)
            return answer(shown, self._tool.shape, self._view, self._name, self._sent or {})
        except (Exception, SystemExit) as error:
            return self._failure(error)

    def _failure(self, error: BaseException) -> CallToolResult:
        if isinstance(error, (ToolError, StorageError)):
            envelope = hint_in_envelope(tool_error(error).envelope, self._disabled_groups)
        else:
            envelope = _unexpected(self._tool.spec.name, error, self._diagnostics)
        return failure(placed(envelope, self._name, self._arguments()), self._view)

    def _arguments(self) -> Mapping[str, Any]:
        """The arguments to repeat: as they were understood, else as they came, else those that a call must give."""
        if self._params is not None:
            return given_arguments(self._params)
        return self._sent if self._sent is not None else required(self._tool.spec.params)


def run(tool: Tool, called_as: str, raw_arguments: Raw | None, **options: Any) -> CallToolResult:
    """Make a call and wait for its result."""
    return ToolCall(tool, called_as, raw_arguments, **options).run()


def placed(envelope: Envelope, tool: str, sent: Mapping[str, Any]) -> Envelope:
    """Add the failed call to the envelope: its tool, and a next step that repeats its arguments."""
    context: dict[str, Any] = {"tool": tool, **envelope.context, "message": sentence(tool, envelope)}
    if "next" in context:
        context["next"] = complete(context["next"], tool, sent, envelope.draft)
    return msgspec.structs.replace(envelope, context=context)


def _unexpected(tool: str, error: BaseException, diagnostics: Diagnostics) -> Envelope:
    """The message of an exception may quote content or paths, so only its type is told."""
    incident = diagnostics.unexpected(tool, error)
    if isinstance(error, OSError):
        return os_refusal(error, incident=incident).envelope
    if isinstance(error, ImportError):
        _clear_import_cache()
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


def _clear_import_cache() -> None:
    """Drop cached import failures: a folder that could not be read once would be skipped by every later import."""
    for path in [path for path, finder in sys.path_importer_cache.items() if finder is None]:
        del sys.path_importer_cache[path]


# --- groups of tools that a session does not list ------------------------------------------------------------------


def hint_in_envelope(envelope: Envelope, disabled: Collection[str]) -> Envelope:
    """Add `enable`, the call that lists the group of the tools which the error tells the caller to use."""
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
    """After a conflict of `set_state` a lock, or a change of several keys, may help: the group `coordination`."""
    is_conflict = tool == "set_state" and isinstance(payload, dict) and payload.get("status") == "conflict"
    if is_conflict and "coordination" in disabled:
        return {**payload, "enable": _enable("coordination")}
    return payload


def _enable(group: str) -> str:
    return f"tools action=enable group={group}"

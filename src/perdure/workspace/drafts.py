"""Payloads that were not written: kept as drafts, their tries counted, and both said in the error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import Envelope, ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again, call_tool, either
from perdure.storage.errors import StorageError, StoreReplaced
from perdure.storage.journal import Draft, Invocation
from perdure.workspace.contents import Content
from perdure.workspace.jobs import Job
from perdure.workspace.parts import WorkspaceParts

if TYPE_CHECKING:
    from perdure.risk import Report

log = logging.getLogger(__name__)

UNTRIED: Final = ("cancelled", "closing")
"""Reasons that say nothing about the content: it was not checked."""


def content_or_draft(*, both: bool) -> ToolError:
    return refuse(
        "invalid_input",
        "content_or_draft",
        "content and draft are both given: give one of them."
        if both
        else "content is missing (or draft, the id of a refused payload).",
        next_step=call_again(content=None) if both else call_again(content=FILL),
        suggested_action="fix_syntax",
    )


class Rejected(ToolError):
    """A refusal of what a file would have become, which is to be kept."""

    def __init__(self, envelope: Envelope, path: str, content: Content, report: Report | None = None) -> None:
        """`report` where the content as a whole was looked at for risks."""
        super().__init__(envelope)
        self.path = path
        self.content = content
        self.report = report


def record(
    workspace: WorkspaceParts,
    call: Call,
    error: ToolError,
    path: str,
    content: Content,
    redacted: Content | None = None,
) -> ToolError:
    """In a transaction: keep a payload that was refused and consume a retry. Returns the error with both in it.

    With `redacted`, what could be written in its place is kept as well. Invalid arguments do not consume the retry budget.
    """
    reason = _reason(error)
    is_counted = error.envelope.error != "invalid_input" and reason not in UNTRIED
    place = path if error.envelope.error != "invalid_input" else ""
    for kept in (content, redacted):
        if kept is not None:
            _save(workspace, call, place, kept, reason)
    left = _consume_retry(workspace, call, path, content) if is_counted else 0
    identity = draft_id(content)
    if left < 0:
        cause = str(error.envelope.context.get("message", reason)).rstrip(".")
        spent = refuse(
            "quota_exceeded",
            "retries_spent",
            f"the same content was refused for {path} too often: {cause}.",
            next_step=ask_user(f"how to go on with {path}: the content was refused each time ({reason})."),
            suggested_action="ask_user",
            draft=identity,
            path=path,
            last_error=error.envelope.error,
        )
        return ToolError(msgspec.structs.replace(spent.envelope, reason_hint=error.envelope.reason_hint))
    context = error.envelope.context
    if redacted is not None:
        clean = draft_id(redacted)
        context = {**context, "redacted_draft": clean}
        if call.tool == "safe_write":
            context["next"] = either(
                call_again(draft=clean), "classify:=false if the user wants the secret in the file"
            )
        elif call.tool == "transaction":
            context["next"] = either(
                call_again(ops=FILL), f"draft={clean} in that operation, which has no secret"
            )
        elif call.tool == "chunk_compose":
            context["next"] = call_tool("safe_write", path=path, draft=clean)
    budget = left if is_counted else error.envelope.retry_budget
    return ToolError(
        msgspec.structs.replace(error.envelope, draft=identity, retry_budget=budget, context=context)
    )


def save(workspace: WorkspaceParts, call: Call, error: ToolError, path: str, content: Content) -> ToolError:
    """As `record`, in a transaction of its own. Without a draft where nothing can be kept now."""
    try:
        recorded: ToolError = workspace.committer.transact(
            lambda: record(workspace, call, error, path, content)
        )
    except StoreReplaced:
        raise
    except (ToolError, StorageError, OSError) as failure:
        log.warning("a refused payload could not be kept: %s", failure)
        return error
    return recorded


class Refusal(Job):
    """Records a payload that was refused before it was staged. The future fails with the error to answer."""

    def __init__(
        self, workspace: WorkspaceParts, call: Call, error: Rejected, redacted: Content | None = None
    ) -> None:
        super().__init__()
        self._workspace = workspace
        self._call = call
        self._error = error
        self._redacted = redacted

    def stage(self) -> None:
        raise self._error

    def record_refusal(self, error: ToolError) -> ToolError:
        rejected = self._error
        return record(self._workspace, self._call, rejected, rejected.path, rejected.content, self._redacted)


def save_all(
    workspace: WorkspaceParts, call: Call, error: ToolError, payloads: Sequence[tuple[str, Content]]
) -> bool:
    """Keep what was sent along with a payload that was refused. False where nothing can be kept now."""

    def save_each() -> None:
        for path, content in payloads:
            _save(workspace, call, path, content, _reason(error))

    try:
        workspace.committer.transact(save_each)
    except StoreReplaced:
        raise
    except (ToolError, StorageError, OSError) as failure:
        log.warning("refused payloads could not be kept: %s", failure)
        return False
    return True


def draft_id(content: Content) -> str:
    return f"d_{content.sha256[:24]}"


def _reason(error: ToolError) -> str:
    return str(error.envelope.context.get("reason", error.envelope.error))


def _save(workspace: WorkspaceParts, call: Call, path: str, content: Content, reason: str) -> None:
    workspace.store.record(content, by_row=False)
    draft = Draft(draft_id(content), content.digest, content.size, path, reason)
    workspace.journal.save_draft(draft, call.client, call.session)


def _consume_retry(workspace: WorkspaceParts, call: Call, path: str, content: Content) -> int:
    """A call that was lost after its refusal and is made again by the host is still one try."""
    key = f"try:{call.invocation_key}" if call.invocation_key is not None else None
    known = workspace.journal.invocation(key) if key is not None else None
    if known is not None:
        return int(known.result)
    left = workspace.journal.consume_retry(path, content.digest, workspace.policy.retry_budget.default)
    if key is not None:
        view = call.view
        answer = Invocation(key, call.tool, b"", None, view.render, view.detail, str(left).encode())
        workspace.journal.record_invocation(answer, None)
    return left

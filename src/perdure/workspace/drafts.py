"""Payloads that were not written: kept as drafts, their tries counted, and both said in the error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import Envelope, ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again, call_tool, either
from perdure.storage.journal import Draft, Invocation, StoreReplaced
from perdure.workspace.contents import Content
from perdure.workspace.jobs import NoFiles

if TYPE_CHECKING:
    from perdure.risk import Report
    from perdure.workspace.workspace import WriteService

log = logging.getLogger(__name__)

UNTRIED: Final = ("cancelled", "closing")
"""Nobody looked at the content."""


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


def rejected(
    service: WriteService,
    call: Call,
    error: ToolError,
    path: str,
    content: Content,
    *,
    redacted: Content | None = None,
) -> ToolError:
    """Keep a payload that was not written, count the try, and say both in the error.

    With `redacted`, what could be written in its place is kept as well. Arguments that made no sense are no try.
    """
    reason = _reason(error)
    is_counted = error.envelope.error != "invalid_input" and reason not in UNTRIED
    place = path if error.envelope.error != "invalid_input" else ""

    def keep() -> NoFiles:
        for one in (content, redacted):
            if one is not None:
                _save(service, call, place, one, reason)
        return NoFiles({"left": _spent(service, call, path, content) if is_counted else 0})

    try:
        left: int = service.committer.submit(frozenset(), keep)["left"]
    except StoreReplaced:
        raise  # the call is made again on the store that is there now
    except (ToolError, OSError) as failure:
        log.warning("a refused payload could not be kept: %s", failure)
        return error  # the disk is full, or worse: then there is no draft to promise
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


def kept(
    service: WriteService, call: Call, error: ToolError, payloads: Sequence[tuple[str, Content]]
) -> bool:
    """Keep what was sent along with a payload that was refused. False where nothing can be kept now."""

    def keep() -> NoFiles:
        for path, content in payloads:
            _save(service, call, path, content, _reason(error))
        return NoFiles({})

    try:
        service.committer.submit(frozenset(), keep)
    except StoreReplaced:
        raise
    except (ToolError, OSError) as failure:
        log.warning("refused payloads could not be kept: %s", failure)
        return False
    return True


def draft_id(content: Content) -> str:
    return f"d_{content.sha256[:24]}"


def _reason(error: ToolError) -> str:
    return str(error.envelope.context.get("reason", error.envelope.error))


def _save(service: WriteService, call: Call, path: str, content: Content, reason: str) -> None:
    service.store.record(content, by_row=False)
    draft = Draft(draft_id(content), content.digest, content.size, path, reason)
    service.journal.save_draft(draft, call.client, call.session)


def _spent(service: WriteService, call: Call, path: str, content: Content) -> int:
    """A call that was lost after its refusal and is made again by the host is still one try."""
    key = f"try:{call.invocation_key}" if call.invocation_key is not None else None
    known = service.journal.invocation(key) if key is not None else None
    if known is not None:
        return int(known.result)
    left = service.journal.spend(path, content.digest, service.policy.retry_budget.default)
    if key is not None:
        view = call.view
        answer = Invocation(key, call.tool, b"", None, view.render, view.detail, str(left).encode())
        service.journal.remember(answer, None)
    return left

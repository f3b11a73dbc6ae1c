"""The whole prediction: for one call, the expected payload or the exact refusal, and the tree after it.

A prediction is pure: it is made on a copy of the model, after the fact, so that a call that was killed can be judged
by whether it happened. `Evidence` is asked only where a merge leaves room.
"""

from __future__ import annotations

from harness.tree_model import writes
from harness.tree_model.answers import Answer, Done, Evidence, Payload, Refusal, Request
from harness.tree_model.reads import READS
from harness.tree_model.state import Model, Remembered, draft_of
from harness.tree_model.undo import undo


def perform(model: Model, request: Request, evidence: Evidence) -> tuple[Answer, Model]:
    """The answer, and the model after it. A refusal can change the model, too: a payload is kept."""
    after = model.copy()
    try:
        payload = _once(after, request, evidence)
    except Refusal as refusal:
        after = model.copy()
        refusal.beside = writes.brought(request)
        _keep(after, refusal)
        return refusal, after
    return Done(payload), after


def _once(model: Model, request: Request, evidence: Evidence) -> Payload | None:
    """The same idempotency key with the same arguments is done once."""
    given = request.arguments
    sent = writes.sent_content(model, given) if request.tool == "safe_write" else b""
    key = given.get("idempotency_key")
    known = model.keys.get(key) if key is not None else None
    if known is not None and model.entry(known.last) is not None:
        if (known.tool, known.arguments) != (request.tool, given):
            refusal = Refusal("conflict", "key_reused")
            refusal.kept = (given["path"], sent) if request.tool == "safe_write" else None
            raise refusal
        return {**known.payload, "deduplicated": True}
    payload = _run(model, request, sent, evidence)
    if key is not None and payload is not None:
        model.keys[key] = Remembered(request.tool, given, model.head, payload)
    return payload


def _run(model: Model, request: Request, sent: bytes, evidence: Evidence) -> Payload | None:
    match request.tool:
        case "safe_write":
            return writes.safe_write(model, request, sent)
        case "edit" | "safe_replace":
            return writes.edit(model, request)
        case "restore":
            return writes.restore(model, request)
        case "transaction":
            return writes.transaction(model, request)
        case "undo":
            return undo(model, request, evidence)
    return READS[request.tool](model, request)


def _keep(model: Model, refusal: Refusal) -> None:
    """A payload that was refused stays, what came beside it too, and its tries are counted."""
    model.drafts |= {draft_of(content): content for content in refusal.beside}
    if refusal.kept is None:
        return
    refusal.left = {max(one - 1, -1) for one in model.left(refusal.kept)}
    refusal.draft = draft_of(refusal.kept[1])
    model.tried(refusal.kept, refusal.left)
    model.drafts[refusal.draft] = refusal.kept[1]

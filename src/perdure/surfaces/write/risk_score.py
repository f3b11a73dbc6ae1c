"""`risk_score`: what would get a content rejected, told before it is written."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from perdure import risk
from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_again
from perdure.protocol.tools import arg
from perdure.surfaces.write import screening
from perdure.workspace.drafts import content_or_draft
from perdure.workspace.workspace import Workspace

REJECTED: Final = "high"  # the default of safe_write's classify_reject_at
MOST_REDACTED: Final = 16 * 1024 * 1024


class RiskScore(msgspec.Struct, frozen=True):
    content: Annotated[str, arg()] | None = None
    draft: Annotated[str, arg()] | None = None
    target_path: Annotated[str, arg(path="relative")] | None = None
    language_hint: Annotated[str, arg()] | None = None
    redact: Annotated[bool, arg("Also return it with the secrets replaced.")] = False


def risk_score(workspace: Workspace, given: RiskScore, call: Call) -> dict[str, Any]:
    if (given.content is None) == (given.draft is None):
        raise content_or_draft(both=given.draft is not None)
    draft = workspace.draft(given.draft) if given.draft is not None else None
    if draft is not None and draft.size > MOST_REDACTED:
        if given.redact:
            raise refuse(
                "invalid_input",
                "too_large",
                "the draft is larger than 16 MiB, and no more is redacted.",
                next_step=call_again(redact=None),
                suggested_action="split",
                reason_hint="size_limit",
            )
        content, report = "", screening.whole(workspace.store.pieces(draft), workspace.policy)
        longest = screening.longest_line(workspace.store.pieces(draft))
    else:
        content = given.content or ""
        if draft is not None:
            content = screening.readable(b"".join(workspace.store.pieces(draft)))
        report = risk.scan(content, workspace.policy)
        longest = risk.longest_line(content)
    found: dict[str, Any] = {
        "score": report.score,
        "verdict": report.verdict,
        "accepted": report.verdict != REJECTED,
        "bytes": report.bytes,
        "line_count": report.line_count,
        "max_line_len": longest,
        "detected_patterns": screening.told(report),
        "detected_total": report.total,
        "suggested_actions": msgspec.to_builtins(report.suggested_actions),
        "language_hint": given.language_hint,
        "target_path": given.target_path,
    }
    return {**found, "redacted": risk.redact(content, report)} if given.redact else found

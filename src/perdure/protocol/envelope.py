"""The one shape of a failed tool call, and the exception that carries it to where it is answered.

    error              what happened             blocked … conflict
    reason_hint        why, as far as is known   content_filter … unknown
    suggested_action   what to do next           redact … fix_syntax
    retry_budget       how often the same content may still be tried at the same target
    draft              the id under which a rejected payload is kept, to be sent instead of the content
    context            details for this tool: `message` is one sentence, `next` the call to make then

No content or secret may stand in an envelope: it is read by models and kept in logs.
`python -m perdure.protocol.envelope` prints the JSON Schema that `spec/error.schema.json` holds.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from perdure.protocol.msgspec_types import prepare_type

ErrorKind = Literal[
    "blocked",
    "stale_precondition",
    "write_corruption",
    "quota_exceeded",
    "policy_violation",
    "invalid_input",
    "not_found",
    "conflict",
]
ReasonHint = Literal["content_filter", "size_limit", "encoding", "permission", "network", "syntax", "unknown"]
SuggestedAction = Literal[
    "redact", "split", "escape", "ask_user", "retry_later", "abort", "reread", "fix_syntax"
]

SCHEMA_VERSION: Final = "1"
SCHEMA_URI: Final = "perdure://schema/error"


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A failed tool call. Every member is always sent, so a reader never has to guess."""

    ok: Annotated[bool, Meta(description="Always false.")] = False
    schema_version: Annotated[Literal["1"], Meta(description="Version of this shape.")] = SCHEMA_VERSION
    error: Annotated[ErrorKind, Meta(description="What happened.")]
    reason_hint: Annotated[ReasonHint, Meta(description="Why, as far as is known.")] = "unknown"
    detected_patterns: Annotated[
        tuple[str, ...], Meta(description="Families of patterns found in the payload, never the matches.")
    ] = ()
    suggested_action: Annotated[SuggestedAction, Meta(description="What to do next.")] = "abort"
    retry_budget: Annotated[
        int, Meta(ge=0, description="Attempts left for the same content at the same target.")
    ] = 0
    draft: Annotated[
        str | None, Meta(description="Id of the kept payload, to be given as `draft` instead of the content.")
    ] = None
    context: Annotated[
        dict[str, Any],
        Meta(
            description="Details of this failure: `tool`, `reason`, `message` (one sentence) and `next` (the call to make)."
        ),
    ] = {}


class ToolError(Exception):
    """Raised once where a tool call fails, shaped once where it is answered."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope.error)
        self.envelope = envelope

    def __str__(self) -> str:
        """For a log: no message, which may name more than a log should."""
        context = self.envelope.context
        named = (self.envelope.error, context.get("reason"), context.get("errno"))
        return "/".join(str(part) for part in named if part is not None)


def refuse(
    error: ErrorKind,
    reason: str,
    message: str,
    *,
    next_step: str,
    reason_hint: ReasonHint = "unknown",
    suggested_action: SuggestedAction = "abort",
    detected_patterns: tuple[str, ...] = (),
    retry_budget: int = 0,
    draft: str | None = None,
    **context: Any,
) -> ToolError:
    """The exception for a failure: a stable `reason` for programs, one sentence, and the call to make next
    (`perdure.protocol.next_step`)."""
    return ToolError(
        Envelope(
            error=error,
            reason_hint=reason_hint,
            detected_patterns=detected_patterns,
            suggested_action=suggested_action,
            retry_budget=retry_budget,
            draft=draft,
            context={"reason": reason, "message": message, "next": next_step, **context},
        )
    )


def error_schema() -> dict[str, Any]:
    """The JSON Schema of an envelope, as published at `perdure://schema/error`."""
    (_,), components = msgspec.json.schema_components(
        (prepare_type(Envelope),), ref_template="#/$defs/{name}"
    )
    body = components["Envelope"]
    properties: dict[str, Any] = {}
    for name, declared in body["properties"].items():
        properties[name] = {key: value for key, value in declared.items() if key != "default"}
    for name, constant in (("ok", False), ("schema_version", SCHEMA_VERSION)):
        properties[name] = {"description": properties[name]["description"], "const": constant}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_URI,
        "title": "Perdure tool error",
        "description": body["description"],
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def schema_text() -> str:
    """The published schema as it is kept in the repository."""
    return msgspec.json.format(msgspec.json.encode(error_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")

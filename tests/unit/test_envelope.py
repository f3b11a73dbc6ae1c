"""The error envelope: its words, its schema, and that the published schema is the generated one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest

from perdure.protocol.envelope import (
    Envelope,
    ErrorKind,
    ReasonHint,
    SuggestedAction,
    ToolError,
    error_schema,
    refuse,
)

SPEC = Path(__file__).parents[2] / "spec" / "error.schema.json"


def test_the_words_are_those_of_the_contract() -> None:
    assert " ".join(get_args(ErrorKind)) == (
        "blocked stale_precondition write_corruption quota_exceeded policy_violation invalid_input not_found "
        "conflict"
    )
    assert " ".join(get_args(ReasonHint)) == (
        "content_filter size_limit encoding permission network syntax unknown"
    )
    assert " ".join(get_args(SuggestedAction)) == (
        "redact split escape ask_user retry_later abort reread fix_syntax"
    )


def test_the_published_schema_is_the_generated_one() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "perdure.protocol.envelope"], capture_output=True, text=True, check=True
    )
    assert made.stdout == SPEC.read_text(), (
        "run: python -m perdure.protocol.envelope > spec/error.schema.json"
    )


def test_every_member_is_sent_in_order_and_valid() -> None:
    sent = msgspec.to_builtins(Envelope(error="blocked"))
    assert list(sent) == [
        "ok",
        "schema_version",
        "error",
        "reason_hint",
        "detected_patterns",
        "suggested_action",
        "retry_budget",
        "draft",
        "context",
    ]
    assert sent["ok"] is False
    assert sent["schema_version"] == "1"
    jsonschema.validate(msgspec.json.decode(msgspec.json.encode(sent)), error_schema())


@pytest.mark.parametrize(
    "broken",
    [
        {"ok": True},
        {"error": "oops"},
        {"reason_hint": "because"},
        {"suggested_action": "pray"},
        {"retry_budget": -1},
        {"draft": 3},
        {"schema_version": "2"},
        {"more": 1},
    ],
)
def test_the_schema_refuses_what_is_not_an_envelope(broken: dict[str, object]) -> None:
    sent = msgspec.json.decode(msgspec.json.encode(Envelope(error="conflict")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**sent, **broken}, error_schema())


def test_a_refusal_carries_its_envelope_and_says_only_its_kind_and_reason_as_text() -> None:
    error = refuse(
        "not_found",
        "no_file",
        "there is no such file",
        next_step="journal_tail",
        suggested_action="reread",
        path="a.txt",
    )
    assert isinstance(error, ToolError)
    assert str(error) == "not_found/no_file"
    assert error.envelope.context == {
        "reason": "no_file",
        "message": "there is no such file",
        "next": "journal_tail",
        "path": "a.txt",
    }


def test_an_envelope_cannot_be_changed_after_it_was_made() -> None:
    with pytest.raises(AttributeError):
        Envelope(error="blocked").error = "conflict"  # type: ignore[misc]

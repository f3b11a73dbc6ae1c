"""What a model is told when a session opens: which tool for which need, and what arguments have in common.

The text names only tools that the session lists. The host composes it, since it knows what a session lists; a worker
without a host does the same for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from perdure.protocol.tool_groups import ToolGroup

# A sentence, and the tools that must be listed for it.
_SENTENCES: Final = (
    ("Read a file with read, which also gives its sha256.", ("read",)),
    (
        "Change files with edit (passages), safe_write (whole files) or transaction (several files, move, delete).",
        ("edit", "safe_write", "transaction"),
    ),
    (
        "Every change is journaled: history and diff show it, undo and restore take it back.",
        ("history", "diff", "undo", "restore"),
    ),
    (
        "For a file too large for one call: chunk_append its pieces, then chunk_compose.",
        ("chunk_append", "chunk_compose"),
    ),
    ("Keep secrets and raw logs out of the project with scratch_put.", ("scratch_put",)),
    (
        "Check text before you write it with risk_score (secrets) and validate (syntax).",
        ("risk_score", "validate"),
    ),
    (
        "To take over a task call handoff_read; to leave one call handoff_write.",
        ("handoff_read", "handoff_write"),
    ),
    ("Save your own progress with checkpoint.", ("checkpoint",)),
    (
        "Share values between agents with get_state and set_state; pass the version you read as expected_version.",
        ("get_state", "set_state"),
    ),
    (
        "To coordinate: state_wait waits for a change, state_txn changes several keys, lease locks a name, once runs a "
        "job once.",
        ("state_wait", "state_txn", "lease", "once"),
    ),
)
_ARGUMENTS: Final = """\
Common arguments: expected_prev_sha256, the hash the file must have now ("": no file); draft, a refused payload, instead of \
content; validate=refuse rejects syntax errors; classify=false writes although secrets were found; force=true skips the \
guards; idempotency_key, sent again, runs once; render (porcelain, json) and detail (concise, full)."""
_FAILURES: Final = """\
A failed call says why, then after next: the call to make (key:=JSON for values that are not text; \
fill in ...). A refused payload is kept: send its id as draft. With retry_budget 0 do not send it again."""


def instructions(listed: Collection[str], disabled: Sequence[ToolGroup] = (), workspace: str = "") -> str:
    """For a session that lists these tools and can enable these groups."""
    lines = [" ".join(sentence for sentence, tools in _SENTENCES if set(tools) <= set(listed))]
    if workspace:
        lines.append(f"The workspace is {workspace}; paths are relative to it, or absolute.")
    if disabled and "tools" in listed:
        groups = ", ".join(f"{group.name} ({group.about})" for group in disabled)
        lines.append(f"More tools with tools action=enable group=NAME: {groups}.")
    return "\n".join([*filter(None, lines), _ARGUMENTS, _FAILURES])

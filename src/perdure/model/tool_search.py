"""How a client that hides tools behind a search finds ours: those it always loads, and words to search the others by."""

from __future__ import annotations

from typing import Final

ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
SEARCH_HINT: Final = "anthropic/searchHint"

ALWAYS_LOADED: Final = frozenset(
    {"safe_write", "read", "edit", "transaction", "undo", "get_state", "set_state"}
)
SEARCH_HINTS: Final = {
    "health": "server status, why a tool or server is not available",
    "telemetry": "request counts, errors, latency",
    "mounts": "restart, enable or disable an MCP server",
    "safe_replace": "replace text in a file, old_string new_string",
    "journal_tail": "recent file changes, who changed what, audit log",
    "history": "versions of a file",
    "diff": "what changed in a file, compare versions",
    "restore": "bring back an old version of a file",
    "analytics": "write statistics per file, agent, session",
    "risk_score": "secrets, API keys, PII in text before writing",
    "validate": "check syntax of JSON, YAML, TOML, Python, code",
    "chunk_write": "write a large file in parts",
    "chunk_append": "add the next part of a large file",
    "chunk_compose": "assemble the parts into one file",
    "chunk_reset": "discard the parts of a large file",
    "chunk_status": "which parts of a large file are there",
    "chunk_preview": "look at the assembled parts before writing",
    "scratch_put": "keep sensitive or long text outside the workspace",
    "scratch_ref": "find a kept text by label or hash",
    "scratch_get": "read a kept text back",
    "scratch_drop": "delete a kept text",
    "handoff_write": "hand the task over to the next agent or session, summary, next steps",
    "handoff_read": "take over a task, what the previous agent left",
    "checkpoint": "save progress of a long task",
    "checkpoint_read": "continue from saved progress",
    "checkpoint_list": "saved progress, list",
    "checkpoint_cleanup": "delete old saved progress",
    "force_set_state": "overwrite shared state without a version check",
    "list_state": "keys of the shared state",
    "delete_state": "remove a key of the shared state",
    "state_wait": "wait until another agent changes shared state",
    "state_txn": "compare and change several state keys at once",
    "state_patch": "increment a counter, append, merge JSON in shared state",
    "state_history": "earlier values of a state key",
    "lease": "lock, mutex, leader election between agents",
    "once": "run a job exactly once, cron, deduplicate",
}


def search_meta(tool: str) -> dict[str, object]:
    """The members of a tool's `_meta` that say so."""
    if tool in ALWAYS_LOADED:
        return {ALWAYS_LOAD: True}
    return {SEARCH_HINT: SEARCH_HINTS[tool]} if tool in SEARCH_HINTS else {}

"""How a client that hides tools behind a search finds ours: those that it always loads, and more words to search by."""

from __future__ import annotations

from typing import Final

ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
SEARCH_HINT: Final = "anthropic/searchHint"

ALWAYS_LOADED: Final = frozenset(
    {"safe_write", "read", "edit", "transaction", "undo", "get_state", "set_state"}
)
# Words that people search by and that neither the title nor the description of a tool has.
SEARCH_HINTS: Final = {
    "journal_tail": "audit log, activity",
    "risk_score": "API keys, credentials, PII",
    "checkpoint": "resume a long task",
    "lease": "mutex, leader election",
    "once": "cron, deduplicate, exactly once",
    "state_txn": "compare-and-swap, transaction",
    "state_patch": "counter, queue",
}


def search_meta(tool: str) -> dict[str, object]:
    """The members of a tool's `_meta` that say so."""
    if tool in ALWAYS_LOADED:
        return {ALWAYS_LOAD: True}
    return {SEARCH_HINT: SEARCH_HINTS[tool]} if tool in SEARCH_HINTS else {}

"""Permissions for tools that only read, so that a client does not ask a person before each of them.

Each tool is named: a rule for the whole server would also permit the tools of the servers mounted behind it. A write is
asked about as before, and so is the scratchpad, which holds secrets. Clients that are not here permit tools by their
`readOnlyHint`, or have no rule for one tool in a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.registry.clients.config_text import Uneditable, is_blank, newline_of
from perdure.registry.clients.json_syntax import parse_object, put_value
from perdure.registry.file import jsonc

READING: Final = (
    "read", "history", "diff", "journal_tail", "timeline", "analytics", "health", "telemetry", "handoff_read", "get_state",
    "list_state", "state_history", "state_wait", "checkpoint_read", "checkpoint_list", "risk_score", "validate",
    "chunk_status", "chunk_preview",
)  # fmt: skip
"""A test compares it with the tools' own annotations."""
SERVER: Final = "mcp__perdure"
ENTRY_KEYS: Final = {"cline": "autoApprove"}
"""The list of tools in a client's own entry of the server."""
PLACE: Final = ("permissions", "allow")
"""Where Claude Code's settings hold its rules."""


def entry_permissions(client: str) -> dict[str, list[str]]:
    return {ENTRY_KEYS[client]: list(READING)} if client in ENTRY_KEYS else {}


def settings_rules(client: str) -> tuple[str, ...]:
    """The rules for the client's settings file; empty where it has none."""
    return tuple(f"{SERVER}__{tool}" for tool in READING) if client == "claude-code" else ()


def missing_rules(text: str, rules: Sequence[str]) -> list[str]:
    """The rules that the file does not have yet; none where it permits the whole server."""
    present = _rules(text)
    if SERVER in present or f"{SERVER}__*" in present:
        return []
    return [rule for rule in rules if rule not in present]


def with_rules(text: str, rules: Sequence[str]) -> str:
    if not rules:
        return text
    if is_blank(text):
        text = f"{text}{{}}{newline_of(text)}"
    node = jsonc.find(parse_object(text), PLACE)
    if node is not None and node.kind == "list":
        return jsonc.append_all(text, node, [(None, rule) for rule in rules])
    if node is not None:
        raise Uneditable(f"{'.'.join(PLACE)} is not a list")
    return put_value(text, PLACE, list(rules))


def without_rules(text: str, rules: Sequence[str]) -> str:
    """The text without these rules, and without the lists that this leaves empty."""
    node = jsonc.find(parse_object(text), PLACE)
    if node is None or node.kind != "list":
        return text
    own = [position for position, rule in enumerate(node.value) if rule in rules]
    if not own:
        return text
    text = jsonc.without(text, node, *own)
    for depth in (2, 1):
        place = PLACE[:depth]
        holder = jsonc.find(parse_object(text), place)
        if holder is not None and not holder.elements:
            text = jsonc.remove(text, place)
    return text


def _rules(text: str) -> list[Any]:
    node = jsonc.find(parse_object(text), PLACE)
    return list(node.value) if node is not None and node.kind == "list" else []

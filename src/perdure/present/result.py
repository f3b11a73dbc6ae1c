"""The one builder of tool results: every answer of every tool, ours or the host's, is made here.

| | concise | full |
|---|---|---|
| porcelain | summary and short fields as text | every field as text |
| json | the declared summary, structured and as compact text | the whole object, likewise |

Porcelain carries no structured content. A failure is the whole envelope in either render, with `isError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.present.porcelain import Bounds, bounded_lines, render
from perdure.present.scalar import clipped, one_line, printable, scalar
from perdure.present.shape import Payload, Shape, concise, full
from perdure.protocol.envelope import Envelope
from perdure.protocol.next_step import complete
from perdure.protocol.tools import View

CallToolResult = dict[str, Any]

_NESTED: Final = (dict, list, tuple)
HASH_SHOWN: Final = 12
ERROR_BOUNDS: Final = Bounds(lines=39, width=600, scalar=400, cell=120, rows=20)
# What the caller knows, and what the first two lines and the last one tell.
_TOLD: Final = frozenset(
    [
        "tool",
        "reason",
        "message",
        "next",
        "ok",
        "status",
        "errno",
        "how",
        "can_force",
        "classify_reject_at",
        "suggested_actions",
        "score",
        "verdict",
    ]
)

# What the sentence of a failed status tells.
_IN_STATUS: Final = frozenset(
    {"key", "name", "expected_version", "actual_version", "lease_token", "succeeded", "revision"}
)


def success(payload: object, shape: Shape, view: View | None = None) -> CallToolResult:
    """The result of a call that did what was asked. The payload is a struct or a mapping, in full."""
    wanted = view or View()
    whole = full(shape, _plain(payload))
    match wanted.render:
        case "porcelain":
            return _text(render(whole, shape, wanted.detail), is_error=False)
        case "json":
            return _structured(whole if wanted.detail == "full" else concise(shape, whole), is_error=False)


def answer(
    payload: object, shape: Shape, view: View, tool: str, arguments: Mapping[str, Any]
) -> CallToolResult:
    """The result of a call whose payload says whether it succeeded."""
    failed = shape.failure(_plain(payload), arguments) if shape.failure is not None else None
    if failed is None:
        return success(payload, shape, view)
    whole = full(shape, _plain(payload))
    whole = {
        **whole,
        **({"ok": False} if shape.ok else {}),
        "next": complete(failed.next_step, tool, arguments),
    }
    whole.setdefault("message", failed.sentence)
    match view.render:
        case "porcelain":
            code = f"{whole['status']}/{failed.reason}"
            facts = {name: value for name, value in whole.items() if name not in _IN_STATUS}
            return _text(_failure_text(failed.sentence, facts, code), is_error=True)
        case "json":
            return _structured(whole, is_error=True)


def failure(envelope: Envelope, view: View | None = None) -> CallToolResult:
    """The result of a call that failed."""
    match (view or View()).render:
        case "porcelain":
            return _text(_error_text(envelope), is_error=True)
        case "json":
            return _structured(_plain(envelope), is_error=True)


def _error_text(envelope: Envelope) -> str:
    context = envelope.context
    facts: dict[str, Any] = {
        "draft": envelope.draft,
        # Only a payload that is kept has a retry budget.
        "retry_budget": envelope.retry_budget
        if envelope.draft and envelope.error != "invalid_input"
        else None,
        "detected_patterns": envelope.detected_patterns,
        **context,
    }
    code = f"{envelope.error}/{scalar(context.get('reason', 'unknown'), 'atom', 80)}"
    return _failure_text(str(context.get("message", envelope.error)), facts, code)


def _failure_text(sentence: str, facts: Mapping[str, Any], code: str) -> str:
    """What did not happen, what to do next, then the facts that neither of them tells, then the code."""
    line = one_line(sentence)
    head = [clipped(line if line.endswith((".", "?")) else f"{line}.", ERROR_BOUNDS.scalar)]
    if "next" in facts:
        head.append(f"next: {one_line(str(facts['next']))}")
    lines = [
        f"{scalar(name, 'atom', 80)}: {_fact(name, value)}"
        for name, value in _untold(facts, head).items()
        if name not in _TOLD
    ]
    return f"{bounded_lines([*head, *lines], ERROR_BOUNDS)}\n[{code}]"


def _untold(facts: Mapping[str, Any], head: list[str]) -> dict[str, Any]:
    """The facts without those that are empty or that the first lines tell, nor such members of a fact."""
    inner = {
        name: _untold(value, head) if isinstance(value, dict) else value for name, value in facts.items()
    }
    return {
        name: value for name, value in inner.items() if not _is_empty(value) and not _is_said(value, head)
    }


def _fact(name: str, value: object) -> str:
    plain = _builtins(value)
    if isinstance(plain, dict) and not any(isinstance(item, _NESTED) for item in plain.values()):
        items = (
            f"{scalar(name, 'atom', 80)} {scalar(item, 'atom', ERROR_BOUNDS.cell)}"
            for name, item in plain.items()
        )
        return clipped("  ".join(items), ERROR_BOUNDS.scalar)
    if isinstance(plain, list) and all(isinstance(item, str | int) for item in plain):
        shown = [scalar(item, "cell", ERROR_BOUNDS.cell) for item in plain[: ERROR_BOUNDS.rows]]
        if (hidden := len(plain) - len(shown)) > 0:
            shown.append(f"… {hidden:,} omitted")
        return clipped(" | ".join(shown), ERROR_BOUNDS.scalar)
    if isinstance(plain, str) and name.endswith("sha256"):
        plain = plain[:HASH_SHOWN]
    return scalar(plain, "line", ERROR_BOUNDS.scalar)


def _is_empty(value: object) -> bool:
    return value is None or value is False or (isinstance(value, str | list | tuple | dict) and not value)


def _is_said(value: object, lines: list[str]) -> bool:
    """Whether the first lines have this value as a word."""
    match value:
        case str() | int():
            word = re.compile(rf"(?<![\w.]){re.escape(str(value))}(?![\w])")
            return any(word.search(line) for line in lines)
        case list() | tuple():
            return all(isinstance(one, str | int) and _is_said(one, lines) for one in value)
        case _:
            return False


def _text(lines: str, *, is_error: bool) -> CallToolResult:
    return {"content": [{"type": "text", "text": lines}], "isError": is_error}


def _structured(payload: Payload, *, is_error: bool) -> CallToolResult:
    structured = dict(payload)
    try:
        encoded = msgspec.json.encode(structured)
    except UnicodeEncodeError:
        structured = printable(structured)
        encoded = msgspec.json.encode(structured)
    return {
        "content": [{"type": "text", "text": encoded.decode()}],
        "structuredContent": structured,
        "isError": is_error,
    }


def _builtins(value: object) -> Any:
    return _listed(msgspec.to_builtins(value, str_keys=True))


def _listed(value: Any) -> Any:
    """Tuples as lists: JSON has one kind of sequence, and the structured content must equal the text."""
    match value:
        case dict():
            return {key: _listed(item) if isinstance(item, _NESTED) else item for key, item in value.items()}
        case list() | tuple():
            return [_listed(item) if isinstance(item, _NESTED) else item for item in value]
        case _:
            return value


def _plain(payload: object) -> dict[str, Any]:
    plain = _builtins(payload)
    if not isinstance(plain, Mapping):
        raise TypeError("a tool answers with an object")
    return dict(plain)

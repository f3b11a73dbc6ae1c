"""The one builder of tool results: every answer of every tool, ours or the host's, is made here.

| | concise | full |
|---|---|---|
| porcelain | summary and short fields as text | every field as text |
| json | the declared summary, structured and as compact text | the whole object, likewise |

Porcelain carries no structured content. A failure is the whole envelope in either render, with `isError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.model.envelope import Envelope
from perdure.model.tools import View
from perdure.present.porcelain import Bounds, bounded_lines, render
from perdure.present.scalar import printable, scalar
from perdure.present.shape import Payload, Shape, concise, full

CallToolResult = dict[str, Any]

_NESTED: Final = (dict, list, tuple)
ERROR_BOUNDS: Final = Bounds(lines=40, width=600, scalar=400, cell=120, rows=20)


def success(payload: object, shape: Shape, view: View | None = None) -> CallToolResult:
    """The result of a call that did what was asked. The payload is a struct or a mapping, in full."""
    wanted = view or View()
    whole = full(shape, _plain(payload))
    match wanted.render:
        case "porcelain":
            return _text(render(whole, shape, wanted.detail), is_error=False)
        case "json":
            return _structured(whole if wanted.detail == "full" else concise(shape, whole), is_error=False)


def failure(envelope: Envelope, view: View | None = None) -> CallToolResult:
    """The result of a call that failed."""
    match (view or View()).render:
        case "porcelain":
            return _text(bounded_lines(_error_lines(envelope), ERROR_BOUNDS), is_error=True)
        case "json":
            return _structured(_plain(envelope), is_error=True)


def _error_lines(envelope: Envelope) -> list[str]:
    limit = ERROR_BOUNDS.scalar
    patterns = [scalar(name, "cell", ERROR_BOUNDS.cell) for name in envelope.detected_patterns]
    if (hidden := len(patterns) - ERROR_BOUNDS.rows) > 0:
        patterns[ERROR_BOUNDS.rows :] = [f"… {hidden:,} omitted"]
    return [
        f"error {envelope.error}  {envelope.reason_hint}  action {envelope.suggested_action}"
        f"  retries {envelope.retry_budget}  draft {scalar(envelope.draft, 'atom', limit)}",
        f"detected_patterns: {' | '.join(patterns) or '-'}",
        f"schema_version: {envelope.schema_version}",
        *(
            f"context.{scalar(name, 'atom', 80)}: {scalar(_builtins(value), 'line', limit)}"
            for name, value in envelope.context.items()
        ),
    ]


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
    """JSON has one kind of sequence, so what is sent and what is written as text must not differ in it."""
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

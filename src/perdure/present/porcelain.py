"""A payload as lines for a reader: summary first, fields in declared order, every bound marked where it cuts.

    wrote src/app.py  1,204 bytes  sha256 4b0c12…  journal 318      summary
    warnings: no final newline | long line                          items
    files: 2 rows                                                   table
    path | op | bytes
    src/app.py | write | 1,204

Deterministic: the same payload, shape and bounds give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, assert_never

import msgspec

from perdure.model.tools import Detail
from perdure.present.scalar import ABSENT, ELLIPSIS, Place, clipped, json_text, scalar, text
from perdure.present.shape import Field, Payload, Shape


class Bounds(msgspec.Struct, frozen=True):
    """How much is shown: lines and their width, one scalar, one cell, rows of a table, one block of text."""

    lines: int = 160
    width: int = 1_000
    scalar: int = 400
    cell: int = 160
    rows: int = 100
    block: int = 400_000


CONCISE: Final = Bounds()
FULL: Final = Bounds(lines=2_000, width=16_000, scalar=8_000, cell=2_000, rows=1_000)

_DIGEST_SHOWN: Final = 6
_PLACEHOLDER = re.compile(r"\{([a-z0-9_.]+)\}")
_MISSING: Final = object()


class _Block(msgspec.Struct, frozen=True):
    name: str
    body: str


def render(payload: Payload, shape: Shape, detail: Detail = "concise", bounds: Bounds | None = None) -> str:
    """The porcelain of one payload."""
    limits = bounds or (FULL if detail == "full" else CONCISE)
    template = shape.template(payload)
    parts: list[str | _Block] = []
    if summary := _summary(template, payload, shape, detail, limits):
        parts.append(summary)
    told = _names(template)
    for field in _shown(payload, shape, detail):
        # A list in the summary is only counted there, so its rows are still to come.
        if detail == "full" or field.name not in told or isinstance(payload[field.name], list):
            parts.extend(_field(field, payload[field.name], detail, limits))
    return "\n".join(_bounded(parts, limits)) or "ok"


def bounded_lines(lines: Sequence[str], bounds: Bounds = CONCISE) -> str:
    """Ready lines under the same bounds as everything else."""
    return "\n".join(_bounded(list(lines), bounds))


def _shown(payload: Payload, shape: Shape, detail: Detail) -> Iterator[Field]:
    for field in shape.fields:
        value = payload.get(field.name, _MISSING)
        if value is _MISSING:
            continue
        if detail == "full" or not (field.full_only or value is None or value == [] or value == {}):
            yield field
    if detail == "full":
        declared = {"ok", *(field.name for field in shape.fields)}
        yield from (Field(name, "json") for name in payload if name not in declared)


class _Told(msgspec.Struct, frozen=True, gc=False):
    """A field as a summary names it: where it is, and what is known of its kind."""

    head: str
    rest: tuple[str, ...]
    field: Field


@lru_cache(maxsize=512)
def _segments(shape: Shape, template: str) -> tuple[tuple[str | _Told, ...], ...]:
    """A summary in its segments, each in turn a text and a field. Read once: there are few of them."""
    return tuple(
        tuple(
            _reached(shape, part) if at % 2 else part for at, part in enumerate(_PLACEHOLDER.split(segment))
        )
        for segment in template.split("  ")
    )


def _reached(shape: Shape, name: str) -> _Told:
    head, *rest = name.split(".")
    field = shape.field(head)
    for member in rest:
        field = next((c for c in field.columns if c.name == member), None) if field else None
    return _Told(head, tuple(rest), field or Field(name))


@lru_cache(maxsize=256)
def _names(template: str) -> frozenset[str]:
    return frozenset(_PLACEHOLDER.findall(template))


def _summary(template: str, payload: Payload, shape: Shape, detail: Detail, bounds: Bounds) -> str:
    """The segments all of whose fields are there."""
    segments: list[str] = []
    for segment in _segments(shape, template):
        parts: list[str] = []
        for part in segment:
            shown = part if isinstance(part, str) else _told(part, payload, detail, bounds)
            if shown is None:
                break
            parts.append(shown)
        else:
            segments.append("".join(parts))
    return "  ".join(segments)


def _told(told: _Told, payload: Payload, detail: Detail, bounds: Bounds) -> str | None:
    """A field as the summary tells it, or None where it is absent."""
    value: Any = payload.get(told.head)
    for member in told.rest:
        value = value.get(member) if isinstance(value, Mapping) else None
    if value is None:
        return None
    if isinstance(value, (list, dict)):
        return f"{len(value):,}"
    return _scalar(told.field, value, "atom", bounds.scalar, detail)


def _scalar(field: Field, value: Any, place: Place, limit: int, detail: Detail) -> str:
    if field.kind == "text":
        return scalar(value, place, limit)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    match field.kind:
        case "count" if is_integer:
            return f"{value:,}"
        case "bytes" if is_integer:
            return f"{value:,}" if place == "cell" else f"{value:,} bytes"
        case "digest" if isinstance(value, str) and detail == "concise" and value[_DIGEST_SHOWN:]:
            if value.isalnum():
                return value[:_DIGEST_SHOWN] + ELLIPSIS
            return text(value, place, limit)
        case "json":
            return clipped(json_text(value), limit)
        case _:
            return scalar(value, place, limit)


def _field(field: Field, value: Any, detail: Detail, bounds: Bounds) -> Iterator[str | _Block]:
    room = max(min(bounds.scalar, bounds.width - len(_label(field.name)) - 2), 1)
    match field.kind:
        case "table" if isinstance(value, list):
            yield from _table(field, value, detail, bounds)
        case "record" if isinstance(value, Mapping):
            yield f"{_label(field.name)}: {_record(field, value, detail, bounds) or ABSENT}"
        case "items" if isinstance(value, list):
            shown = [scalar(item, "cell", bounds.cell) for item in value[: bounds.rows]]
            if hidden := len(value) - len(shown):
                shown.append(f"{ELLIPSIS} {hidden:,} omitted")
            yield f"{_label(field.name)}: {' | '.join(shown) or ABSENT}"
        case "block" if isinstance(value, str):
            if "\n" in value or len(value) > room:
                yield _Block(field.name, value)
            else:
                yield f"{_label(field.name)}: {text(value, 'line', bounds.block)}"
        case "text" | "count" | "bytes" | "digest" | "json" | "items" | "table" | "record" | "block":
            yield f"{_label(field.name)}: {_scalar(field, value, 'line', room, detail)}"
        case _:
            assert_never(field.kind)


def _label(name: str) -> str:
    """The name of a field. Undeclared names come from data, so they are no more trusted than values."""
    return text(name, "atom", 80)


def _record(field: Field, value: Payload, detail: Detail, bounds: Bounds) -> str:
    columns = field.columns or tuple(Field(name) for name in value)
    return "  ".join(
        f"{_label(column.name)} {_scalar(column, value[column.name], 'atom', bounds.cell, detail)}"
        for column in columns
        if column.name in value and not (column.full_only and detail == "concise")
    )


def _table(field: Field, rows: list[Any], detail: Detail, bounds: Bounds) -> Iterator[str]:
    yield f"{_label(field.name)}: {len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
    columns = list(_columns(field.columns or _undeclared(rows), detail, ()))
    # What no row has was not asked for.
    columns = [(path, column) for path, column in columns if any(_has(row, path) for row in rows)]
    if not columns:
        return
    yield " | ".join(text(".".join(path), "cell", bounds.cell) for path, _ in columns)
    for row in rows[: bounds.rows]:
        yield " | ".join(
            _scalar(column, _at(row, path), "cell", bounds.cell, detail) for path, column in columns
        )
    if len(rows) > bounds.rows:
        yield f"{ELLIPSIS} {len(rows) - bounds.rows:,} rows omitted"


def _columns(
    declared: tuple[Field, ...], detail: Detail, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Field]]:
    for column in declared:
        if column.full_only and detail == "concise":
            continue
        path = (*above, column.name)
        if column.kind == "record" and column.columns:
            yield from _columns(column.columns, detail, path)
        else:
            yield path, column


def _undeclared(rows: list[Any]) -> tuple[Field, ...]:
    names = {name: None for row in rows if isinstance(row, Mapping) for name in row}
    return tuple(Field(name) for name in names)


def _has(row: Any, path: tuple[str, ...]) -> bool:
    above = _at(row, path[:-1])
    return isinstance(above, Mapping) and path[-1] in above


def _at(row: Any, path: tuple[str, ...]) -> Any:
    for member in path:
        row = row.get(member) if isinstance(row, Mapping) else None
    return row


def _bounded(parts: Sequence[str | _Block], bounds: Bounds) -> Iterator[str]:
    kept = parts if len(parts) <= bounds.lines else parts[: bounds.lines - 1]
    for part in kept:
        if isinstance(part, str):
            yield clipped(part, bounds.width)
        else:
            yield from _fenced(part, bounds)
    if hidden := len(parts) - len(kept):
        marks = (f"{ELLIPSIS} {hidden:,} lines omitted", f"{ELLIPSIS}omitted", ELLIPSIS)
        yield next((mark for mark in marks if len(mark) <= bounds.width), ELLIPSIS)


def _fenced(block: _Block, bounds: Bounds) -> Iterator[str]:
    """Text of many lines, exact between two fences that do not occur in it, or escaped and said to be so."""
    body, notes = block.body[: bounds.block], list[str]()
    hidden = len(block.body) - len(body)
    if body.count("\r\n") == body.count("\n") == body.count("\r") > 0:
        body, notes = body.replace("\r\n", "\n"), ["crlf"]
    if not body.replace("\n", "").replace("\t", "").isprintable():
        body = "\n".join(_visible(line) for line in body.split("\n"))
        notes.append("escaped")
    if not body.endswith("\n"):
        body += "\n"
        if not hidden:
            notes.append("no final newline")
    longest = max((len(run) for run in re.findall(r"^~{3,}", body, re.MULTILINE)), default=2)
    fence = "~" * (longest + 1)
    count = body.count("\n")
    yield ", ".join([f"{_label(block.name)}: {count:,} {'line' if count == 1 else 'lines'}", *notes])
    yield fence
    yield body[:-1]
    yield fence
    if hidden:
        yield f"{ELLIPSIS} {hidden:,} characters omitted"


def _visible(line: str) -> str:
    return "".join(c if c == "\t" or (c.isprintable() and c != "\\") else _spelled(c) for c in line)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode() if char != "\\" else "\\\\"

"""A payload as lines for a reader: summary first, fields in declared order, every bound marked where it cuts.

    wrote src/app.py  1,204 bytes  sha256 4b0c12d98a31  journal 318   summary
    warnings: no final newline | long line                            items
    files: 2 rows                                                     table
    path | op | bytes
    src/app.py | write | 1,204
    next: read path=src/app.py start_line=7                           hint

Deterministic: the same payload, shape and bounds give the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

import msgspec

from perdure.present.scalar import (
    ABSENT,
    ELLIPSIS,
    Place,
    clipped,
    compact_json,
    cut_mark,
    encoded_json,
    json_text,
    scalar,
    text,
)
from perdure.present.shape import Field, Payload, Placeholder, Segment, Shape, segments
from perdure.protocol.tools import Detail

WHOLE: Final = "render=json detail=full"
"""The arguments with which nothing is cut."""


class Bounds(msgspec.Struct, frozen=True):
    """How much is shown: lines and their width, one scalar, one cell, rows of a table, one block of text. `more` is the
    argument that shows more."""

    lines: int = 160
    width: int = 1_000
    scalar: int = 400
    cell: int = 160
    rows: int = 100
    block: int = 400_000
    more: str = WHOLE


CONCISE: Final = Bounds(more="detail=full")
FULL: Final = Bounds(lines=2_000, width=16_000, scalar=8_000, cell=2_000, rows=1_000)

_DIGEST_SHOWN: Final = 12
_FRACTION = re.compile(r"\.[0-9]+(?=Z$)")
_MISSING: Final = object()


class _Block(msgspec.Struct, frozen=True):
    name: str
    body: str


def render(payload: Payload, shape: Shape, detail: Detail = "concise", bounds: Bounds | None = None) -> str:
    """The porcelain of one payload."""
    limits = bounds or (FULL if detail == "full" else CONCISE)
    summary = segments(shape, shape.template(payload))
    parts: list[str | _Block] = []
    if line := _summary(summary, payload, detail, limits):
        parts.append(line)
    told = {part.head: part for segment in summary for part in segment if isinstance(part, Placeholder)}
    for field in _shown(payload, shape, detail):
        placeholder = told.get(field.name)
        value = payload[field.name]
        # A list in the summary is only counted there, so its rows are still to come.
        is_told = placeholder is not None and (
            placeholder.is_row or not (placeholder.members or isinstance(value, list))
        )
        if detail == "full" or not is_told:
            is_counted = placeholder is not None and detail == "concise"
            parts.extend(_field(field, value, detail, limits, is_counted=is_counted))
    lines = list(_bounded(parts, limits))
    if shape.hint is not None and (hint := shape.hint(payload)):
        lines.append(clipped(hint if hint.isprintable() else _visible(hint), limits.width))
    return "\n".join(lines) or "ok"


def bounded_lines(lines: Sequence[str], bounds: Bounds = CONCISE) -> str:
    """Ready lines under the same bounds as everything else."""
    return "\n".join(_bounded(list(lines), bounds))


def _shown(payload: Payload, shape: Shape, detail: Detail) -> Iterator[Field]:
    for field in shape.fields:
        value = payload.get(field.name, _MISSING)
        if value is _MISSING:
            continue
        if detail == "full" or not (field.full_only or field.quiet or _is_empty(field, value)):
            yield field
    if detail == "full":
        declared = {"ok", *(field.name for field in shape.fields)}
        yield from (Field(name) for name in payload if name not in declared)


def _is_empty(field: Field, value: Any) -> bool:
    return value is None or value == [] or value == {} or (field.kind == "block" and value == "")


def _summary(summary: tuple[Segment, ...], payload: Payload, detail: Detail, bounds: Bounds) -> str:
    """The segments all of whose fields are there."""
    lines: list[str] = []
    for segment in summary:
        # A sentence that is all of the summary needs no quotes.
        place: Place = "line" if len(summary) == len(segment) == 1 else "atom"
        parts: list[str] = []
        for part in segment:
            shown = part if isinstance(part, str) else _told(part, payload, detail, bounds, place)
            if shown is None:
                break
            parts.append(shown)
        else:
            lines.append("".join(parts))
    return "  ".join(lines)


def _told(told: Placeholder, payload: Payload, detail: Detail, bounds: Bounds, place: Place) -> str | None:
    """A field as the summary tells it, or None where it is absent."""
    value: Any = payload.get(told.head)
    for member in told.members:
        if isinstance(value, list) and member.isdigit():
            value = value[int(member)] if int(member) < len(value) else None
        else:
            value = value.get(member) if isinstance(value, Mapping) else None
    if value is None:
        return None
    if isinstance(value, (list, dict)):
        words = told.field.words if detail == "concise" else None
        value = len(words(value) if words is not None else value)
    if told.noun:
        return f"{value:,} {told.noun if value == 1 else told.plural}"
    return _scalar(told.field, value, place, bounds, detail)


def _scalar(field: Field, value: Any, place: Place, bounds: Bounds, detail: Detail) -> str:
    limit = bounds.cell if place == "cell" else bounds.scalar
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    match field.kind:
        case "count" if is_integer:
            return f"{value:,}"
        case "bytes" if is_integer:
            return f"{value:,}" if place == "cell" else f"{value:,} byte{'' if value == 1 else 's'}"
        case "time" if isinstance(value, str) and detail == "concise":
            return scalar(_FRACTION.sub("", value), place, limit)
        case "digest" if isinstance(value, str) and detail == "concise" and value.isalnum():
            return value[:_DIGEST_SHOWN]
        case "json_text" if isinstance(value, str):
            return clipped(compact_json(value), limit, bounds.more)
        case "json":
            return clipped(json_text(value), limit, bounds.more)
        case _:
            return scalar(value, place, limit, bounds.more)


def _field(
    field: Field, value: Any, detail: Detail, bounds: Bounds, *, is_counted: bool = False
) -> Iterator[str | _Block]:
    room = max(min(bounds.scalar, bounds.width - len(_label(field.name)) - 2), 1)
    if field.words is not None and detail == "concise":
        value = field.words(value)
        if isinstance(value, list) and not any(isinstance(row, Mapping) for row in value):
            yield from _sentences(field, value, bounds)
            return
        field = (
            Field(field.name, "block")
            if isinstance(value, str)
            else Field(field.name, "table", columns=field.columns)
        )
    match field.kind:
        case "table" if isinstance(value, list):
            yield from _table(field, value, detail, bounds, has_label=not is_counted)
        case "record" if isinstance(value, Mapping):
            yield f"{_label(field.name)}: {_record(field, value, detail, bounds) or ABSENT}"
        case "items" if isinstance(value, list):
            shown = [scalar(item, "cell", bounds.cell, bounds.more) for item in value[: bounds.rows]]
            if hidden := len(value) - len(shown):
                shown.append(cut_mark(hidden, "item", bounds.more))
            yield f"{_label(field.name)}: {' | '.join(shown) or ABSENT}"
        case "block" if isinstance(value, str):
            if "\n" in value or len(value) > room:
                yield _Block(field.name, value)
            else:
                yield f"{_label(field.name)}: {text(value, 'line', bounds.block)}"
        case "json" if len(json_text(value)) > room:
            yield _Block(field.name, msgspec.json.format(encoded_json(value), indent=2).decode() + "\n")
        case (
            "text"
            | "count"
            | "bytes"
            | "digest"
            | "time"
            | "json"
            | "json_text"
            | "items"
            | "table"
            | "record"
            | "block"
        ):
            limits = msgspec.structs.replace(bounds, scalar=room)
            yield f"{_label(field.name)}: {_scalar(field, value, 'line', limits, detail)}"
        case _:
            assert_never(field.kind)


def _sentences(field: Field, sentences: list[Any], bounds: Bounds) -> Iterator[str]:
    """Short ones on one line, else one on each line."""
    line = " | ".join(scalar(sentence, "cell", bounds.scalar, bounds.more) for sentence in sentences)
    if len(line) <= bounds.cell or len(sentences) == 1:
        yield f"{_label(field.name)}: {line or ABSENT}"
        return
    yield f"{_label(field.name)}:"
    yield from (
        f"  {scalar(sentence, 'line', bounds.scalar, bounds.more)}" for sentence in sentences[: bounds.rows]
    )
    if len(sentences) > bounds.rows:
        yield cut_mark(len(sentences) - bounds.rows, "line", bounds.more)


def _label(name: str) -> str:
    """The name of a field. Undeclared names come from data, so they are no more trusted than values."""
    return text(name, "atom", 80)


def _record(field: Field, value: Payload, detail: Detail, bounds: Bounds) -> str:
    columns = field.columns or tuple(Field(name) for name in value)
    limits = msgspec.structs.replace(bounds, scalar=bounds.cell)
    return "  ".join(
        f"{_label(column.name)} {_scalar(column, value[column.name], 'atom', limits, detail)}"
        for column in columns
        if column.name in value
        and not (detail == "concise" and (column.full_only or value[column.name] is None))
    )


def _table(
    field: Field, rows: list[Any], detail: Detail, bounds: Bounds, *, has_label: bool
) -> Iterator[str]:
    if has_label:
        yield f"{_label(field.name)}: {len(rows):,} {'row' if len(rows) == 1 else 'rows'}"
    columns = list(_columns(field.columns or _undeclared(rows), detail, ()))
    # What no row has was not asked for.
    columns = [(path, column) for path, column in columns if any(_has(row, path) for row in rows)]
    if not columns:
        return
    yield " | ".join(text(".".join(path), "cell", bounds.cell) for path, _ in columns)
    for row in rows[: bounds.rows]:
        yield " | ".join(_scalar(column, _at(row, path), "cell", bounds, detail) for path, column in columns)
    if len(rows) > bounds.rows:
        yield cut_mark(len(rows) - bounds.rows, "row", bounds.more)


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
            yield clipped(part, bounds.width, bounds.more)
        else:
            yield from _fenced(part, bounds)
    if hidden := len(parts) - len(kept):
        marks = (
            cut_mark(hidden, "line", bounds.more),
            cut_mark(hidden, "line", ""),
            f"{ELLIPSIS} +{hidden:,}",
        )
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
        yield cut_mark(hidden, "character", WHOLE)


def _visible(line: str) -> str:
    return "".join(c if c == "\t" or (c.isprintable() and c != "\\") else _spelled(c) for c in line)


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode() if char != "\\" else "\\\\"

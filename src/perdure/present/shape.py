"""How a tool declares its result: ordered fields with their kinds, and the line that sums it up.

    WROTE = Shape(
        "wrote {path}  {bytes}  sha256 {sha256}  journal {journal_id}",
        (
            Field("path"),
            Field("sha256", "digest"),
            Field("bytes", "bytes"),
            Field("journal_id"),
            Field("wrote_at", full_only=True),
            Field("warnings", "items"),
        ),
    )

The summary is made of segments parted by two spaces. `{name}` stands for a field as its kind shows it
(a list stands for its length, `{record.member}` reaches into a record); a segment whose field is absent
is left out. A tool whose answer takes several forms gives a function from the payload to the template.

| kind | in porcelain |
|---|---|
| text | a scalar, quoted where it would be ambiguous |
| count | an integer with separators, 1,204 |
| bytes | 1,204 bytes |
| digest | the first characters in concise, whole in full |
| items | a list of scalars on one line, parted by bars |
| table | a list of objects, one line each under a header |
| record | an object of known members on one line |
| block | text of many lines, fenced |
| json | anything else, as compact JSON |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

Kind = Literal["text", "count", "bytes", "digest", "items", "table", "record", "block", "json"]
Payload = Mapping[str, Any]


class Field(msgspec.Struct, frozen=True):
    """One member of a result. `columns` are the members of a table's rows or of a record."""

    name: str
    kind: Kind = "text"
    full_only: bool = False
    columns: tuple[Field, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """A result that says in its status that nothing was done: why, what to do next, and a word for programs."""

    sentence: str
    next_step: str
    reason: str


class Shape(msgspec.Struct, frozen=True, eq=False):
    """A declared result. With `ok` (the default) the payload gets `ok: true`, as every success has.

    A tool whose payload may tell a failure (a state tool's status) has `failure`, which finds it: from the payload and
    the arguments of the call.

    Each is itself and equal to no other, so what was worked out for it once is found again at once.
    """

    summary: str | Callable[[Payload], str]
    fields: tuple[Field, ...]
    ok: bool = True
    failure: Callable[[Payload, Mapping[str, Any]], Failure | None] | None = None

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError("a result names a field twice")
        for field in self.fields:
            if field.columns and field.kind not in ("table", "record"):
                raise ValueError(f"{field.name}: only a table or a record has columns")

    def template(self, payload: Payload) -> str:
        return self.summary if isinstance(self.summary, str) else self.summary(payload)

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


def full(shape: Shape, payload: Payload) -> dict[str, Any]:
    """The whole payload, declared fields first and in declared order. Nothing is left out."""
    ordered: dict[str, Any] = {"ok": payload.get("ok", True)} if shape.ok else {}
    for field in shape.fields:
        if field.name in payload:
            ordered[field.name] = payload[field.name]
    return {**ordered, **payload}


def concise(shape: Shape, payload: Payload) -> dict[str, Any]:
    """The declared summary of a payload: fields and columns that are not `full_only`."""
    kept: dict[str, Any] = {"ok": payload.get("ok", True)} if shape.ok else {}
    return {**kept, **_projected(shape.fields, payload)}


def _projected(fields: tuple[Field, ...], payload: Payload) -> dict[str, Any]:
    return {
        field.name: _narrowed(field, payload[field.name])
        for field in fields
        if not field.full_only and field.name in payload
    }


def _narrowed(field: Field, value: Any) -> Any:
    if not field.columns:
        return value
    if isinstance(value, Mapping):
        return _projected(field.columns, value)
    if isinstance(value, list):
        return [_projected(field.columns, row) if isinstance(row, Mapping) else row for row in value]
    return value

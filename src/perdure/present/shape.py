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

The summary is made of segments separated by two spaces; a segment whose field is absent is left out.

    {path}                a field as its kind shows it
    {record.member}       a member of a record; {rows.0.path} a member of the first row of a table
    {versions:version}    a number, or the length of a list, with its noun: 1 version, 2 versions
    {keys:entry/entries}  the same with an irregular plural

A list in a summary always has its noun, and a number before a plural is refused: a template cannot say `1 changes`. A
tool whose answer takes several forms gives a function from the payload to the template.

| kind | in porcelain |
|---|---|
| text | a scalar, quoted where it would be ambiguous |
| count | an integer with separators, 1,204 |
| bytes | 1,204 bytes |
| digest | the first 12 characters in concise, whole in full |
| time | UTC to the second in concise, exact in full |
| items | a list of scalars on one line, parted by bars |
| table | a list of objects, one line each under a header; no label where the summary counts it |
| record | an object of known members on one line |
| block | text of many lines, fenced |
| json | anything else: compact JSON where it fits a line, else indented and fenced |
| json_text | a text that is JSON, on one line as it is |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

Kind = Literal[
    "text", "count", "bytes", "digest", "time", "items", "table", "record", "block", "json", "json_text"
]
Payload = Mapping[str, Any]

_PLACEHOLDER = re.compile(r"\{([a-z0-9_.]+)(?::([a-z ]+)(?:/([a-z ]+))?)?\}")
_PARTS: Final = 4  # of a split template: a text, then name, singular and plural of each placeholder
_PLURAL = re.compile(r" [a-z]+s\b")


class Field(msgspec.Struct, frozen=True):
    """One member of a result. `columns` are the members of a table's rows or of a record.

    A `quiet` field is not in concise porcelain, because the summary says it. `words` turns the value into what concise
    porcelain shows and counts in its place: a text, a list of texts, or other rows.
    """

    name: str
    kind: Kind = "text"
    full_only: bool = False
    columns: tuple[Field, ...] = ()
    quiet: bool = False
    words: Callable[[Any], str | list[str] | list[dict[str, Any]]] | None = None


class Failure(msgspec.Struct, frozen=True):
    """A result that says in its status that nothing was done: why, what to do next, and a word for programs."""

    sentence: str
    next_step: str
    reason: str


class Shape(msgspec.Struct, frozen=True, eq=False):
    """A declared result. With `ok` (the default) the payload gets `ok: true`, as every success has.

    `hint` gives the last line of porcelain: the call that shows the rest, or takes the change back.
    A tool whose payload may tell a failure (a state tool's status) has `failure`, which finds it: from the payload and
    the arguments of the call.

    Compared by identity, so that results computed for it can be cached.
    """

    summary: str | Callable[[Payload], str]
    fields: tuple[Field, ...]
    ok: bool = True
    hint: Callable[[Payload], str | None] | None = None
    failure: Callable[[Payload, Mapping[str, Any]], Failure | None] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.summary, str):
            segments(self, self.summary)
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


class Placeholder(msgspec.Struct, frozen=True, gc=False):
    """A field as a summary names it: where its value is, what is declared of it, and the noun that it counts."""

    head: str
    members: tuple[str, ...]
    field: Field
    noun: str = ""
    plural: str = ""

    @property
    def is_row(self) -> bool:
        """Whether it names a row of a list, and not the list."""
        return bool(self.members) and self.members[0].isdigit()


Segment = tuple[str | Placeholder, ...]


@lru_cache(maxsize=512)
def segments(shape: Shape, template: str) -> tuple[Segment, ...]:
    """A summary in its segments, each in turn a text and a field. Raises ValueError for a count without a singular."""
    return tuple(_segment(shape, part) for part in template.split("  "))


def _segment(shape: Shape, template: str) -> Segment:
    split = _PLACEHOLDER.split(template)
    parts: list[str | Placeholder] = [split[0]]
    for at in range(1, len(split), _PARTS):
        name, noun, plural, after = split[at : at + _PARTS]
        placeholder = _placeholder(shape, name, noun or "", plural or f"{noun}s")
        counts = placeholder.field.kind in ("table", "items") and not placeholder.is_row
        if not noun and (counts or (placeholder.field.kind == "count" and _PLURAL.match(after))):
            raise ValueError(f"{template!r}: a count needs its noun, as in {{{name}:change}}")
        parts += [placeholder, after]
    return tuple(part for part in parts if part != "")


def _placeholder(shape: Shape, name: str, noun: str, plural: str) -> Placeholder:
    head, *members = name.split(".")
    field = shape.field(head)
    for member in members:
        if not member.isdigit():
            field = next((c for c in field.columns if c.name == member), None) if field else None
    return Placeholder(head, tuple(members), field or Field(name), noun, plural)


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

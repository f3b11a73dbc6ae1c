"""Whole stores in and out: one JSON object per line, or the file of an agentcheckpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.msgspec_types import prepare_type
from perdure.storage.state import Name, Span
from perdure.storage.state_rounds import Payload, Step
from perdure.storage.state_values import value_problem
from perdure.surfaces.state.service import StateService
from perdure.text.times import InvalidTime, format_time, parse_time

PAGE: Final = 500
BATCH: Final = 128


class Line(msgspec.Struct, frozen=True):
    """One key. The value is JSON text, exactly as it was written."""

    key: str
    value: str
    namespace: str = "default"
    version: int = 1
    updated_at: str | None = None
    expires_at: str | None = None
    row: int | None = None
    """Where it stood in what is imported; an export has none."""


class Skipped(msgspec.Struct, frozen=True):
    row: int | None
    reason: str
    key: str | None = None


Row = Line | Skipped


def exported(service: StateService) -> Iterator[Line]:
    """Every live key of every namespace, a page at a time."""
    for namespace in service.backend.namespaces():
        after: str | None = None
        while page := service.backend.page(Span("key", namespace), after, PAGE, True).entries:
            after = page[-1].key
            for e in page:
                expires = format_time(e.expires) if e.expires is not None else None
                yield Line(e.key, e.value or "", namespace, e.version, format_time(e.updated), expires)


def json_lines(lines: Iterable[bytes]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = msgspec.structs.replace(msgspec.json.decode(line, type=prepare_type(Line)), row=number)
            parse_time(found.expires_at)
        except (ValueError, msgspec.MsgspecError):
            yield Skipped(number, "not a line of an export")
            continue
        except InvalidTime:
            yield Skipped(number, "expires_at is not a time", found.key)
            continue
        yield found


def checkpoint_rows(path: str) -> Iterator[Row]:
    """The rows of an agentcheckpoint's file, which is only read."""
    import sqlite3
    from contextlib import closing
    from urllib.parse import quote

    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT key, value, version FROM checkpoints ORDER BY key")
        for number, (key, value, version) in enumerate(rows, 1):
            if isinstance(key, str) and isinstance(value, str) and isinstance(version, int):
                yield Line(key, value, version=version, row=number)
            else:
                yield Skipped(number, "not a key with a text and a version")


def imported(service: StateService, rows: Iterable[Row], call: Call, *, overwrite: bool) -> Payload:
    """Write what can be kept, many rows to a round; name the rest. Without `overwrite` what is there stays."""
    count, skipped = 0, []
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        fit: dict[Name, Line] = {}
        for row in batch:
            if isinstance(row, Skipped):
                skipped.append(row)
                continue
            name: Name = ("key", row.namespace, row.key)
            if (problem := _problem(service, row)) is not None:
                skipped.append(Skipped(row.row, problem, row.key))
            elif name in fit and not overwrite:
                skipped.append(Skipped(row.row, "the key is there already", row.key))
            else:
                if name in fit:
                    skipped.append(Skipped(fit[name].row, "a later row has the key", row.key))
                fit[name] = row
        done = service.commit(
            call,
            frozenset(fit),
            lambda step: _written(step, fit, overwrite),  # noqa: B023
        ).result()
        count += done["imported"]
        skipped += [Skipped(**one) for one in done["skipped"]]
    shown = [msgspec.to_builtins(one) for one in sorted(skipped, key=lambda one: one.row or 0)]
    return {"imported": count, "skipped": shown}


def _problem(service: StateService, row: Line) -> str | None:
    if row.version < 1:
        return "the version is less than 1"
    if value_problem(row.namespace, "0") is not None:
        return "the namespace cannot be kept"
    return value_problem(row.key, row.value, service.limits.value_bytes)


def _written(step: Step, fit: dict[Name, Line], overwrite: bool) -> Payload:
    skipped: list[dict[str, Any]] = []
    count = 0
    for name, line in fit.items():
        expires = parse_time(line.expires_at)
        if not overwrite and step.live(name) is not None:
            skipped.append({"row": line.row, "reason": "the key is there already", "key": line.key})
        elif expires is not None and expires <= step.now:
            skipped.append({"row": line.row, "reason": "its time is over", "key": line.key})
        else:
            step.put(name, line.value, expires, version=line.version)
            count += 1
    return {"imported": count, "skipped": skipped}


def as_json(line: Line) -> str:
    said = {name: value for name, value in msgspec.to_builtins(line).items() if value is not None}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))

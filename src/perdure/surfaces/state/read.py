"""Reading: a key now or at a revision, a page of keys, the versions of one."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import Annotated, Any

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_again
from perdure.protocol.tools import arg
from perdure.storage.state import Change, Entry, Name, Span, prefix_end
from perdure.storage.state_rounds import Payload
from perdure.storage.state_values import BadValue, canonical, key_problem, parsed, written
from perdure.surfaces.state.keys import shown, times
from perdure.surfaces.state.limits import (
    MOST_LISTED,
    PAGE_BYTES,
    PATTERN_BYTES,
    bad_argument,
    named,
    unlisted,
)
from perdure.surfaces.state.patch import difference
from perdure.surfaces.state.service import StateService
from perdure.text.times import format_time


class Get(msgspec.Struct, frozen=True):
    key: str
    at_revision: Annotated[int | None, arg("The value as of this revision.")] = None
    namespace: str = unlisted("default")


class List(msgspec.Struct, frozen=True):
    pattern: Annotated[str | None, arg("SQL LIKE: % any text, _ one character, \\ escapes.")] = None
    prefix: Annotated[str | None, arg("Keys that start with this.")] = None
    limit: int = 100
    cursor: str | None = None
    values: bool = False
    namespace: str = unlisted("default")


class History(msgspec.Struct, frozen=True):
    key: str
    limit: int = 20
    diff: Annotated[bool, arg("Add to each version what it changed, as a merge patch.")] = False
    namespace: str = unlisted("default")


def get_state(service: StateService, params: Get, call: Call) -> Payload:
    name = named("key", params.namespace, params.key)
    found = service.backend.find(name)
    if params.at_revision is not None:
        return _at(service, name, params.at_revision, found.revision)
    if found.entry is None or not found.entry.is_live(found.now):
        return {"status": "not_found", "key": params.key, "revision": found.revision}
    return shown(found.entry)


def _at(service: StateService, name: Name, revision: int, newest: int) -> Payload:
    if not 0 <= revision <= newest:
        message = f"at_revision must be from 0 to {newest}, the newest revision."
        raise bad_argument("at_revision", message, at_revision=newest)
    change = service.backend.find_at(name, revision)
    if change is not None and change.entry.value is not None:
        return shown(change.entry)
    kept = service.backend.history(name, MOST_LISTED) if change is None else []
    if kept and kept[-1].entry.version > 1:
        raise refuse(
            "not_found",
            "history_dropped",
            f"{name[2]} has no kept version from revision {revision} or before: older ones were dropped.",
            next_step=call_again(at_revision=None),
        )
    return {"status": "not_found", "key": name[2], "revision": revision}


def list_state(service: StateService, params: List, call: Call) -> Payload:
    if not 1 <= params.limit <= MOST_LISTED:
        raise bad_argument("limit", f"limit must be from 1 to {MOST_LISTED}.", limit=None)
    span = Span("key", *_bounds(params), params.pattern if params.pattern != "%" else None)
    after = _cursor(params.cursor)
    page = service.backend.page(span, after, params.limit + 1, params.values)
    kept = _fitting(page.entries[: params.limit])
    payload: Payload = {
        "status": "ok",
        "keys": [_row(entry, params.values) for entry in kept],
        "revision": page.revision,
    }
    if len(page.entries) > len(kept):
        payload["next_cursor"] = urlsafe_b64encode(kept[-1].key.encode()).decode()
    if not kept and params.pattern is not None and "*" in params.pattern:
        payload["message"] = _like_hint(params.pattern)
    return payload


def _like_hint(pattern: str) -> str:
    beginning = pattern.partition("*")[0]
    prefix = f" For keys that start with {beginning}, use prefix={beginning}." if beginning else ""
    return f"pattern is SQL LIKE: % stands for any text, _ for one character, and * only for itself.{prefix}"


def _bounds(params: List) -> tuple[str, str, str | None]:
    """Namespace, and the keys between which a prefix lies; a pattern's own beginning narrows them further."""
    named("key", params.namespace, params.prefix or "-", what="prefix")
    if params.pattern is not None:
        _check_pattern(params.pattern)
    beginning = max(params.prefix or "", _literal(params.pattern or ""), key=len)
    if params.prefix is not None and not beginning.startswith(params.prefix):
        beginning = params.prefix  # they contradict each other: the pattern finds nothing within the prefix
    return params.namespace, beginning, prefix_end(beginning)


def _check_pattern(pattern: str) -> None:
    size = len(pattern.encode("utf-8", "surrogatepass"))
    escapes = len(pattern) - len(pattern.rstrip("\\"))
    if size > PATTERN_BYTES or "\0" in pattern or escapes % 2:
        raise bad_argument(
            "pattern", f"pattern must have at most {PATTERN_BYTES} bytes and must not end with a single \\."
        )


def _literal(pattern: str) -> str:
    """What every text that matches begins with."""
    found, rest = "", iter(pattern)
    for char in rest:
        if char in "%_":
            break
        found += next(rest) if char == "\\" else char
    return found


def _cursor(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        key = b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode()
    except ValueError:
        key = ""
    if key_problem(key) is not None:
        raise bad_argument(
            "cursor",
            "cursor must be the next_cursor of an earlier answer; without it the list starts at the first key.",
            cursor=None,
        )
    return key


def _fitting(entries: list[Entry]) -> list[Entry]:
    """As many as an answer may carry, one at least."""
    total = 0
    for i, entry in enumerate(entries):
        total += len(entry.value or "")
        if total > PAGE_BYTES and i:
            return entries[:i]
    return entries


def _row(entry: Entry, values: bool) -> dict[str, Any]:
    row = {"key": entry.key, "version": entry.version, "revision": entry.revision, **times(entry)}
    return {**row, "value": entry.value} if values else row


def state_history(service: StateService, params: History, call: Call) -> Payload:
    if not 1 <= params.limit <= MOST_LISTED:
        raise bad_argument("limit", f"limit must be from 1 to {MOST_LISTED}.", limit=None)
    name = named("key", params.namespace, params.key)
    found = service.backend.history(name, params.limit + 1)
    rows = [_version(change) for change in found[: params.limit]]
    if params.diff:
        for row, before in zip(rows, [*found[1:], None], strict=False):
            row["diff"] = _difference(before, row["value"])
    status = "ok" if found else "not_found"
    revision = found[0].entry.revision if found else service.backend.revision()
    return {"status": status, "key": params.key, "revision": revision, "versions": rows}


def _version(change: Change) -> dict[str, Any]:
    entry, author = change.entry, change.author
    return {
        "version": entry.version,
        "revision": entry.revision,
        "value": entry.value,
        "deleted": entry.value is None,
        "updated_at": format_time(entry.updated),
        "client": author.client,
        "session": author.session,
        "tool": author.tool,
    }


def _difference(before: Change | None, value: str | None) -> str | None:
    """None where nothing is left to compare."""
    if before is None or before.entry.value is None or value is None:
        return value
    try:
        one, other = parsed(before.entry.value), parsed(value)
        return written({}) if canonical(one) == canonical(other) else written(difference(one, other))
    except BadValue:
        return value

"""Whether a whole history is strictly serializable, in the order that the store's revisions claim.

The log of changes is the claimed order. It is right where
    every version of a key follows the one before;
    each acknowledged call is in it once, each refused one not at all, an unknown one at most once;
    every guard held just before its own revision;
    a call that began after another had ended has a later revision;
    and every read shows what was there at some moment while it ran.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from harness.state.events import FOREVER, Event

WRITES = ("set_state", "delete_state", "state_txn", "state_patch")


class Row(msgspec.Struct, frozen=True):
    """One change, as the log has it. `by` is the id of the call whose value it carries; a delete carries none."""

    revision: int
    key: str
    version: int
    is_live: bool
    by: str | None


def row(revision: int, key: str, version: int, value: str | None) -> Row:
    by = json.loads(value).get("by") if value is not None else None
    return Row(revision, key, version, value is not None, by)


class Log:
    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda r: (r.revision, r.key))
        self.of_key: dict[str, list[Row]] = {}
        self.of_revision: dict[int, list[Row]] = {}
        self.by: dict[str, set[int]] = {}
        for one in self.rows:
            self.of_key.setdefault(one.key, []).append(one)
            self.of_revision.setdefault(one.revision, []).append(one)
            if one.by is not None:
                self.by.setdefault(one.by, set()).add(one.revision)

    def before(self, key: str, revision: int) -> tuple[int, bool]:
        """Version and liveness of a key just before a revision."""
        rows = self.of_key.get(key, [])
        at = bisect_right(rows, revision - 1, key=lambda r: r.revision)
        return (rows[at - 1].version, rows[at - 1].is_live) if at else (0, False)

    def until(self, key: str, version: int) -> tuple[int, int]:
        """The revisions from which and before which a key has a version."""
        rows = self.of_key.get(key, [])
        if version == 0:
            return 0, rows[0].revision if rows else FOREVER
        at = next((i for i, r in enumerate(rows) if r.version == version), None)
        if at is None:
            return FOREVER, 0
        return rows[at].revision, rows[at + 1].revision if at + 1 < len(rows) else FOREVER


def anomalies(events: Sequence[Event], rows: Iterable[Row]) -> list[str]:
    log = Log(rows)
    found = _versions(log)
    for event in events:
        if event.tool in WRITES:
            found += _presence(event, log)
        if event.outcome == "done" and _revision(event) is not None:
            found += _guards(event, log)
    return found + _real_time(events, log)


def _versions(log: Log) -> list[str]:
    found = []
    for key, rows in log.of_key.items():
        if [r.version for r in rows] != list(range(1, len(rows) + 1)):
            found.append(f"{key}: versions do not follow one another")
    found += [f"{by}: took effect {len(at)} times" for by, at in log.by.items() if len(at) > 1]
    return found


def _revision(event: Event) -> int | None:
    """At which revision a call wrote, where it did."""
    if event.outcome != "done" or event.tool not in WRITES:
        return None
    wrote = event.status == "ok" and event.answer.get("deleted") is not False
    return int(event.answer["revision"]) if wrote else None


def _presence(event: Event, log: Log) -> list[str]:
    at = log.by.get(event.id, set())
    revision = _revision(event)
    if revision is None:
        return (
            [f"{event.id}: {event.status}, and yet it took effect"]
            if at and event.outcome != "unknown"
            else []
        )
    if event.tool == "delete_state":
        rows = log.of_revision.get(revision, [])
        gone = any(r.key == event.arguments["key"] and not r.is_live for r in rows)
        return [] if gone else [f"{event.id}: acknowledged, and lost"]
    return (
        []
        if at == {revision}
        else [f"{event.id}: acknowledged at {revision}, and in the log at {sorted(at)}"]
    )


def _guards(event: Event, log: Log) -> list[str]:
    revision = _revision(event) or 0
    for key, expected in _expected(event):
        version, is_live = log.before(key, revision)
        if expected != (version if is_live else 0):
            return [f"{event.id}: expected {key} at version {expected}, it was at {version}"]
    return []


def _expected(event: Event) -> list[tuple[str, int]]:
    given: dict[str, Any] = event.arguments
    if event.tool == "state_txn":
        return [(one["key"], one["version"]) for one in given["compare"] if "version" in one]
    expected = given.get("expected_version", -1)
    return [(given["key"], expected)] if expected != -1 else []


def _real_time(events: Sequence[Event], log: Log) -> list[str]:
    """In the order in which calls began, with the latest revision known to be there when each did."""
    found: list[str] = []
    writers = {_revision(e): e for e in events if _revision(e) is not None}
    ends = sorted((e for e in events if e.outcome == "done"), key=lambda e: e.ended)
    reached, at = 0, 0
    for event in sorted(events, key=lambda e: e.began):
        while at < len(ends) and ends[at].ended < event.began:
            reached = max(reached, int(ends[at].answer.get("revision", 0)))
            at += 1
        revision = _revision(event)
        if revision is not None and revision <= reached:
            found.append(f"{event.id}: began after revision {reached}, and has {revision}")
        if event.tool == "get_state" and event.status == "not_found":
            key, looked_at = event.arguments["key"], int(event.answer["revision"])
            if looked_at < reached or log.before(key, looked_at + 1)[1]:
                found.append(f"{event.id}: {key} was there, and was not found")
        if event.outcome == "done" and (seen := _saw(event)) is not None:
            since, before = log.until(*seen)
            if before <= reached:
                found.append(f"{event.id}: read {seen} when revision {reached} was there")
            if (writer := writers.get(since)) is not None and writer.began > event.ended:
                found.append(f"{event.id}: read {seen} before it was written")
            if since == FOREVER:
                found.append(f"{event.id}: read {seen}, which never was")
    return found


def _saw(event: Event) -> tuple[str, int] | None:
    """Which version of which key an answer shows, where it shows one."""
    key = event.arguments.get("key", "")
    if event.tool == "get_state" and event.status == "ok":
        return key, int(event.answer["version"])
    if event.status == "conflict" and "actual_version" in event.answer:
        return key, int(event.answer["actual_version"])
    return None

"""The state store in memory: a real backend for tests, and the shortest account of what a backend is."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from perdure.storage.state import (
    DUE_PER_ROUND,
    MOST_CHANGES,
    Answer,
    Change,
    Decide,
    Entry,
    Found,
    Loaded,
    Log,
    Name,
    Page,
    Span,
    Usage,
    Wanted,
    Written,
    log_of,
)
from perdure.storage.state_watch import Watch


class MemoryState:
    finds_at_once = True

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._revision = 0
        self._entries: dict[Name, Entry] = {}
        self._changes: list[Change] = []
        self._usage: dict[str, Usage] = {}
        self._answers: dict[str, tuple[int, Answer]] = {}
        self._watch = Watch()

    def round(self, wanted: Wanted, decide: Decide) -> None:
        with self._lock:
            written = decide(self._load(wanted))
            if written is not None:
                self._write(written)
                self._watch.advance(written.revision)

    def _load(self, wanted: Wanted) -> Loaded:
        now = self._now()
        over = (e for e in self._entries.values() if e.value is not None and not e.is_live(now))
        return Loaded(
            now,
            self._revision,
            {name: self._entries[name] for name in wanted.names if name in self._entries},
            {ns: self._usage[ns] for ns in wanted.namespaces if ns in self._usage},
            {key: self._answers[key][1] for key in wanted.answers if key in self._answers},
            sorted(over, key=lambda e: (e.expires or 0, e.name))[:DUE_PER_ROUND],
        )

    def _write(self, written: Written) -> None:
        self._revision = written.revision
        for entry in written.entries:
            self._entries[entry.name] = entry
        self._changes += written.changes
        for namespace, more in written.usage.items():
            before = self._usage.get(namespace, Usage())
            self._usage[namespace] = Usage(before.keys + more.keys, before.bytes + more.bytes)
        for answer in written.answers:
            self._answers[answer.key] = (self._now(), answer)

    def find(self, name: Name) -> Found:
        with self._lock:
            return Found(self._entries.get(name), self._revision, self._now())

    def find_at(self, name: Name, revision: int) -> Change | None:
        return next((c for c in self._of(name) if c.entry.revision <= revision), None)

    def page(self, span: Span, after: str | None, limit: int, values: bool) -> Page:
        with self._lock:
            now = self._now()
            found = [e for e in self._entries.values() if e.is_live(now) and _is_in(span, e)]
            found = sorted((e for e in found if after is None or e.key > after), key=lambda e: e.key)[:limit]
            return Page(found if values else [_bare(e) for e in found], self._revision)

    def history(self, name: Name, limit: int) -> list[Change]:
        return list(self._of(name))[:limit]

    def changes(self, span: Span, after: int) -> Log:
        with self._lock:
            found = [c for c in self._changes if c.entry.revision > after and _is_in(span, c.entry)]
            found.sort(key=lambda change: (change.entry.revision, change.entry.key))
            return log_of(found[: MOST_CHANGES + 1], self._revision)

    def namespaces(self) -> list[str]:
        return sorted(self._usage)

    def next_expiry(self, span: Span) -> float | None:
        with self._lock:
            live = [
                e.expires
                for e in self._entries.values()
                if _is_in(span, e) and e.value is not None and e.expires is not None
            ]
            return (min(live) - self._now()) / 1_000_000 if live else None

    def revision(self) -> int:
        return self._revision

    def revision_before(self, seconds: float) -> int:
        with self._lock:
            before = self._now() - int(seconds * 1_000_000)
            return max((c.entry.revision for c in self._changes if c.entry.updated < before), default=0)

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        return self._watch.wait_beyond(revision, seconds)

    def forget(self, *, answers_before: int, history_before: int, limit: int) -> int:
        with self._lock:
            old_answers = [key for key, (at, _) in self._answers.items() if at < answers_before][:limit]
            for key in old_answers:
                del self._answers[key]
            old = [
                change
                for change in self._changes
                if change.entry.updated < history_before
                and self._entries[change.entry.name].revision != change.entry.revision
            ][:limit]
            dropped = {(change.entry.name, change.entry.revision) for change in old}
            self._changes = [c for c in self._changes if (c.entry.name, c.entry.revision) not in dropped]
            return len(old_answers) + len(old)

    def take_notices(self) -> list[str]:
        return []

    def close(self) -> None:
        self._watch.close()

    def _of(self, name: Name) -> Iterator[Change]:
        with self._lock:
            return iter([change for change in reversed(self._changes) if change.entry.name == name])

    def _now(self) -> int:
        return int(self._clock() * 1_000_000)


def _bare(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, value=None)


def _is_in(span: Span, entry: Entry) -> bool:
    return (
        (entry.space, entry.namespace) == (span.space, span.namespace)
        and entry.key >= span.low
        and (span.high is None or entry.key < span.high)
        and (span.pattern is None or _like(span.pattern).fullmatch(entry.key) is not None)
    )


def _like(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(p) or re.escape(p[1:] or p) for p in parts), re.DOTALL)

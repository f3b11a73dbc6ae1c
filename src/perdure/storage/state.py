"""The port of the state store: rows, what one transaction loads and writes, and what may be read.

    round(wanted, decide)    lock ─▶ load what is wanted ─▶ decide (pure, on what was loaded) ─▶ write ─▶ durable
    find, page, changes, …   the latest committed state, without the lock

A backend keeps rows and knows nothing of their meaning. Rounds of all processes follow one another, so one
counter serves as the store's revision: it is never reused, and its order is the order of all changes.

Keys, leases, once-keys and reservations are entries in spaces of their own: versioned, logged, expiring alike. A deleted
entry stays as a tombstone without a value, so that its version goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec

Space = Literal["key", "lease", "once", "reservations"]
Name = tuple[Space, str, str]
"""Space, namespace, key."""

DUE_PER_ROUND: Final = 128
MOST_CHANGES: Final = 1000


class Entry(msgspec.Struct, frozen=True):
    """The latest of one name. Times are microseconds since 1970."""

    space: Space
    namespace: str
    key: str
    version: int
    revision: int
    updated: int
    expires: int | None
    value: str | None

    @property
    def name(self) -> Name:
        return self.space, self.namespace, self.key

    def is_live(self, now: int) -> bool:
        return self.value is not None and (self.expires is None or self.expires > now)


class Author(msgspec.Struct, frozen=True):
    """Who made a change, and with what."""

    client: str
    session: str
    tool: str


class Change(msgspec.Struct, frozen=True):
    """An entry as it became at its revision."""

    entry: Entry
    author: Author


class Usage(msgspec.Struct, frozen=True):
    """What a namespace holds; in a round's result, by how much that grew."""

    keys: int = 0
    bytes: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The result of a call under its invocation key, committed with the call's effect."""

    key: str
    tool: str
    render: str
    detail: str
    result: bytes


class Wanted(msgspec.Struct, frozen=True):
    names: frozenset[Name] = frozenset()
    namespaces: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()


class Loaded(msgspec.Struct, frozen=True):
    """`due` are entries whose time is over and of which no change says so yet."""

    now: int
    revision: int
    entries: dict[Name, Entry]
    usage: dict[str, Usage]
    answers: dict[str, Answer]
    due: list[Entry]


class Written(msgspec.Struct, frozen=True):
    revision: int
    entries: list[Entry]
    changes: list[Change]
    usage: dict[str, Usage]
    answers: list[Answer]


Decide = Callable[[Loaded], Written | None]
"""What to write, or None where nothing changes. It must not wait."""


class Found(msgspec.Struct, frozen=True):
    entry: Entry | None
    revision: int
    now: int


class Span(msgspec.Struct, frozen=True):
    """Some names of one space and namespace: from `low` on, below `high`; like `pattern` (LIKE, escape \\)."""

    space: Space
    namespace: str
    low: str = ""
    high: str | None = None
    pattern: str | None = None


class Page(msgspec.Struct, frozen=True):
    entries: list[Entry]
    revision: int


class Log(msgspec.Struct, frozen=True):
    """`revision`: every change up to it was looked at."""

    changes: list[Change]
    revision: int


class StateBackend(Protocol):
    finds_at_once: bool
    """`find` waits for no lock and no network."""

    def round(self, wanted: Wanted, decide: Decide) -> None:
        """One transaction. Durable when it returns; where it raises, nothing of it was or will be written."""

    def find(self, name: Name) -> Found: ...

    def find_at(self, name: Name, revision: int) -> Change | None:
        """The newest kept change of a name that is not newer than the revision."""

    def page(self, span: Span, after: str | None, limit: int, values: bool) -> Page:
        """Live entries in the order of their keys, beyond the key `after`."""

    def history(self, name: Name, limit: int) -> list[Change]:
        """The newest kept changes of a name, newest first."""

    def changes(self, span: Span, after: int) -> Log:
        """Up to `MOST_CHANGES` changes after a revision, oldest first, without values."""

    def namespaces(self) -> list[str]: ...

    def next_expiry(self, span: Span) -> float | None:
        """In how many seconds, by the store's clock, something there expires; negative where it has."""

    def revision(self) -> int: ...

    def revision_before(self, seconds: float) -> int:
        """Of the newest kept change that is older than this, by the store's clock."""

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        """Wait until the store has passed a revision; False where it has not in this time."""

    def forget(self, *, answers_before: int, history_before: int, limit: int) -> int:
        """Drop old answers, and old changes that are not the newest of their name; how many."""

    def take_notices(self) -> list[str]:
        """What happened to the store since it was last asked, for `health`."""

    def close(self) -> None: ...


def log_of(found: list[Change], revision: int) -> Log:
    """The log from up to one change too many, and the revision that was read before them."""
    if not found:
        return Log(found, revision)
    last = found[-1].entry.revision
    if len(found) <= MOST_CHANGES:
        return Log(found, max(revision, last))
    # The last revision may have been cut in two.
    whole = [change for change in found if change.entry.revision != last]
    return Log(whole, whole[-1].entry.revision)


def prefix_end(prefix: str) -> str | None:
    """The first text after every text that begins with the prefix, in the order of code points."""
    for at in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[at])
        if point < 0x10FFFF:
            after = 0xE000 if point == 0xD7FF else point + 1
            return prefix[:at] + chr(after)
    return None

"""What each session last saw of each file, in bounded memory: the newest in front of what the journal knows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

MOST: Final = 10_000

Name = tuple[str, str]
"""A session and a path."""
Saved = dict[Name, str | None]


class SeenFiles:
    """A read is written down with the next change of any session; losing it only makes the stale guard less strict."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._changes = 0
        # Hash, and the number of the session's own last change or 0; the least recently used first.
        self._seen: OrderedDict[Name, tuple[str | None, int]] = OrderedDict()
        self._unsaved: OrderedDict[Name, str | None] = OrderedDict()

    def __len__(self) -> int:
        with self._guard:
            return len(self._seen) + len(self._unsaved)

    def begin_read(self) -> int:
        """Where a read begins, among the changes."""
        return self._changes

    def read(self, session: str, path: str, sha256: str | None, since: int) -> None:
        """A read that began at `since`; what the session wrote meanwhile is newer."""
        with self._guard:
            own_change = self._seen.get((session, path), (None, 0))[1]
            if own_change > since:
                return
            self._add((session, path), sha256, own_change)
            self._unsaved[session, path] = sha256
            self._unsaved.move_to_end((session, path))
            if len(self._unsaved) > self._most:
                self._unsaved.popitem(last=False)

    def wrote(self, session: str, changed: dict[str, str | None], saved: Saved) -> None:
        """Before the next call is planned: what the session wrote, it has seen. `saved` is in the journal by now."""
        with self._guard:
            self._changes += 1
            for path, sha256 in changed.items():
                self._add((session, path), sha256, self._changes)
                self._unsaved.pop((session, path), None)
            for name, sha256 in saved.items():
                if name in self._unsaved and self._unsaved[name] == sha256:
                    del self._unsaved[name]

    def last(self, session: str, path: str) -> tuple[str | None] | None:
        with self._guard:
            known = self._seen.get((session, path))
            if known is None:
                return None
            self._seen.move_to_end((session, path))
            return (known[0],)

    def unsaved(self) -> Saved:
        with self._guard:
            return dict(self._unsaved)

    def _add(self, name: Name, sha256: str | None, change: int) -> None:
        self._seen[name] = (sha256, change)
        self._seen.move_to_end(name)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)

"""Which paths of a workspace have changed: the system's file events, collected until they are asked for.

The library's own thread collects events all the time. `drain` creates a file in a folder that is watched as well and waits
for the event of that file: events arrive in order, so every change made before the call is known by then.

Each folder is watched by itself: a recursive watch would follow links out of the workspace, and watch the folders of
dependencies. So a new folder is not watched: it is to be looked through as a whole, and watched by a new watcher. A watch is
of the folder, not of its name: one that is removed and made anew under the same name is a new folder. The system drops
events when too many wait: a large number of changes counts as unknown.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Iterable
from itertools import count
from typing import Any, Final

from watchfiles import watch

log = logging.getLogger(__name__)

DRAIN_S: Final = 2.0
MOST_PATHS: Final = 5_000
"""Above this many changes the whole workspace is looked through: that costs no more, and nothing can be missing."""
_STEP_MS: Final = 1


class FileWatcher:
    """`folders` are beneath the root, "" for itself. `cookies` is an empty folder elsewhere, of this watcher alone. Not for
    several threads.

    Raises OSError where they cannot be watched: the system has a limit."""

    def __init__(self, root: str, folders: Iterable[str], cookies: str) -> None:
        self._root = os.path.realpath(root)
        self._folders = [os.path.join(self._root, folder) if folder else self._root for folder in folders]
        self._cookies = os.path.realpath(cookies)
        self._serial = count(1)
        self._changes = self._watch()

    def _watch(self) -> Generator[set[Any], None, None]:
        changes = watch(
            *[folder for folder in self._folders if os.path.isdir(folder)],
            self._cookies,
            watch_filter=None,
            debounce=_STEP_MS,
            step=_STEP_MS,
            rust_timeout=_STEP_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,
            ignore_permission_denied=True,
        )
        next(changes)  # returns when every folder is watched
        return changes

    def drain(self) -> set[str] | None:
        """The paths that have changed since the last call, relative to the root; None where that is not known."""
        cookie = os.path.join(self._cookies, f"{os.getpid()}-{next(self._serial)}")
        with open(cookie, "xb"):
            pass
        try:
            return self._collect(cookie)
        except RuntimeError as error:  # the library gives up at a name that is not UTF-8
            log.info("file events of %s begin anew: %s", self._root, error)
            self._changes = self._watch()
            return None
        finally:
            os.unlink(cookie)

    def _collect(self, cookie: str) -> set[str] | None:
        paths: set[str] = set()
        has_arrived = False
        deadline = time.monotonic() + DRAIN_S
        while not has_arrived and time.monotonic() < deadline:
            for _, path in next(self._changes):
                has_arrived = has_arrived or path == cookie
                paths.add(path)
        if not has_arrived:
            log.warning("file events of %s are late: the whole workspace is looked through", self._root)
            return None
        if len(paths) > MOST_PATHS:
            return None
        return {self._relative(path) for path in paths if not path.startswith(self._cookies)}

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root) if path != self._root else ""

    def close(self) -> None:
        self._changes.close()

"""Named places where a test can make this process die, fail or wait. Free of cost unless one is armed.

    PERDURE_FAULT="NAME=ACTION[@N][;…]"   N: only at the N-th time it is passed. NAME `*` counts every point.

    kill         SIGKILL to this process
    eio …        the system call fails with this errno, by its name in small letters: eio, enospc, edquot, erofs
    short        half of what was to be written is written
    pause:FILE   FILE is made, and the process goes on when it is gone

| point | passed |
|---|---|
| `write.parent_made` | a missing parent directory was made |
| `write.open_temp` | before the temporary file is opened |
| `write.temp_created` | it is open |
| `write.chunk` | before each piece is written; `short` works here |
| `write.before_facts` | all is written; before mode, owner and attributes are set |
| `write.before_fsync` | before the file is synced (strict) |
| `write.sealed` | content and facts are complete |
| `write.before_name` | before a replacement gets its temporary name |
| `write.named` | it has one |
| `write.before_create` | before the new name appears |
| `write.created` | it did |
| `write.before_exchange` | before the two files change places |
| `write.exchanged` | they did; what came out is not verified yet |
| `write.verified` | it is what was expected |
| `write.before_swap_back` | it is not; before it is put back |
| `write.swapped_back` | it was |
| `write.before_replace` | before a plain rename, where there is no exchange |
| `write.replaced` | after it |
| `write.before_dir_fsync` | before the directory is synced (strict) |
| `write.before_unlink` | before the displaced file is unlinked |
| `write.landed` | the change is complete |
| `remove.before_rename` | before a file to be removed is put aside |
| `remove.renamed` | it was; it is not verified yet |
| `remove.before_unlink` | it is the expected one; before it is unlinked |
| `remove.landed` | it is gone |
| `mode.before_set` | before a directory gets its mode |
| `mode.set` | it has it |
| `commit.planning` | before a round of calls is planned |
| `commit.decided` | the journal holds their intents; nothing is on disk yet |
| `commit.file_landed` | one file of a call landed; others may be missing |
| `commit.landed` | all files of the round landed; nothing is acknowledged yet |
| `recover.one` | recovery settled one intent |
| `state.locked` | a round of state calls holds the store's lock; nothing is decided |
| `state.decided` | it is decided; nothing is written |
| `state.written` | its rows are written and not committed |
| `state.committed` | they are committed and not yet acknowledged |
| `blob.open_temp` | before a blob's temporary file is opened |
| `blob.temp_created` | it is open |
| `blob.clone` | before a reflink is tried |
| `blob.chunk` | before each piece is written; `short` works here |
| `blob.before_fsync` | before the blob is synced |
| `blob.before_link` | before it appears under its hash |
| `blob.linked` | it did |
| `blob.before_dir_fsync` | before its directory is synced |
| `blob.landed` | it counts |
| `store.record` | before the record of a workspace's root is written |
| `store.marker` | before the mark is written that the move of a store of an earlier version has begun |
| `store.marked` | it is written; nothing was moved yet |
| `store.content_moved` | one large content of a store of an earlier version was moved to its new place |
| `store.before_journal` | all contents were; before the journal is moved |
| `store.journal_moved` | the journal is in its new place; the old one is not removed yet |
| `store.one_removed` | one file of the old place was removed |
| `timeline.scan` | an observation holds its lock; nothing was looked at |
| `timeline.read` | before one changed or new file is read |
| `timeline.planned` | what changed is known, and the new contents were read |
| `timeline.capture` | before some files that were never seen are kept |
| `timeline.captured` | they are; before the changes are recorded |
| `timeline.row` | one row of a change is written and not committed |
| `timeline.commit` | all of the observation is written and not committed |
| `timeline.recorded` | it is committed; the hook was not told |
| `registry.locked` | the lock on a registry or a client's file is held |
| `registry.read` | it was read; nothing is planned |
| `registry.backed_up` | its content is in the backups; nothing is written |
| `registry.landed` | the new content is in its place |
| `view.claimed` | what we are about to write into a client's file is on record |
| `view.settled` | the record says what is in the client's file now |
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from typing import Final

VARIABLE: Final = "PERDURE_FAULT"
EVERY: Final = "*"


class _Armed:
    """One fault that waits for its point."""

    def __init__(self, text: str) -> None:
        self.point, _, rest = text.partition("=")
        self.action, at, nth = rest.rpartition("@")
        if not at:
            self.action, nth = rest, "0"
        self.nth = int(nth)
        self.passed = 0
        known = self.action in ("kill", "short") or self.action.startswith("pause:")
        if not known and not hasattr(errno, self.action.upper()):
            raise ValueError(f"{VARIABLE}: no such action: {self.action}")

    def is_due(self, name: str) -> bool:
        if self.point not in (name, EVERY):
            return False
        self.passed += 1
        return self.nth in (0, self.passed)


def _parsed(text: str) -> list[_Armed]:
    return [_Armed(part.strip()) for part in text.split(";") if part.strip()]


_armed = _parsed(os.environ.get(VARIABLE, ""))


def arm(text: str) -> None:
    """Arm other faults in this process than its environment did; an empty text disarms all."""
    _armed[:] = _parsed(text)


def met() -> int:
    """How often the fault that was armed first has met its point."""
    return _armed[0].passed if _armed else 0


def point(name: str) -> None:
    """Pass a named place."""
    if _armed:
        _pass(name)


def passed(name: str) -> None:
    """Pass a named place after which nothing can fail any more: only `kill` and `pause` act here."""
    if _armed:
        try:
            _pass(name)
        except OSError:
            pass


def shortened(name: str, size: int) -> int:
    """Pass a named place before writing: how much of `size` may be written at once."""
    return size if not _armed or not _pass(name) else max(1, size // 2)


def names() -> tuple[str, ...]:
    """Every point in the table above."""
    return tuple(re.findall(r"^\| `([a-z_.]+)` \|", __doc__ or "", re.MULTILINE))


def _pass(name: str) -> bool:
    short = False
    for fault in _armed:
        if not fault.is_due(name):
            continue
        if fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        elif fault.action == "short":
            short = True
        elif fault.action.startswith("pause:"):
            _pause(fault.action.removeprefix("pause:"))
        else:
            number: int = getattr(errno, fault.action.upper())
            raise OSError(number, f"{os.strerror(number)} (injected at {name})")
    return short


def _pause(file: str) -> None:
    with open(file, "w") as made:
        made.write(str(os.getpid()))
    while os.path.exists(file):
        time.sleep(0.001)

"""Changing a file that others change too: read, plan, and put in place only if nobody was faster.

    change_file(path, plan, holds)

`plan` gets the bytes that are there (None: no file) and gives those that shall be (None: leave it). Our own processes
take turns; against programs that take no lock the content is compared while the two files change places, and the
plan is made anew on what they wrote. Kept: mode, owner, attributes, the target of a symbolic link. The old content is
backed up first. A kill at any point leaves the old file or the new one.

A program that had read the file before our change may write its stale copy afterwards. So where somebody else wrote
it a short while ago we look again a moment later, and `holds` says whether our change is still in it; `keep_in_place`
does so for longer, and without holding up others. What is written back later than that cannot be told from an edit that
somebody meant. And a file that somebody is just writing is not taken for what it will be.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from perdure.model.envelope import ToolError
from perdure.model.fault_points import passed, point
from perdure.registry import backups
from perdure.registry.errors import AlreadyInstalled, ChangedMeanwhile, Forbidden, RegistryUnavailable
from perdure.registry.reading import MAX_BYTES, WAIT_S, opened, refused
from perdure.registry.turns import Turn
from perdure.storage.files import fidelity
from perdure.storage.files.exchange import Conflict
from perdure.storage.files.identity import Expected
from perdure.storage.files.pending import PendingFile
from perdure.storage.files.syscalls import is_open_for_writing

SETTLE_S: Final = 0.03
LOOK_S: Final = 0.01

Plan = Callable[[bytes | None], bytes | None]
Holds = Callable[[bytes | None], bool]


class Found(NamedTuple):
    """`is_busy`: another program has it open for writing."""

    data: bytes
    facts: fidelity.Facts
    is_busy: bool = False


class Made(NamedTuple):
    """The number of a change, and whether another program was writing the file, too."""

    number: int
    is_contended: bool


class Change(NamedTuple):
    """What is to be changed, and what the change is about: a later one about the same takes its place."""

    plan: Plan
    holds: Holds
    about: str = ""


def read_file(path: str) -> Found | None:
    """A regular file and its facts; None where there is none. Raises Unreadable for anything else."""
    fd = opened(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return Found(file.read(MAX_BYTES + 1), fidelity.capture(fd), is_open_for_writing(fd))
        except OSError as error:
            raise refused(error, os.path.basename(path)) from None


def change_file(
    path: str, plan: Plan, holds: Holds, *, wait_s: float = WAIT_S, backup: bool = True, about: str = ""
) -> Made | None:
    """What was made of it; None where there was nothing to do.

    Raises what `plan` raises, before anything is touched, and RegistryError.
    """
    target = os.path.realpath(path)
    change = Change(plan, holds, about)
    try:
        if read_file(target) is None and plan(None) is None:
            return None  # nothing to do, so nothing is made either
        with Turn(target, wait_s=wait_s) as turn:
            number = _change(target, turn, change, time.monotonic() + wait_s, backup)
            return Made(number, turn.is_contended) if number else None
    except ToolError as error:
        raise _refused_tool(error, os.path.basename(target)) from None
    except OSError as error:
        raise refused(error, os.path.basename(target)) from None


def keep_in_place(path: str, change: Change, number: int, for_s: float, *, wait_s: float = WAIT_S) -> None:
    """Look for a while whether a change is still there, and make it again where another program wrote over it.

    Where one of our own processes changed the same thing since, that is how it shall be. Raises ChangedMeanwhile.
    """
    target = os.path.realpath(path)
    end = time.monotonic() + wait_s
    quiet_at = time.monotonic() + for_s
    seen: object = None
    while time.monotonic() < quiet_at:
        facts = _facts(target)
        if facts != seen:
            seen = facts
            found = read_file(target)
            if not change.holds(found.data if found is not None else None):
                with Turn(target, wait_s=wait_s) as turn:
                    if turn.record.changes.get(change.about) != number:
                        return
                    try:
                        number = _change(target, turn, change, end, True) or number
                    except AlreadyInstalled:
                        return  # it is there, by whoever
                quiet_at = time.monotonic() + for_s
                if quiet_at > end:
                    raise ChangedMeanwhile(
                        f"another program keeps writing an older {os.path.basename(target)} back",
                        hint="close it, or let it read the file anew, and try again",
                    )
        time.sleep(LOOK_S)


def _facts(target: str) -> object:
    try:
        info = os.stat(target)
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size


def _change(target: str, turn: Turn, change: Change, until: float, backup: bool) -> int:
    plan, holds, about = change
    changed, is_tried = 0, False
    while True:
        found = _settled(target, until)
        point("registry.read")
        old = found.data if found is not None else None
        if changed and holds(old):
            return changed
        if is_tried and time.monotonic() > until:
            raise ChangedMeanwhile(
                f"another program keeps changing {os.path.basename(target)}", hint="try again later"
            )
        is_tried = True
        new = plan(old)
        if new is None or new == old:
            return changed
        if old is not None:
            turn.found(_sha(old))
        if backup and old is not None:
            backups.keep(target, old)
            point("registry.backed_up")
        if number := _put(target, turn, found, new, about):
            changed = number
            passed("registry.landed")
            if not turn.is_contended:
                return changed
            time.sleep(SETTLE_S)


def _settled(target: str, until: float) -> Found | None:
    """The file when nobody is writing it: what a program has only half written is nobody's content."""
    while True:
        found = read_file(target)
        if found is None or not found.is_busy:
            again = read_file(target) if found is not None else None
            if found is None or (again is not None and again.data == found.data):
                return found
        if time.monotonic() > until:
            raise ChangedMeanwhile(
                f"another program keeps writing {os.path.basename(target)}", hint="try again later"
            )
        time.sleep(0.001)


def _put(target: str, turn: Turn, found: Found | None, new: bytes, about: str) -> int:
    """The number of what landed; 0 if somebody was faster."""
    folder, name = os.path.split(target)
    if found is None:
        os.makedirs(folder, exist_ok=True)
    dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        expected = "" if found is None else _sha(found.data)
        turn.begin(expected, _sha(new))
        with PendingFile(dir_fd, name, like=None if found is None else found.facts, sync=True) as file:
            file.write(new)
            landed = file.create() if found is None else file.replace_if(Expected(expected))
        return turn.landed(landed.sha256, about)
    except Conflict as conflict:
        with conflict:
            for one in conflict.displaced:
                one.seek(0)
                backups.keep(target, one.read() or b"")
        time.sleep(0.001)
        return 0
    except ToolError as error:
        if error.envelope.context.get("reason") == "file_already_exists":
            return 0
        raise
    finally:
        os.close(dir_fd)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused_tool(error: ToolError, name: str) -> Forbidden | RegistryUnavailable:
    message = f"{name}: {error.envelope.context.get('message', 'the system refused')}"
    if error.envelope.reason_hint == "permission":
        return Forbidden(message, hint="check its permissions")
    return RegistryUnavailable(message)

"""Changing a file that others change too: read, plan, and put in place only if nobody was faster.

    change_file(path, plan, holds)

`plan` gets the bytes that are there (None: no file) and gives those that shall be (None: leave it). Our own processes
take turns; against programs that take no lock the content is compared while the two files change places, and the
plan is made anew on what they wrote. Kept: mode, owner, attributes, the target of a symbolic link. The old content is
backed up first. A kill at any point leaves the old file or the new one.

A program that had read the file before our change may write its stale copy afterwards. So where the file was last
written by somebody else, we look again a moment later, and `holds` says whether our change is still in it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from perdure.model.envelope import ToolError
from perdure.model.fault_points import passed, point
from perdure.registry import backups
from perdure.registry.errors import ChangedMeanwhile, Forbidden, RegistryUnavailable, Unreadable
from perdure.registry.turns import WAIT_S, Turn
from perdure.storage.files import fidelity
from perdure.storage.files.exchange import Conflict
from perdure.storage.files.identity import Expected
from perdure.storage.files.pending import PendingFile

MAX_BYTES: Final = 8 * 1024 * 1024
SETTLE_S: Final = 0.03
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

Plan = Callable[[bytes | None], bytes | None]
Holds = Callable[[bytes | None], bool]


class Found(NamedTuple):
    data: bytes
    facts: fidelity.Facts


def read_file(path: str) -> Found | None:
    """A regular file and its facts; None where there is none. Raises Unreadable for anything else."""
    name = os.path.basename(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(error, name) from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise Unreadable(f"{name} is not a file")
        if info.st_size > MAX_BYTES:
            raise Unreadable(f"{name} is larger than {MAX_BYTES} bytes")
        with os.fdopen(os.dup(fd), "rb") as file:
            return Found(file.read(MAX_BYTES + 1), fidelity.capture(fd))
    except OSError as error:
        raise _refused(error, name) from None
    finally:
        os.close(fd)


def change_file(path: str, plan: Plan, holds: Holds, *, wait_s: float = WAIT_S, backup: bool = True) -> bool:
    """Whether anything was changed. Raises what `plan` raises, before anything is touched, and RegistryError."""
    target = os.path.realpath(path)
    try:
        if read_file(target) is None and plan(None) is None:
            return False  # nothing to do, so nothing is made either
        with Turn(target, wait_s=wait_s) as turn:
            return _change(target, turn, plan, holds, time.monotonic() + wait_s, backup)
    except ToolError as error:
        raise _refused_tool(error, os.path.basename(target)) from None
    except OSError as error:
        raise _refused(error, os.path.basename(target)) from None


def _change(target: str, turn: Turn, plan: Plan, holds: Holds, until: float, backup: bool) -> bool:
    changed = False
    while True:
        found = read_file(target)
        point("registry.read")
        old = found.data if found is not None else None
        if changed and holds(old):
            return True
        new = plan(old)
        if new is None or new == old:
            return changed
        is_foreign = found is not None and _sha(found.data) != turn.record.landed
        if backup and old is not None:
            backups.keep(target, old)
            point("registry.backed_up")
        if _put(target, turn, found, new):
            changed = True
            passed("registry.landed")
            if not is_foreign:
                return True
            time.sleep(SETTLE_S)
        elif time.monotonic() > until:
            raise ChangedMeanwhile(
                f"another program keeps changing {os.path.basename(target)}", hint="try again later"
            )


def _put(target: str, turn: Turn, found: Found | None, new: bytes) -> bool:
    """Whether it landed; not if somebody was faster."""
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
        turn.landed(landed.sha256)
        return True
    except Conflict as conflict:
        with conflict:
            for one in conflict.displaced:
                one.seek(0)
                backups.keep(target, one.read() or b"")
        time.sleep(0.001)
        return False
    except ToolError as error:
        if error.envelope.context.get("reason") == "file_already_exists":
            return False
        raise
    finally:
        os.close(dir_fd)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused(error: OSError, name: str) -> Forbidden | RegistryUnavailable | Unreadable:
    if error.errno in _FORBIDDEN:
        return Forbidden(f"{name}: {error.strerror}", hint="check its permissions")
    if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
        return Unreadable(f"{name} is not a file")
    return RegistryUnavailable(f"{name}: {error.strerror or 'input or output failed'}")


def _refused_tool(error: ToolError, name: str) -> Forbidden | RegistryUnavailable:
    message = f"{name}: {error.envelope.context.get('message', 'the system refused')}"
    if error.envelope.reason_hint == "permission":
        return Forbidden(message, hint="check its permissions")
    return RegistryUnavailable(message)

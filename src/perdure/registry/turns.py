"""Whose turn it is to change a file: one process at a time, with a record that survives a kill.

The lock and the record are one file of ours per changed file, in the state directory and not beside it. The record
says what its owner was about to do, so that the next one can tell what a killed process left: an unfinished content,
the old file, or somebody else's newer content that it had just displaced and must be put back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import structs

from perdure.model.fault_points import point
from perdure.registry import backups
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.reading import WAIT_S
from perdure.storage import temp_names
from perdure.storage.digest import sha256_of
from perdure.storage.files.exchange import open_aside
from perdure.storage.places import private_dir

POLL_S: Final = 0.002
CONTENDED_S: Final = 5.0
REMEMBERED: Final = 256
RECORD_BYTES: Final = 1 << 17


class Record(msgspec.Struct, frozen=True):
    """`landed` is the hash of what was last put in place, `foreign_at` when another program's content was last
    found there; `changes` numbers what was changed last, by what it was about. The rest is set while one is under way."""

    landed: str = ""
    foreign_at: float = 0.0
    pid: int = 0
    start: int = 0
    expected: str = ""
    planned: str = ""
    number: int = 0
    changes: dict[str, int] = {}


class Turn:
    """Our turn to change one file. Raises RegistryUnavailable if another process holds it for too long."""

    def __init__(self, target: str, *, wait_s: float = WAIT_S) -> None:
        name = hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
        self._target = target
        self._path = os.path.join(private_dir("registry-turns"), name)
        self._wait_s = wait_s
        self._fd = -1
        self.record = Record()

    def __enter__(self) -> Self:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._lock()
            self.record = self._read()
            point("registry.locked")
            if self.record.pid:
                self._settle()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.record.pid:
            self._note_idle(self.record.landed)
        self._close()

    def begin(self, expected: str, planned: str) -> None:
        """Said before anything is put in place: what is expected there, and what will be."""
        owner = temp_names.parsed(temp_names.fresh("x"))
        assert owner is not None
        pid, start, _ = owner.owner
        self._note(structs.replace(self.record, pid=pid, start=start, expected=expected, planned=planned))

    def found(self, sha256: str) -> None:
        """What was read before a change: whether it is ours shows who else is at it."""
        if sha256 != self.record.landed:
            self.record = structs.replace(self.record, foreign_at=time.time())

    @property
    def is_contended(self) -> bool:
        """Whether another program wrote this file a short while ago."""
        return 0 <= time.time() - self.record.foreign_at < CONTENDED_S

    def landed(self, sha256: str, about: str) -> int:
        """The number of this change, by which it can be told later whether one of ours came after it."""
        number = self.record.number + 1
        changes = {name: at for name, at in self.record.changes.items() if name != about}
        kept = list(changes.items())[-REMEMBERED + 1 :]
        self.record = structs.replace(self.record, number=number, changes={**dict(kept), about: number})
        self._note_idle(sha256)
        return number

    def _note_idle(self, landed: str) -> None:
        self._note(structs.replace(self.record, landed=landed, pid=0, start=0, expected="", planned=""))

    def _note(self, record: Record) -> None:
        self.record = record
        data = msgspec.json.encode(record)
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def _lock(self) -> None:
        until = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RegistryUnavailable(
                        f"another process keeps {os.path.basename(self._target)} locked",
                        hint="try again later",
                    ) from None
                time.sleep(POLL_S)
            except OSError:
                return  # a file system without locks: the exchange still compares

    def _read(self) -> Record:
        try:
            return msgspec.json.decode(os.pread(self._fd, RECORD_BYTES, 0), type=Record)
        except msgspec.MsgspecError:
            return Record()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- what a killed process left ---------------------------------------------------------------------

    def _settle(self) -> None:
        """Remove its temporary files; a content that it had displaced and nobody knows goes back to its name."""
        folder = os.path.dirname(self._target)
        try:
            dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in os.listdir(dir_fd):
                temp = temp_names.parsed(name)
                if temp is None or temp.owner[:2] != (self.record.pid, self.record.start):
                    continue
                if temp.use == "w":
                    os.unlink(name, dir_fd=dir_fd)
                else:
                    self._settle_one(dir_fd, name)
        finally:
            os.close(dir_fd)
        self._note_idle(self.record.landed)

    def _settle_one(self, dir_fd: int, name: str) -> None:
        file = open_aside(dir_fd, name)
        if file is None:
            return
        with file:
            sha256 = sha256_of(file.fileno())
            if sha256 not in (self.record.expected, self.record.planned):
                if _sha_at(self._target) == self.record.planned:
                    os.replace(name, os.path.basename(self._target), src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
                    return
                backups.keep(self._target, os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
        os.unlink(name, dir_fd=dir_fd)


def _sha_at(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return sha256_of(file.fileno())
    except OSError:
        return ""

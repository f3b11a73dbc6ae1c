"""An advisory lock for one file, with a crash record: only one process of ours changes the file at a time.

Lock and record are one file per target, in the state directory and not beside the target. The record holds the hashes
that the owner expected and planned. From it the next owner recovers after a crash: it removes temporary files, and
restores a newer content of another program that the crashed owner had just displaced.
"""

from __future__ import annotations

import hashlib
import os
from types import TracebackType
from typing import Self

import msgspec

from perdure.platform import directories
from perdure.platform.descriptors import pread, pwrite
from perdure.platform.fault_points import point
from perdure.platform.locks import lock_within, try_lock
from perdure.protocol.msgspec_types import prepare_type
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.file import backups
from perdure.registry.file.document import WAIT_S
from perdure.storage.digest import sha256_of
from perdure.storage.files import temp_names
from perdure.storage.files.swap import open_if_regular
from perdure.storage.user_dirs import private_dir


class LockRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change under way: its process, and the hashes of the expected and the planned content. Empty when idle."""

    pid: int = 0
    start: int = 0
    expected: str = ""
    planned: str = ""


class FileLock:
    """Use in `with`. Raises RegistryUnavailable if another process holds the lock for longer than `wait_s`."""

    def __init__(self, target: str, *, wait_s: float = WAIT_S) -> None:
        self._target = target
        self._path = _lock_path(target)
        self._wait_s = wait_s
        self._fd = -1
        self._record = LockRecord()

    def __enter__(self) -> Self:
        try:
            self._fd = directories.open(self._path, os.O_RDWR | os.O_CREAT | directories.NOFOLLOW, 0o600)
            self._acquire()
            self._record = self._read_record()
            point("registry.locked")
            if self._record.pid:
                self._recover()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._record.pid:
            self._write_record(LockRecord())
        self._close()

    def begin(self, expected: str, planned: str) -> None:
        """Record a change before it is applied. Both are SHA-256; an empty text stands for no file."""
        owner = temp_names.parsed(temp_names.fresh("x"))
        assert owner is not None
        pid, start, _ = owner.owner
        self._write_record(LockRecord(pid, start, expected, planned))

    def _acquire(self) -> None:
        try:
            try_lock(self._fd)
        except BlockingIOError:
            if not lock_within(self._fd, self._wait_s):
                raise RegistryUnavailable(
                    f"another process keeps {os.path.basename(self._target)} locked",
                    hint="try again later",
                ) from None
        except OSError:
            pass  # a file system without locks: the exchange still compares

    def _read_record(self) -> LockRecord:
        try:
            return msgspec.json.decode(
                pread(self._fd, os.fstat(self._fd).st_size, 0), type=prepare_type(LockRecord)
            )
        except msgspec.MsgspecError:
            return LockRecord()

    def _write_record(self, record: LockRecord) -> None:
        self._record = record
        data = msgspec.json.encode(record)
        pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- recovery after a crash -----------------------------------------------------------------------------

    def _recover(self) -> None:
        """Remove the temporary files of the crashed owner; restore a foreign content that it had displaced."""
        folder = os.path.dirname(self._target)
        try:
            dir_fd = directories.open(folder, os.O_RDONLY | directories.DIRECTORY)
        except OSError:
            return
        try:
            for name in os.listdir(dir_fd):
                temp = temp_names.parsed(name)
                if temp is None or temp.owner[:2] != (self._record.pid, self._record.start):
                    continue
                if temp.use == "w":
                    directories.unlink(name, dir_fd=dir_fd)
                else:
                    self._recover_displaced(dir_fd, name)
        finally:
            os.close(dir_fd)
        self._write_record(LockRecord())

    def _recover_displaced(self, dir_fd: int, name: str) -> None:
        file = open_if_regular(dir_fd, name)
        if file is None:
            return
        with file:
            sha256 = sha256_of(file.fileno())
            if sha256 not in (self._record.expected, self._record.planned):
                if _sha256_at(self._target) == self._record.planned:
                    directories.replace(
                        name, os.path.basename(self._target), src_dir_fd=dir_fd, dst_dir_fd=dir_fd
                    )
                    return
                backups.keep(self._target, pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
        directories.unlink(name, dir_fd=dir_fd)


def _lock_path(target: str) -> str:
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:32]
    return os.path.join(private_dir("registry-turns"), name)


def _sha256_at(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return sha256_of(file.fileno())
    except OSError:
        return ""

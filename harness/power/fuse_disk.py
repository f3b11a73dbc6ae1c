"""A disk that remembers the order of everything: one image file over FUSE, its writes and flushes in a log.

    disk    the image. A loop device on it writes here, and what it flushes is what ext4 relies on
    marks   what is written here stands in the same log: how a workload says what it was told, and when

The kernel's protocol is spoken directly, as far as a loop device needs it. Requests are answered one at a time, so
a write that was answered before a flush came in is the flush's to keep, and no other. A process of its own serves the
disk and touches no file on it: one that waited for itself could not even be killed.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable
from typing import Final

from harness.power import devices
from harness.power.disk_log import DiskLog, Flush, Mark, Write

DISK, MARKS = 2, 3
_NAMES: Final = {b"disk": DISK, b"marks": MARKS}
_MOST: Final = 128 * 1024
_HEADER: Final = struct.Struct("=IIQQIIIHH")
_ANSWER: Final = struct.Struct("=IiQ")
_ATTR: Final = struct.Struct("=6Q10I")
_ENTRY: Final = struct.Struct("=4Q2I")
_ATTR_OUT: Final = struct.Struct("=QII")
_OPEN_OUT: Final = struct.Struct("=QII")
_TRANSFER: Final = struct.Struct("=QQI20x")
_STATFS: Final = struct.Struct("=5Q4I24x")
_INIT_OUT: Final = struct.Struct("=4I2H2I2H2I24x")
_DIRECT: Final = 1
_BIG_WRITES: Final = 1 << 5
_VERSION: Final = (7, 31)


class LoggedDisk:
    """`image` is written to; `log` grows. Served from `mount` to `unmount`."""

    def __init__(self, image: int, log: DiskLog) -> None:
        self._image = image
        self._log = log
        self._fd = -1
        self._server = 0
        self._handlers: dict[int, Callable[[int, memoryview], bytes | int]] = {
            1: self._lookup,
            3: self._getattr,
            4: self._getattr,  # a change of times or size: it stays as it is
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: _nothing,
            20: self._fsync,
            26: self._init,
        }

    def mount(self, target: str) -> None:
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        devices.mount_fuse(self._fd, target)
        self._server = os.fork()
        if self._server == 0:
            try:
                devices.die_with_parent()
                self._serve()
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(0)
        os.close(self._fd)

    def unmount(self, target: str) -> None:
        devices.unmount(target)
        os.waitpid(self._server, 0)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, _MOST + BUFFER)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # unmounted
            _, opcode, unique, node, *_ = _HEADER.unpack_from(request)
            if opcode in _UNANSWERED:
                continue
            handler = self._handlers.get(opcode)
            body = memoryview(request)[_HEADER.size :]
            answer = handler(node, body) if handler is not None else -errno.ENOSYS
            code, payload = (answer, b"") if isinstance(answer, int) else (0, answer)
            try:
                os.write(self._fd, _ANSWER.pack(_ANSWER.size + len(payload), code, unique) + payload)
            except OSError as error:
                if error.errno != errno.ENOENT:  # whoever asked is gone
                    return

    # --- answers -------------------------------------------------------------------------------------------

    def _init(self, node: int, body: memoryview) -> bytes:
        return _INIT_OUT.pack(*_VERSION, _MOST, _BIG_WRITES, 12, 9, _MOST, 1, 0, 0, 0, 0)

    def _lookup(self, node: int, body: memoryview) -> bytes | int:
        found = _NAMES.get(bytes(body).rstrip(b"\0"))
        return -errno.ENOENT if found is None else _ENTRY.pack(found, 0, 60, 60, 0, 0) + _attributes(found)

    def _getattr(self, node: int, body: memoryview) -> bytes:
        return _ATTR_OUT.pack(60, 0, 0) + _attributes(node)

    def _open(self, node: int, body: memoryview) -> bytes:
        return _OPEN_OUT.pack(node, _DIRECT, 0)

    def _read(self, node: int, body: memoryview) -> bytes:
        _, offset, size = _TRANSFER.unpack_from(body)
        return os.pread(self._image, size, offset) if node == DISK else b""

    def _write(self, node: int, body: memoryview) -> bytes:
        _, offset, size = _TRANSFER.unpack_from(body)
        data = bytes(body[_TRANSFER.size : _TRANSFER.size + size])
        if node == DISK:
            os.pwrite(self._image, data, offset)
        self._log.append(Write(offset, data) if node == DISK else Mark(data.decode()))
        return struct.pack("=II", size, 0)

    def _fsync(self, node: int, body: memoryview) -> bytes:
        if node == DISK:
            self._log.append(Flush())
        return b""

    def _statfs(self, node: int, body: memoryview) -> bytes:
        return _STATFS.pack(0, 0, 0, 2, 0, devices.BLOCK, 255, devices.BLOCK, 0)


BUFFER: Final = 4096 + _HEADER.size
_UNANSWERED: Final = (2, 36, 42)  # forget, interrupt, forget many


def _nothing(node: int, body: memoryview) -> bytes:
    return b""


def _attributes(node: int) -> bytes:
    size = devices.SIZE if node == DISK else 0
    mode = 0o100600 if node in (DISK, MARKS) else 0o040700
    return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, devices.BLOCK, 0)

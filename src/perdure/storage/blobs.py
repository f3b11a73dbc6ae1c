"""Contents by their hash, as files: what is too large for a row of the journal.

    <directory>/<sha256>      0600 in 0700

A blob counts when `put` returns: its bytes and its name are on the device. It never shares an inode with a live file:
a reflink or a copy stays what it was when the file is edited in place. A content that is put again is written
again over the old file, so a blob that the disk has damaged heals.

Deletion needs the lock under which references are made: a blob that was put and is not yet referenced looks like one
that is no longer needed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Final, Protocol

import msgspec

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import link_unnamed, open_unnamed
from perdure.platform.sync import start_writing, sync_directory, sync_file
from perdure.storage.digest import sha256_of
from perdure.storage.errors import ContentDamaged, FileError, SyncError
from perdure.storage.files import temp_names
from perdure.storage.files.copy import CANNOT, copy_file
from perdure.storage.files.file_io import close_quietly, write_all

CHUNK: Final = 1 << 20
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


Source = int | bytes | Readable | Iterable[bytes]
"""A descriptor (read whole, from its start), bytes, something to read from, or pieces."""


class Blob(msgspec.Struct, frozen=True):
    sha256: str
    size: int
    mtime: float = 0.0


class Blobs:
    """One directory of contents. Several processes and threads may use it at once.

    With `is_read_only` the directory is not made; a missing one reads as empty.
    """

    def __init__(self, directory: str | os.PathLike[str], *, is_read_only: bool = False) -> None:
        if not is_read_only:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        elif not os.path.lexists(directory):
            self._fd = -1
            return
        self._fd = directories.open(directory, os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def put(self, source: Source) -> Blob:
        """Keep a content. Refused as a whole or kept as a whole, in bounded memory."""
        incoming = _Incoming(self._fd)
        try:
            blob = incoming.take(source)
            incoming.land(_path(blob.sha256))
        except OSError as error:
            raise FileError(error) from None
        finally:
            incoming.close()
        passed("blob.landed")
        return blob

    def open(self, sha256: str, *, size: int | None = None, verify: bool = False) -> FileIO:
        """A kept content to read. A wrong size is refused, and with `verify` a wrong hash."""
        try:
            file = FileIO(self._opened(sha256), "rb")
        except FileNotFoundError:
            raise ContentDamaged("missing", sha256) from None
        except OSError as error:
            raise FileError(error, sha256=sha256) from None
        try:
            if size is not None and os.fstat(file.fileno()).st_size != size:
                raise ContentDamaged("size", sha256)
            if verify and sha256_of(file.fileno()) != sha256:
                raise ContentDamaged("hash", sha256)
        except BaseException:
            file.close()
            raise
        return file

    def has(self, sha256: str) -> bool:
        return directories.access(_path(sha256), os.F_OK, dir_fd=self._fd)

    def delete(self, sha256: str, *, written_before: float | None = None) -> bool:
        """Whether it was there, and old enough to go."""
        try:
            if written_before is not None:
                info = directories.stat(_path(sha256), dir_fd=self._fd, follow_symlinks=False)
                if info.st_mtime >= written_before:
                    return False
            directories.unlink(_path(sha256), dir_fd=self._fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise FileError(error, sha256=sha256) from None
        return True

    def __iter__(self) -> Iterator[Blob]:
        for name in sorted(filter(_SHA256.fullmatch, os.listdir(self._fd))):
            try:
                info = directories.stat(name, dir_fd=self._fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(info.st_mode):
                yield Blob(name, info.st_size, info.st_mtime)

    def total(self) -> int:
        """Bytes of all contents."""
        return sum(blob.size for blob in self)

    def sweep(self, *, before: float | None = None) -> int:
        """Remove what killed processes left; as `surfaces.write.sweep`. Returns how many."""
        count = 0
        for name in os.listdir(self._fd):
            temp = temp_names.parsed(name)
            lives = temp_names.owner_lives(temp.owner) if temp is not None else True
            try:
                if lives is None:
                    lives = before is None or directories.stat(name, dir_fd=self._fd).st_ctime >= before
                if not lives:
                    directories.unlink(name, dir_fd=self._fd)
                    count += 1
            except FileNotFoundError:
                continue
        return count

    def _opened(self, sha256: str) -> int:
        if self._fd < 0:
            raise FileNotFoundError(sha256)
        return directories.open(_path(sha256), os.O_RDONLY | directories.NOFOLLOW, dir_fd=self._fd)


class _Incoming:
    """A blob on its way: a file without a name, or with a temporary one where there is no other way."""

    def __init__(self, dir_fd: int) -> None:
        self.dir_fd = dir_fd
        self.temp: str | None = None
        try:
            point("blob.open_temp")
            self.fd = self._open()
        except OSError as error:
            raise FileError(error) from None

    def _open(self) -> int:
        fd = open_unnamed(self.dir_fd, 0o600)
        if fd is None:
            self.temp = temp_names.fresh("w")
            fd = directories.open(self.temp, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self.dir_fd)
        return fd

    def take(self, source: Source) -> Blob:
        point("blob.temp_created")
        if isinstance(source, int):
            point("blob.clone")
            copy_file(source, self.fd, "blob.chunk")
            sha256 = sha256_of(self.fd)  # of the copy: the source may change while it is read
        else:
            sha256 = self._write(source)
        return Blob(sha256, os.fstat(self.fd).st_size)

    def _write(self, source: bytes | Readable | Iterable[bytes]) -> str:
        digest = hashlib.sha256()
        offset = 0
        for piece in _pieces(source):
            write_all(self.fd, piece, "blob.chunk")
            start_writing(self.fd, offset, len(piece))
            digest.update(piece)
            offset += len(piece)
        return digest.hexdigest()

    def land(self, path: str) -> None:
        """Named first and synced then: both become durable in one step of the file system's own journal. A name
        whose content is lost with the power is one that nothing refers to yet, and the next put replaces it."""
        try:
            point("blob.before_link")
            self._link(path)
            point("blob.linked")
        except OSError as error:
            if error.errno != errno.EEXIST and error.errno not in CANNOT:
                raise
            self._sync_content()
            self._take_place(path)
        else:
            self._sync_content()
        try:
            point("blob.before_dir_fsync")
            sync_directory(self.dir_fd)
        except OSError as error:
            raise SyncError(error, "directory of kept contents") from None

    def _sync_content(self) -> None:
        try:
            point("blob.before_fsync")
            sync_file(self.fd)
        except OSError as error:
            raise SyncError(error, "content") from None

    def _take_place(self, path: str) -> None:
        """Over a blob of the same name, which may be damaged."""
        if self.temp is None:
            name = temp_names.fresh("w")
            self._link(name)
            self.temp = name
        directories.rename(self.temp, path, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)
        self.temp = None

    def close(self) -> None:
        if self.temp is not None:
            try:
                directories.unlink(self.temp, dir_fd=self.dir_fd)
            except OSError:
                pass
        close_quietly(self.fd)

    def _link(self, path: str) -> None:
        if self.temp is None:
            link_unnamed(self.fd, self.dir_fd, path)
        else:
            directories.link(self.temp, path, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)


def _pieces(source: bytes | Readable | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
    elif hasattr(source, "read"):
        while piece := source.read(CHUNK):
            yield piece
    else:
        yield from source


def _path(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise ValueError("sha256 must be 64 lower-case hex digits")
    return sha256

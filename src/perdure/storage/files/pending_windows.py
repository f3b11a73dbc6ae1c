"""The Windows form of `pending.py`: the same promises with what that system has. Typed, but not run by our tests.

| there | here |
|---|---|
| link or rename without replacing | `MoveFileExW` without `MOVEFILE_REPLACE_EXISTING` |
| exchange, look, exchange back | `ReplaceFileW` with a backup, look at the backup, `ReplaceFileW` back |
| mode, owner, attributes | `ReplaceFileW` gives the new file the old one's security and attributes |
| fsync of file and directory | `FlushFileBuffers` through `os.fsync`; `MOVEFILE_WRITE_THROUGH` for the name |

There are no directory descriptors: the caller resolves the path, and reparse points are refused before it is used.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    import errno
    import hashlib
    import os
    import stat
    from collections.abc import Callable
    from ctypes import wintypes
    from typing import Final, Self

    from perdure.model.envelope import ToolError, refuse
    from perdure.storage import temp_names
    from perdure.storage.durable import write_all
    from perdure.storage.os_errors import os_refusal, sync_refusal

    _REPLACE_EXISTING: Final = 0x1
    _WRITE_THROUGH: Final = 0x8
    _IGNORE_ACL_ERRORS: Final = 0x4
    _CHUNK: Final = 1 << 20

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.MoveFileExW.argtypes = (wintypes.LPCWSTR, wintypes.LPCWSTR, wintypes.DWORD)
    _kernel32.MoveFileExW.restype = wintypes.BOOL
    _kernel32.ReplaceFileW.argtypes = (
        wintypes.LPCWSTR,
        wintypes.LPCWSTR,
        wintypes.LPCWSTR,
        wintypes.DWORD,
        wintypes.LPVOID,
        wintypes.LPVOID,
    )
    _kernel32.ReplaceFileW.restype = wintypes.BOOL

    class WindowsConflict(ToolError):
        """Another program's content was found. `displaced` is a file that holds what no name holds any more."""

        def __init__(self, reason: str, displaced: str | None = None) -> None:
            error = refuse(
                "conflict", reason, "another program changed the file meanwhile", suggested_action="reread"
            )
            super().__init__(error.envelope)
            self.displaced = displaced

    class WindowsPendingFile:
        """New content for a path. Use it in `with`: what did not land is discarded."""

        def __init__(self, path: str, *, sync: bool = False) -> None:
            self.path = _long(path)
            self.size = 0
            self._sync = sync
            self._digest = hashlib.sha256()
            self._temp = os.path.join(os.path.dirname(self.path), temp_names.fresh("w"))
            self._fd = -1
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_BINARY | os.O_NOINHERIT
                self._fd = os.open(self._temp, flags, 0o666)
            except OSError as error:
                raise os_refusal(error) from None

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.discard()

        @property
        def sha256(self) -> str:
            return self._digest.hexdigest()

        def write(self, data: bytes) -> None:
            try:
                write_all(self._fd, data, "write.chunk")
            except OSError as error:
                raise self._failed(error) from None
            self._digest.update(data)
            self.size += len(data)

        def seal(self) -> None:
            """A file that is open cannot be renamed here, so it is closed before it gets its name."""
            if self._fd < 0:
                return
            try:
                if self._sync:
                    os.fsync(self._fd)
            except OSError as error:
                self.discard()
                raise sync_refusal(error, "file") from None
            os.close(self._fd)
            self._fd = -1

        def create(self) -> None:
            self.seal()
            self._step(lambda: _move(self._temp, self.path, 0, self._sync))

        def replace(self) -> None:
            self.seal()
            self._step(lambda: _move(self._temp, self.path, _REPLACE_EXISTING, self._sync))

        def replace_if(self, sha256: str) -> None:
            """Take the place of the file with this hash, or leave everything as it was."""
            self.seal()
            backup = os.path.join(os.path.dirname(self.path), temp_names.fresh("x"))
            try:
                _replace(self.path, self._temp, backup)
            except FileNotFoundError:
                self.discard()
                raise WindowsConflict("file_vanished") from None
            except OSError as error:
                raise self._failed(error) from None
            if _sha256(backup) == sha256:
                os.unlink(backup)
                return
            # What was there goes back; what another program put there in between is kept beside it.
            ours = os.path.join(os.path.dirname(self.path), temp_names.fresh("x"))
            try:
                _replace(self.path, backup, ours)
            except OSError:
                raise WindowsConflict("changed_meanwhile", backup) from None
            if _sha256(ours) == self.sha256:
                os.unlink(ours)
                raise WindowsConflict("changed_meanwhile")
            raise WindowsConflict("changed_meanwhile", ours)

        def discard(self) -> None:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            try:
                os.unlink(self._temp)
            except OSError:
                pass

        def _step(self, step: Callable[[], None]) -> None:
            try:
                step()
            except OSError as error:
                raise self._failed(error) from None

        def _failed(self, error: OSError) -> ToolError:
            self.discard()
            return os_refusal(error)

    def _move(source: str, target: str, flags: int, through: bool) -> None:
        if not _kernel32.MoveFileExW(source, target, flags | (_WRITE_THROUGH if through else 0)):
            raise ctypes.WinError(ctypes.get_last_error())

    def _replace(target: str, source: str, backup: str) -> None:
        if stat.S_ISLNK(os.lstat(target).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not _kernel32.ReplaceFileW(target, source, backup, _IGNORE_ACL_ERRORS, None, None):
            raise ctypes.WinError(ctypes.get_last_error())

    def _sha256(path: str) -> str:
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
        return digest.hexdigest()

    def _long(path: str) -> str:
        """The form without the 260 character limit and without interpretation of names."""
        absolute = os.path.abspath(path)
        return absolute if absolute.startswith("\\\\") else "\\\\?\\" + absolute

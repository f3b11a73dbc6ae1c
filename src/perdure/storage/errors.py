"""What storage raises. Facts only: `present/tool_errors.py` turns them into what a model reads.

    StorageError
    ├── FileError            a system call on a file failed                      errno, path, sha256
    │   └── SyncError        fsync failed: what was written may be lost          subject
    ├── FileChanging         a file changed each time while it was read
    ├── Conflict             a name holds the content of another program         reason, found, displaced
    ├── ContentDamaged       a kept content is missing, or is not its hash       reason, sha256
    ├── CipherError          a content cannot be sealed, or not be read again    reason
    ├── LockTimeout          another process has kept a lock for too long        subject
    ├── JournalError         the journal failed, and nothing was changed         reason, errno, detail
    │   └── StoreReplaced    the store was removed or replaced while it was open
    └── StateError           the state store failed                              fault, code, detail, retry, outcome

A function that promises no such error lets an `OSError` of the system pass.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from io import FileIO
from typing import Literal

from perdure.protocol.faults import FaultClass, Retry
from perdure.storage.files.file_io import close_quietly

ConflictReason = Literal[
    "changed_meanwhile",
    "open_elsewhere",
    "hard_linked",
    "not_a_file",
    "not_empty",
    "file_vanished",
    "not_put_back",
]


class StorageError(Exception):
    """The text of each is for a log: it names no path and no content."""


class FileError(StorageError):
    """`path` is the name that the caller gave, printable; `sha256` the kept content that was meant."""

    def __init__(self, error: OSError, *, path: str = "", sha256: str = "") -> None:
        self.errno = error.errno or 0
        super().__init__(errno_name(self.errno))
        self.path = path
        self.sha256 = sha256


class SyncError(FileError):
    """The kernel may have dropped the pages and marked them clean, so a second fsync of the same descriptor could succeed
    without the data being anywhere: it is never retried. `subject` is what may be lost."""

    def __init__(self, error: OSError, subject: str, *, path: str = "") -> None:
        super().__init__(error, path=path)
        self.subject = subject

    def __str__(self) -> str:
        return f"fsync_failed/{super().__str__()}"


class FileChanging(StorageError):
    def __init__(self) -> None:
        super().__init__("file_changing")


class Conflict(StorageError):
    """Nothing of the other program's content is lost: `found` is the file at the name now, and `displaced` are files
    without a name, which only these open descriptors still hold. Close it, or use `with`."""

    def __init__(
        self,
        reason: ConflictReason,
        found: FileIO | None = None,
        displaced: Sequence[FileIO] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.found = found
        self.displaced = tuple(displaced)

    def __enter__(self) -> Conflict:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for file in (self.found, *self.displaced):
            if file is not None:
                close_quietly(file)


class ContentDamaged(StorageError):
    def __init__(self, reason: Literal["missing", "size", "hash"], sha256: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sha256 = sha256


class CipherError(StorageError):
    def __init__(self, reason: Literal["no_key", "no_cipher", "wrong_key"]) -> None:
        super().__init__(reason)
        self.reason = reason


class LockTimeout(StorageError):
    def __init__(self, subject: Literal["workspace", "directory", "observation"] = "workspace") -> None:
        super().__init__(subject)
        self.subject = subject


class JournalError(StorageError):
    """Nothing of the transaction happened, for none of its jobs. `errno` where the system failed, `detail` where a store
    refuses to be opened and says why."""

    def __init__(self, reason: str, *, errno: int | None = None, detail: str = "") -> None:
        super().__init__(reason if errno is None else f"{reason}/{errno_name(errno)}")
        self.reason = reason
        self.errno = errno
        self.detail = detail


class StoreReplaced(JournalError):
    """Nothing was planned: the call can be made again on the store that is there now."""

    def __init__(self) -> None:
        super().__init__("store_replaced")


class UnusableStore(Exception):
    """A database that cannot be used as it is; the text says what to do. Only inside storage: a backend raises it as a
    `JournalError` or a `StateError`."""


class StateError(StorageError):
    """Nothing was changed, unless `outcome` says that this is unknown."""

    def __init__(
        self,
        fault: FaultClass,
        code: str,
        detail: str,
        retry: Retry = "later",
        *,
        outcome: Literal["not_started", "unknown"] = "not_started",
    ) -> None:
        super().__init__(code)
        self.fault = fault
        self.code = code
        self.detail = detail
        self.retry = retry
        self.outcome = outcome


def errno_name(number: int) -> str:
    return errno.errorcode.get(number, str(number))

"""What a failure of SQLite means to the journal: a `JournalError`, never an exception of the database.

| SQLite | reason |
|---|---|
| FULL, and IOERR by its errno; NOMEM | journal_io, with the errno |
| BUSY, LOCKED, PROTOCOL | journal_busy |
| READONLY, PERM, CANTOPEN | journal_read_only |
| CORRUPT, NOTADB | journal_damaged |
| the rest | journal_failed |
| a store of a newer version, a SQLite that is too old | journal_refused |
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, Final, TypeVar

import apsw

from perdure.storage.errors import JournalError, UnusableStore

C = TypeVar("C", bound=type)

_READING: Final = (apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)
_BUSY: Final = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
_DENIED: Final = (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError)
_DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError)


def typed(cls: C) -> C:
    """A journal whose public methods raise `JournalError` where SQLite fails."""
    for name, method in list(vars(cls).items()):
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and isfunction(method) and not isgeneratorfunction(method):
            setattr(cls, name, _typed(method))
    return cls


def _typed(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def guarded(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(self, *given, **named)
        except (apsw.Error, UnusableStore) as error:
            raise journal_error(error, getattr(self, "_write", None)) from None

    return guarded


def journal_error(error: BaseException, connection: apsw.Connection | None) -> BaseException:
    """The typed form of a failure; what is not SQLite's stays what it is."""
    if isinstance(error, UnusableStore):
        return JournalError("journal_refused", detail=str(error))
    return _typed_error(error, connection) if isinstance(error, apsw.Error) else error


def _typed_error(error: apsw.Error, connection: apsw.Connection | None) -> JournalError:
    if isinstance(error, (apsw.FullError, apsw.IOError)):
        return JournalError("journal_io", errno=_errno(error, connection))
    if isinstance(error, apsw.NoMemError):
        return JournalError("journal_io", errno=errno.ENOMEM)
    if isinstance(error, _BUSY):
        return JournalError("journal_busy")
    if isinstance(error, _DENIED):
        return JournalError("journal_read_only")
    return JournalError("journal_damaged" if isinstance(error, _DAMAGED) else "journal_failed")


def _errno(error: apsw.Error, connection: apsw.Connection | None) -> int:
    """What the system said, where SQLite kept it: for the one connection that writes."""
    if isinstance(error, apsw.FullError):
        return errno.ENOSPC
    if connection is None or getattr(error, "extendedresult", 0) in _READING:
        return errno.EIO
    try:
        return connection.system_errno or errno.EIO
    except apsw.Error:
        return errno.EIO  # it is closed

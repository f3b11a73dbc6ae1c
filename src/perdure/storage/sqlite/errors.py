"""What a failure of SQLite means to whoever asked for the work: a refusal, never an exception of the database.

| SQLite | error / reason_hint | reason |
|---|---|---|
| FULL, and IOERR by its errno | as `present/tool_errors.py` | no_space, io_error … |
| BUSY, LOCKED, PROTOCOL | conflict / unknown | journal_busy |
| READONLY, PERM, CANTOPEN | policy_violation / permission | journal_read_only |
| CORRUPT, NOTADB | write_corruption / unknown | journal_damaged |
| NOMEM | quota_exceeded / unknown | out_of_memory |
| the rest | write_corruption / unknown | journal_failed |
| a store of a newer version, a SQLite that is too old | policy_violation / unknown | journal_refused |
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, Final, TypeVar

import apsw

from perdure.present.tool_errors import os_refusal
from perdure.protocol.envelope import ErrorKind, ReasonHint, SuggestedAction, ToolError, refuse
from perdure.protocol.next_step import ask_user, call_again
from perdure.storage.journal import JournalError
from perdure.storage.sqlite.database import StoreError

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
        except (apsw.Error, StoreError) as error:
            raise refusal(error, getattr(self, "_write", None)) from None

    return guarded


def refusal(error: BaseException, connection: apsw.Connection | None) -> BaseException:
    """The typed form of a failure; what is not SQLite's stays what it is."""
    if isinstance(error, StoreError):
        return JournalError(
            _of_journal(
                "policy_violation", "journal_refused", f"{str(error).rstrip('.')}.", "ask_user"
            ).envelope
        )
    return JournalError(_meaning(error, connection).envelope) if isinstance(error, apsw.Error) else error


def _meaning(error: apsw.Error, connection: apsw.Connection | None) -> ToolError:
    if isinstance(error, (apsw.FullError, apsw.IOError)):
        return os_refusal(OSError(_errno(error, connection), ""), of="journal")
    if isinstance(error, _BUSY):
        return _of_journal(
            "conflict", "journal_busy", "another program keeps the journal locked.", "retry_later"
        )
    if isinstance(error, _DENIED):
        return _of_journal(
            "policy_violation",
            "journal_read_only",
            "the journal cannot be written: its file or folder is read-only.",
            "ask_user",
            hint="permission",
        )
    if isinstance(error, _DAMAGED):
        return _of_journal(
            "write_corruption", "journal_damaged", "the journal is damaged and cannot be read.", "ask_user"
        )
    if isinstance(error, apsw.NoMemError):
        return os_refusal(OSError(errno.ENOMEM, ""), of="journal")
    return _of_journal(
        "write_corruption",
        "journal_failed",
        "the journal failed for a reason that SQLite does not name.",
        "ask_user",
    )


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


def _of_journal(
    error: ErrorKind, reason: str, message: str, action: SuggestedAction, *, hint: ReasonHint = "unknown"
) -> ToolError:
    return refuse(
        error,
        reason,
        message,
        next_step=call_again()
        if action == "retry_later"
        else ask_user("to run perdure doctor, which says what is wrong with the journal."),
        reason_hint=hint,
        suggested_action=action,
    )

"""Maps failures of SQLite to typed faults with advice.

| SQLite | class | code | retry |
|---|---|---|---|
| BUSY, LOCKED, PROTOCOL | resource | state_locked | later |
| FULL | resource | state_full | later |
| READONLY, PERM, CANTOPEN | resource | state_unwritable | never |
| CORRUPT, NOTADB | resource | state_damaged | never |
| the rest | resource | state_failed | later |

A system that does not let the file be opened means the same; where the path itself is wrong, it is `state_misplaced`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from perdure.storage.errors import StateError, UnusableStore

_BUSY: Final = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
_DENIED: Final = (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError)
_NO_PLACE: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG)
_DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError)


@contextmanager
def typed() -> Iterator[None]:
    try:
        yield
    except (apsw.Error, UnusableStore) as error:
        raise typed_error(error) from None


def typed_error(error: apsw.Error | UnusableStore) -> StateError:
    if isinstance(error, apsw.Error):
        return meaning(error)
    return StateError("resource", "state_refused", str(error), "never")


def not_opened(error: OSError) -> StateError:
    number = error.errno
    if number in (errno.ENOSPC, errno.EDQUOT):
        return meaning(apsw.FullError())
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return meaning(apsw.PermissionsError())
    if number in _NO_PLACE:
        return StateError(
            "resource", "state_misplaced", "no state store can be at the path that is set", "never"
        )
    return meaning(apsw.IOError())


def meaning(error: apsw.Error) -> StateError:
    if isinstance(error, _BUSY):
        return StateError("resource", "state_locked", "another process keeps the state store locked")
    if isinstance(error, apsw.FullError):
        return StateError("resource", "state_full", "there is no space for the state store")
    if isinstance(error, _DENIED):
        return StateError("resource", "state_unwritable", "the state store cannot be written", "never")
    if isinstance(error, _DAMAGED):
        return StateError("resource", "state_damaged", "the state store cannot be read", "never")
    return StateError("resource", "state_failed", "the state store failed")

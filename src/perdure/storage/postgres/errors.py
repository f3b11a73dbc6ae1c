"""Maps failures of PostgreSQL to typed faults with advice.

| PostgreSQL | class | code | retry |
|---|---|---|---|
| no connection, a lost one, a server that starts or ends | transport | state_unreachable | later |
| a lock not granted in time | resource | state_locked | later |
| a statement that took too long | resource | state_slow | later |
| no space, memory, connections | resource | state_full | later |
| a role without the right | resource | state_unwritable | never |
| the rest | resource | state_failed | later |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from perdure.storage.errors import StateError, UnusableStore

_SHORT: Final = (errors.InsufficientResources, errors.TooManyConnections)
_DENIED: Final = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction, errors.InvalidPassword)


@contextmanager
def typed() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise meaning(error) from None
    except UnusableStore as error:
        raise StateError("resource", "state_refused", str(error), "never") from None


def meaning(error: psycopg.Error) -> StateError:
    if isinstance(error, errors.LockNotAvailable):
        return StateError("resource", "state_locked", "another process keeps the state store locked")
    if isinstance(error, errors.QueryCanceled):
        return StateError("resource", "state_slow", "the database took too long")
    if isinstance(error, _SHORT):
        return StateError("resource", "state_full", "the database is short of space, memory or connections")
    if isinstance(error, _DENIED):
        return StateError("resource", "state_unwritable", "the database does not permit it", "never")
    if is_lost(error):
        return StateError("transport", "state_unreachable", "the database cannot be reached")
    return StateError("resource", "state_failed", "the state store failed")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection, and not what was asked over it, is the trouble."""
    if isinstance(error, (PoolTimeout, PoolClosed, TooManyRequests)):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and not isinstance(
        error, (errors.LockNotAvailable, errors.QueryCanceled, *_SHORT)
    )

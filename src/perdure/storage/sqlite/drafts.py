"""Discarding a refused payload from outside the worker."""

from __future__ import annotations

import os
from typing import Final

import apsw

BUSY_MS: Final = 2_000
EXPIRED: Final = 1
"""A time at which no draft was made. The worker's next clean-up drops such a draft with its content."""


def expire_draft(journal: str, identity: str) -> bool:
    """Make a draft the oldest one. False where there is no such draft, or it is about to be dropped already."""
    if not os.path.exists(journal):
        return False
    connection = apsw.Connection(journal, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("UPDATE drafts SET ts = ? WHERE id = ? AND ts > ?", (EXPIRED, identity, EXPIRED))
        return connection.changes() == 1
    finally:
        connection.close()

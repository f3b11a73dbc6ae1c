"""Seeded bugs of durability, for the power cuts: each acknowledges a write that a cut then takes.

The trial of a bug is the durability, or the store, whose run must lose it.
"""

from __future__ import annotations

from typing import Final

import apsw

from harness.seeded_bugs import Function, SeededBugs, after, do_nothing, replace, wrap
from perdure.storage import blobs
from perdure.storage.files import pending, removal
from perdure.storage.sqlite import database, state_schema
from perdure.workspace import sync_pass

BUGS: Final = SeededBugs()


def _set_synchronous(level: str) -> None:
    def make(original: Function) -> Function:
        def connect(path: str) -> apsw.Connection:
            connection: apsw.Connection = original(path)
            connection.pragma("synchronous", level)
            return connection

        return connect

    wrap(database, "_connect", make)


@BUGS.add("journal-never-synced", "journal")
def journal_never_synced() -> None:
    """The journal runs with PRAGMA synchronous=OFF."""
    _set_synchronous("off")


@BUGS.add("journal-synced-later", "journal")
def journal_synced_later() -> None:
    """The journal runs with PRAGMA synchronous=NORMAL."""
    _set_synchronous("normal")


@BUGS.add("settled-unsynced", "journal")
def settled_unsynced() -> None:
    """Intents are settled before their files are synced."""
    for name in ("begin_sync", "sync"):
        replace(sync_pass.AppliedChanges, name, do_nothing)


@BUGS.add("blobs-not-synced", "journal")
def blobs_not_synced() -> None:
    """Large contents are not synced."""
    for name in ("sync_file", "sync_directory", "start_writing"):
        replace(blobs, name, do_nothing)


@BUGS.add("state-synced-later", "state")
def state_synced_later() -> None:
    """The state store runs with PRAGMA synchronous=NORMAL."""

    def configure(connection: apsw.Connection) -> None:
        connection.pragma("synchronous", "normal")

    after(state_schema, "_configure", configure)


@BUGS.add("files-not-synced", "strict")
def files_not_synced() -> None:
    """Strict durability does not sync files."""
    for module in (pending, removal):
        replace(module, "sync_directory", do_nothing)
    replace(pending, "sync_file", do_nothing)

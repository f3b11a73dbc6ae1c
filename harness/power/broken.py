"""Commits that are broken on purpose: each acknowledges what a power cut takes, and the harness must say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import apsw
import msgspec

from perdure.storage import blobs
from perdure.storage.files import pending
from perdure.storage.sqlite import database, state_opening
from perdure.surfaces.write import landing, removal
from perdure.worker.compose import Durability


class Broken(msgspec.Struct, frozen=True):
    what: str
    durability: Durability
    breaks: Callable[[], None]
    is_state: bool = False


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _synchronous(level: str) -> None:
    connect = database._connect

    def connected(path: str) -> apsw.Connection:
        connection = connect(path)
        connection.pragma("synchronous", level)
        return connection

    patch.object(database, "_connect", connected).start()


def _journal_never_synced() -> None:
    _synchronous("off")


def _journal_synced_later() -> None:
    _synchronous("normal")


def _state_synced_later() -> None:
    configure = state_opening._configure

    def configured(connection: apsw.Connection) -> None:
        configure(connection)
        connection.pragma("synchronous", "normal")

    patch.object(state_opening, "_configure", configured).start()


def _settled_unsynced() -> None:
    for name in ("begin_sync", "sync"):
        patch.object(landing.CallLanding, name, _nothing).start()


def _blobs_not_synced() -> None:
    for name in ("sync_file", "sync_directory", "start_writing"):
        patch.object(blobs, name, _nothing).start()


def _files_not_synced() -> None:
    for module in (pending, removal):
        patch.object(module, "sync_directory", _nothing).start()
    patch.object(pending, "sync_file", _nothing).start()


BROKEN: Final = {
    "journal-never-synced": Broken("PRAGMA synchronous=OFF", "journal", _journal_never_synced),
    "journal-synced-later": Broken("PRAGMA synchronous=NORMAL", "journal", _journal_synced_later),
    "settled-unsynced": Broken("intents settled, files not synced", "journal", _settled_unsynced),
    "blobs-not-synced": Broken("large contents not synced", "journal", _blobs_not_synced),
    "state-synced-later": Broken(
        "state with PRAGMA synchronous=NORMAL", "journal", _state_synced_later, is_state=True
    ),
    "files-not-synced": Broken("strict without fsync of files", "strict", _files_not_synced),
}

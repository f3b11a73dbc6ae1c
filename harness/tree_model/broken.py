"""Write surfaces that are broken on purpose: each is wrong in a way that the model must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import msgspec

from perdure.storage.files import fidelity, pending
from perdure.storage.journal import Row
from perdure.surfaces.write import guards, recover, undoing
from perdure.surfaces.write.service import WriteService
from perdure.surfaces.write.store import Content
from perdure.surfaces.write.tree import Known, Tree


class Broken(msgspec.Struct, frozen=True):
    what: str
    breaks: Callable[[], None]


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _undo_forgets_later_edits() -> None:
    def reverted(service: WriteService, tree: Tree, known: Known, row: Row) -> Content | None:
        return service.store.find(row.old_sha.hex()) if row.old_sha is not None else None

    patch.object(undoing, "_reverted", reverted).start()


def _redo_never_ends() -> None:
    patch.object(undoing, "_is_effective", lambda *_: True).start()


def _recovery_believes_the_journal() -> None:
    patch.object(recover, "_settle", lambda *_: "settled").start()


def _recovery_forgets_modes() -> None:
    patch.object(fidelity, "recalled", _nothing).start()


def _no_stale_guard() -> None:
    patch.object(guards, "check_seen", _nothing).start()


def _no_precondition() -> None:
    patch.object(guards, "check_precondition", _nothing).start()


def _exchange_unverified() -> None:
    patch.object(pending, "unexpected", _nothing).start()


def _keys_done_again() -> None:
    patch.object(WriteService, "_deduplicated", _nothing).start()


BROKEN: Final = {
    "undo-forgets": Broken("undo puts the old content back, whatever came later", _undo_forgets_later_edits),
    "undo-again": Broken("what was taken back is taken back again", _redo_never_ends),
    "recovery-skips": Broken(
        "recovery settles intents that it does not look at", _recovery_believes_the_journal
    ),
    "recovery-modes": Broken("recovery makes files with the mode of a new one", _recovery_forgets_modes),
    "stale-guard": Broken("a change that a session has not seen is overwritten", _no_stale_guard),
    "precondition": Broken("a precondition is not looked at", _no_precondition),
    "exchange": Broken("a foreign edit in the last moment is overwritten", _exchange_unverified),
    "keys": Broken("an idempotency key means nothing", _keys_done_again),
}

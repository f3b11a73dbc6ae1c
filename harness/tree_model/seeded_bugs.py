"""Seeded bugs of the write surface, for the model of the tree."""

from __future__ import annotations

from typing import Final

from harness.seeded_bugs import SeededBugs, do_nothing, replace
from perdure.storage.files import metadata, swap
from perdure.surfaces.write import guards
from perdure.workspace.contents import Content
from perdure.workspace.planning import PlannedFile
from perdure.workspace.recovery import recover
from perdure.workspace.undo import selection
from perdure.workspace.undo.revert import Reversal
from perdure.workspace.workspace import Workspace

BUGS: Final = SeededBugs()


@BUGS.add("undo-forgets")
def undo_forgets_later_edits() -> None:
    """Undo restores the old content and drops the edits that came later."""

    def merge(reversal: Reversal, known: PlannedFile, new: str, old: str) -> Content:
        return reversal._workspace.store.find(old)

    replace(Reversal, "_merge", merge)


@BUGS.add("undo-again")
def undo_again() -> None:
    """Undo reverts again what it has reverted already."""
    replace(selection, "is_effective", lambda *_: True)


@BUGS.add("recovery-skips")
def recovery_skips() -> None:
    """Recovery settles intents without a look at the files."""
    replace(recover, "_settle", lambda *_, **__: "settled")


@BUGS.add("recovery-modes")
def recovery_forgets_modes() -> None:
    """Recovery makes files with the mode of a new one."""
    replace(metadata, "from_journal", do_nothing)


@BUGS.add("stale-guard")
def no_stale_guard() -> None:
    """A write overwrites a change that its session has not seen."""
    replace(guards, "check_seen", do_nothing)


@BUGS.add("precondition")
def no_precondition() -> None:
    """A write does not check its precondition."""
    replace(guards, "check_precondition", do_nothing)


@BUGS.add("exchange")
def exchange_unverified() -> None:
    """A write overwrites a foreign edit that comes just before the exchange."""
    replace(swap, "mismatch_reason", do_nothing)


@BUGS.add("keys")
def keys_are_ignored() -> None:
    """A call with a known idempotency key runs again."""
    replace(Workspace, "find_deduplicated", do_nothing)

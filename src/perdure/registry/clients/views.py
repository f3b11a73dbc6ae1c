"""Export and sync: a registry written into a client's file, shown first, and applied only when asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from perdure.registry.clients import masked_diff
from perdure.registry.clients.encoder import Loss
from perdure.registry.clients.ownership import Ownership, Sidecar
from perdure.registry.clients.plan import Plan, Step, Wanted, make_plan, settled
from perdure.registry.clients.table import Client
from perdure.registry.clients.text_edit import Uneditable
from perdure.registry.errors import Unreadable
from perdure.registry.file import backups
from perdure.registry.file.atomic_edit import edit_file, read_file, recover, remove_file

BOM: Final = "\ufeff"
_Made = TypeVar("_Made")


class Report(msgspec.Struct, frozen=True):
    """What was done, or would be: server by server, and field by field what the client has no place for."""

    client: str
    file: str
    applied: bool
    changed: bool
    steps: tuple[Step, ...]
    losses: tuple[Loss, ...]
    secrets: tuple[Loss, ...]
    diff: str
    backup: str = ""

    @property
    def has_conflicts(self) -> bool:
        return any(step.action == "conflict" for step in self.steps)


class Decision(msgspec.Struct, frozen=True):
    """What becomes of a file: the bytes that shall be there (None: no file), and what is on record before and after.

    `outcome` is the caller's own.
    """

    data: bytes | None
    settled: Sidecar
    claimed: Sidecar | None = None
    outcome: Any = None


class Change(msgspec.Struct, frozen=True):
    """A decision that was carried out, or would be."""

    outcome: Any
    changed: bool
    diff: str
    backup: str = ""


class View:
    """One client's file."""

    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = os.path.abspath(path)

    def export(self, want: Wanted, *, sync: bool, overwrite: bool = False, apply: bool = False) -> Report:
        """The registry's entries in the file. Without `apply` nothing is written, not even a record."""

        def decide(data: bytes | None, sidecar: Sidecar) -> Decision:
            text = text_of(data, self.path)
            # A file that is gone takes what was known of it along.
            claims = sidecar.entries if data is not None else {}
            plan = name_uneditable(
                self.path,
                lambda: make_plan(self.client, text, want, claims, sync=sync, overwrite=overwrite),
            )
            return Decision(
                changed_bytes(data, plan.text, self.path) or data,
                msgspec.structs.replace(sidecar, entries=settled(plan)),
                # What is to be removed is ours until it is gone.
                msgspec.structs.replace(sidecar, entries={**sidecar.entries, **plan.claims}),
                plan,
            )

        change = self.change(decide, apply=apply)
        plan: Plan = change.outcome
        lists = (plan.steps, plan.losses, plan.secrets)
        return Report(self.client.name, self.path, apply, change.changed, *lists, change.diff, change.backup)

    def change(self, decide: Callable[[bytes | None, Sidecar], Decision], *, apply: bool) -> Change:
        """Carry out a decision. Claims are recorded first, so that a kill leaves nothing of ours that is not known as
        ours. If the file changes meanwhile, the decision is made again."""
        if not apply:
            data = self.data()
            return self._change(data, decide(data, Ownership(self.client.name, self.path).read()), apply)
        with Ownership(self.client.name, self.path) as ownership:
            start = ownership.sidecar
            recover(self.path)
            before = self.data()
            decision = decide(before, start)
            is_removal = decision.data is None and before is not None
            if is_removal and remove_file(self.path, hashlib.sha256(before or b"").hexdigest()):
                remove_folders(start.undo.made if start.undo is not None else ())
                ownership.settle(decision.settled)
                return self._change(before, decision, apply)

            def plan(data: bytes | None) -> bytes | None:
                nonlocal before, decision
                before, decision = data, decide(data, start)
                if decision.claimed is not None:
                    ownership.claim(decision.claimed)
                return decision.data

            edit_file(self.path, plan)
            ownership.settle(decision.settled)
        return self._change(before, decision, apply)

    def data(self) -> bytes | None:
        content = read_file(os.path.realpath(self.path))
        return None if content is None else content.data

    def _change(self, before: bytes | None, decision: Decision, applied: bool) -> Change:
        changed = decision.data != before
        old, new = text_of(before, self.path), text_of(decision.data, self.path)
        backup = newest_backup(self.path) if applied and changed and before is not None else ""
        return Change(
            decision.outcome, changed, masked_diff.unified(self.client, old, new, self.path), backup
        )


def missing_folders(path: str) -> tuple[str, ...]:
    """The folders that writing this file will make, outermost first."""
    missing = []
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(missing))


def remove_folders(made: Sequence[str]) -> None:
    """Those that we made, while they are empty."""
    for folder in reversed(made):
        try:
            os.rmdir(folder)
        except OSError:
            return


def newest_backup(path: str) -> str:
    folder = backups.folder(os.path.realpath(path))
    return os.path.join(folder, max(os.listdir(folder), default=""))


def name_uneditable(path: str, step: Callable[[], _Made]) -> _Made:
    """A file that cannot be read or changed in place, told with its name."""
    try:
        return step()
    except Uneditable as error:
        raise Unreadable(f"{os.path.basename(path)}: {error}", hint="nothing was changed") from None
    except RecursionError:
        raise Unreadable(f"{os.path.basename(path)}: nested too deeply", hint="nothing was changed") from None


def text_of(data: bytes | None, path: str) -> str:
    """The text without its byte order mark."""
    try:
        return (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{os.path.basename(path)} is not UTF-8") from None


def changed_bytes(data: bytes | None, text: str, path: str) -> bytes | None:
    """The bytes of a changed text, with the mark it had; None where nothing changed."""
    if text == text_of(data, path):
        return None
    return ((BOM if (data or b"").startswith(BOM.encode()) else "") + text).encode()

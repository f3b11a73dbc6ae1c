"""Changes of a client's file, and export and sync. Without `apply` a change is only shown.

A change is a decision about the content of the file. If another program changes the file meanwhile, it is made again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from perdure.registry.clients import masked_diff
from perdure.registry.clients.codec import Loss
from perdure.registry.clients.config_text import Uneditable
from perdure.registry.clients.ownership import Ownership, Sidecar
from perdure.registry.clients.plan import Plan, Step, Wanted, make_plan
from perdure.registry.clients.table import Client
from perdure.registry.errors import Unreadable
from perdure.registry.file import backups
from perdure.registry.file.atomic_edit import edit_file, read_file, recover, remove_file

BOM: Final = "\ufeff"
T = TypeVar("T")


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


class Decision(msgspec.Struct, Generic[T], frozen=True):
    """The bytes that shall be in the file (None: no file), and the sidecar before and after they are written."""

    outcome: T
    data: bytes | None
    settled: Sidecar
    claimed: Sidecar | None = None


class Change(msgspec.Struct, Generic[T], frozen=True):
    """A decision that was carried out, or would be."""

    outcome: T
    changed: bool
    diff: str
    backup: str = ""


class ClientFile:
    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = os.path.abspath(path)

    def export(self, wanted: Wanted, *, sync: bool, overwrite: bool = False, apply: bool = False) -> Report:
        """Write the registry's entries into the file."""

        def decide(data: bytes | None, sidecar: Sidecar) -> Decision[Plan]:
            text = decode(data, self.path)
            # The claims on a file that is gone are gone with it.
            claims = sidecar.entries if data is not None else {}
            plan = self.edit(
                lambda: make_plan(self.client, text, wanted, claims, sync=sync, overwrite=overwrite)
            )
            return Decision(
                plan,
                encode(data, plan.text, self.path),
                msgspec.structs.replace(sidecar, entries=plan.settled_claims),
                # What is to be removed is ours until it is gone.
                msgspec.structs.replace(sidecar, entries={**sidecar.entries, **plan.claims}),
            )

        change = self.change(decide, apply=apply)
        plan = change.outcome
        lists = (plan.steps, plan.losses, plan.secrets)
        return Report(self.client.name, self.path, apply, change.changed, *lists, change.diff, change.backup)

    def change(self, decide: Callable[[bytes | None, Sidecar], Decision[T]], *, apply: bool) -> Change[T]:
        """Carry out a decision. Claims are recorded first, so that after a crash everything of ours is known as ours."""
        if not apply:
            data = self.read()
            return self._change(data, decide(data, Ownership(self.client.name, self.path).read()), apply)
        with Ownership(self.client.name, self.path) as ownership:
            sidecar = ownership.sidecar
            recover(self.path)
            before = self.read()
            decision = decide(before, sidecar)
            is_removal = decision.data is None and before is not None
            if is_removal and remove_file(self.path, hashlib.sha256(before or b"").hexdigest()):
                _remove_folders(sidecar.undo.made if sidecar.undo is not None else ())
                ownership.settle(decision.settled)
                return self._change(before, decision, apply)

            def plan(data: bytes | None) -> bytes | None:
                nonlocal before, decision
                before, decision = data, decide(data, sidecar)
                if decision.claimed is not None:
                    ownership.claim(decision.claimed)
                return decision.data

            edit_file(self.path, plan)
            ownership.settle(decision.settled)
        return self._change(before, decision, apply)

    def read(self) -> bytes | None:
        content = read_file(os.path.realpath(self.path))
        return None if content is None else content.data

    def edit(self, step: Callable[[], T]) -> T:
        """Run a step that reads or edits the text. Raises Unreadable with the name of the file."""
        try:
            return step()
        except (Uneditable, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Unreadable(f"{os.path.basename(self.path)}: {reason}", hint="nothing was changed")

    def _change(self, before: bytes | None, decision: Decision[T], applied: bool) -> Change[T]:
        changed = decision.data != before
        old, new = decode(before, self.path), decode(decision.data, self.path)
        backup = _newest_backup(self.path) if applied and changed and before is not None else ""
        diff = masked_diff.make_diff(self.client, old, new, self.path)
        return Change(decision.outcome, changed, diff, backup)


def missing_folders(path: str) -> tuple[str, ...]:
    """The folders that writing this file will create, outermost first."""
    missing = []
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(missing))


def _remove_folders(created: Sequence[str]) -> None:
    """Remove the folders that we created, while they are empty."""
    for folder in reversed(created):
        try:
            os.rmdir(folder)
        except OSError:
            return


def _newest_backup(path: str) -> str:
    folder = backups.folder(os.path.realpath(path))
    return os.path.join(folder, max(os.listdir(folder), default=""))


def decode(data: bytes | None, path: str) -> str:
    """The text without its byte order mark."""
    try:
        return (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{os.path.basename(path)} is not UTF-8") from None


def encode(data: bytes | None, text: str, path: str) -> bytes | None:
    """The bytes of a text, with the byte order mark that the data has; the data itself if it says the same."""
    if text == decode(data, path):
        return data
    return ((BOM if (data or b"").startswith(BOM.encode()) else "") + text).encode()

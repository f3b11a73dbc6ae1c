"""Export and sync: a registry written into a client's file, shown first, and applied only when asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from perdure.registry.clients import masked_diff
from perdure.registry.clients.encoder import Loss
from perdure.registry.clients.ownership import Ownership, Sidecar
from perdure.registry.clients.plan import Plan, Step, Wanted, make_plan, settled
from perdure.registry.clients.table import Client
from perdure.registry.clients.text_edit import Uneditable
from perdure.registry.errors import Unreadable
from perdure.registry.file import backups
from perdure.registry.file.atomic_edit import edit_file, read_file

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


class View:
    """One client's file."""

    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = os.path.abspath(path)

    def show(self, want: Wanted, *, sync: bool, overwrite: bool = False) -> Report:
        """Nothing is written, not even a record."""
        data = self.data()
        sidecar = Ownership(self.client.name, self.path).read()
        plan = self._plan(data, want, sidecar, sync, overwrite)
        return self._report(data, plan, applied=False)

    def apply(self, want: Wanted, *, sync: bool, overwrite: bool = False) -> Report:
        """The same, written: the claims first, so that a kill leaves no entry of ours that is not known as ours."""
        made: list[tuple[bytes | None, Plan]] = []
        with Ownership(self.client.name, self.path) as ownership:
            start = ownership.sidecar

            def plan(data: bytes | None) -> bytes | None:
                found = self._plan(data, want, start, sync, overwrite)
                made.append((data, found))
                # What is to be removed is ours until it is gone.
                ownership.claim(msgspec.structs.replace(start, entries={**start.entries, **found.claims}))
                return changed_bytes(data, found.text, self.path)

            edit_file(self.path, plan)
            data, last = made[-1]
            ownership.settle(msgspec.structs.replace(start, entries=settled(last)))
        return self._report(data, last, applied=True)

    def data(self) -> bytes | None:
        found = read_file(os.path.realpath(self.path))
        return None if found is None else found.data

    def _plan(self, data: bytes | None, want: Wanted, sidecar: Sidecar, sync: bool, overwrite: bool) -> Plan:
        # A file that is gone takes what was known of it along.
        claims = sidecar.entries if data is not None else {}
        return name_uneditable(
            self.path,
            lambda: make_plan(
                self.client, text_of(data, self.path), want, claims, sync=sync, overwrite=overwrite
            ),
        )

    def _report(self, data: bytes | None, plan: Plan, *, applied: bool) -> Report:
        before = text_of(data, self.path)
        changed = plan.text != before
        backup = newest_backup(self.path) if applied and changed and data is not None else ""
        diff = masked_diff.unified(self.client, before, plan.text, self.path)
        told = (plan.steps, plan.losses, plan.secrets)
        return Report(self.client.name, self.path, applied, changed, *told, diff, backup)


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

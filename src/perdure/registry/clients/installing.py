"""Perdure itself in a client's file: put in, and taken out so that the file is what it was, byte for byte.

Nothing secret is ever written: the entry is a command and where to work.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from perdure.protocol.tool_groups import Profile
from perdure.registry.atomic_edit import edit_file
from perdure.registry.clients import diffs
from perdure.registry.clients.ownership import Claim, Ownership, Sidecar, hash_of, undo_of, undone
from perdure.registry.clients.planning import put_entry
from perdure.registry.clients.references import Unsayable
from perdure.registry.clients.removing import remove_file, settle
from perdure.registry.clients.saying import in_words_of
from perdure.registry.clients.splices import Uneditable
from perdure.registry.clients.table import Client
from perdure.registry.clients.views import (
    View,
    changed_bytes,
    newest_backup,
    text_of,
    understood,
)
from perdure.registry.entry import Entry
from perdure.registry.errors import InvalidEntry
from perdure.registry.templates import Template

NAME: Final = "perdure"
WORKSPACE: Final = "${workspaceFolder}"
Action = Literal["added", "updated", "unchanged", "restored", "removed", "absent", "conflict"]


class Report(msgspec.Struct, frozen=True):
    """What was done, or would be."""

    client: str
    file: str
    applied: bool
    changed: bool
    action: Action
    diff: str
    reason: str = ""
    backup: str = ""


class _Step(msgspec.Struct, frozen=True):
    action: Action
    data: bytes | None
    """The bytes that shall be there; None for no file."""
    sidecar: Sidecar
    reason: str = ""


_Deciding = Callable[[bytes | None, Sidecar], _Step]


def own_fields(
    client: Client,
    words: Sequence[str],
    workspace: str,
    *,
    is_chosen: bool = False,
    profile: Profile | None = None,
) -> dict[str, Any]:
    """The entry that starts Perdure with these words, in the client's own form; in a chosen workspace or where it fits.

    Without a profile it gets the one that suits the client. `full` is the default, so the entry does not name it."""
    chosen = profile or client.profile
    listed = () if chosen == "full" else ("--profile", chosen)
    way = "anywhere" if is_chosen else client.start
    start = {
        "project": (),
        "variable": ("--workspace",),
        "anywhere": ("--workspace", workspace),
    }[way]
    command, *args = [Template.literal(word) for word in (*words, "run", *listed, *start)]
    try:
        fields = in_words_of(client, Entry(name=NAME, command=command, args=tuple(args))).fields
    except Unsayable as error:
        raise InvalidEntry(f"{client.name}: {error}", entry=NAME) from None
    if way == "variable":
        fields[client.shape.args or client.shape.command].append(WORKSPACE)
    return fields


def running_words() -> tuple[str, ...]:
    """How the program that runs now is started: its own script, or the interpreter and the module."""
    script = os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    if os.path.basename(script) == NAME and os.path.isfile(script) and os.access(script, os.X_OK):
        return (script,)
    return (os.path.abspath(sys.executable), "-P", "-m", NAME)


def install(client: Client, path: str, fields: dict[str, Any], *, apply: bool) -> Report:
    return _run(
        View(client, path), lambda data, sidecar: _installed(client, path, fields, data, sidecar), apply
    )


def uninstall(client: Client, path: str, *, apply: bool) -> Report:
    return _run(View(client, path), lambda data, sidecar: _uninstalled(client, path, data, sidecar), apply)


def _run(view: View, step: _Deciding, apply: bool) -> Report:
    if not apply:
        data = view.data()
        return _report(view, data, step(data, Ownership(view.client.name, view.path).read()), applied=False)
    with Ownership(view.client.name, view.path) as ownership:
        start = ownership.sidecar
        settle(view.path)
        before = view.data()
        found = step(before, start)
        if found.data is None and before is not None:
            gone = remove_file(view.path, hashlib.sha256(before).hexdigest())
            if gone:
                _remove_folders(start.undo.made if start.undo is not None else ())
                ownership.settle(found.sidecar)
                return _report(view, before, found, applied=True)
        seen = [(before, found)]

        def plan(data: bytes | None) -> bytes | None:
            made = step(data, start)
            seen.append((data, made))
            if made.action in ("added", "updated"):
                ownership.claim(made.sidecar)
            return made.data

        edit_file(view.path, plan)
        before, found = seen[-1]
        ownership.settle(found.sidecar)
        return _report(view, before, found, applied=True)


def _installed(
    client: Client, path: str, fields: dict[str, Any], data: bytes | None, sidecar: Sidecar
) -> _Step:
    text = text_of(data, path)
    keys = client.shape.keys
    value = understood(path, lambda: client.text.servers(text)).get(NAME)
    ours = hash_of(fields, keys)
    if isinstance(value, dict) and hash_of(value, keys) == ours:
        return _Step("unchanged", data, sidecar)
    if value is not None and not _is_ours(client, value, sidecar):
        reason = (
            "there is an entry of this name that was not written by `perdure install`, or was edited since"
        )
        return _Step("conflict", data, sidecar, reason)
    new = understood(path, lambda: put_entry(client, text, NAME, value, fields))
    after = changed_bytes(data, new, path) or b""
    original = data
    made = _missing_folders(path)
    undo = None
    if value is None:
        undo = undo_of(data, after, made)
    elif sidecar.undo is not None and (back := undone(sidecar.undo, data or b"")) is not None:
        original = back if sidecar.undo.existed else None
        undo = undo_of(original, after, sidecar.undo.made)
    hashes = (ours,) if value is None else (ours, hash_of(value, keys))
    changed = msgspec.structs.replace(sidecar, installed=Claim(hashes, True), undo=undo)
    return _Step("added" if value is None else "updated", after, changed)


def _uninstalled(client: Client, path: str, data: bytes | None, sidecar: Sidecar) -> _Step:
    cleared = msgspec.structs.replace(sidecar, installed=None, undo=None)
    if data is None:
        return _Step("absent", None, cleared)
    if sidecar.undo is not None and (back := undone(sidecar.undo, data)) is not None:
        return _Step("restored", back if sidecar.undo.existed else None, cleared)
    text = text_of(data, path)
    value = understood(path, lambda: client.text.servers(text)).get(NAME)
    if value is None:
        return _Step("absent", data, cleared)
    if not _is_ours(client, value, sidecar):
        return _Step(
            "conflict", data, sidecar, "the entry was not written by `perdure install`, or was edited since"
        )
    try:
        new = client.text.without_entry(text, NAME)
    except Uneditable as error:
        return _Step("conflict", data, sidecar, str(error))
    reason = "the file was edited since, so only the entry was taken out"
    return _Step("removed", changed_bytes(data, new, path), cleared, reason)


def _is_ours(client: Client, value: Any, sidecar: Sidecar) -> bool:
    claim = sidecar.installed
    return claim is not None and isinstance(value, dict) and hash_of(value, client.shape.keys) in claim.hashes


def _missing_folders(path: str) -> tuple[str, ...]:
    """The folders that writing this file will make, outermost first."""
    missing = []
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return tuple(reversed(missing))


def _remove_folders(made: Sequence[str]) -> None:
    """Those that we made, while they are empty."""
    for folder in reversed(made):
        try:
            os.rmdir(folder)
        except OSError:
            return


def _report(view: View, before: bytes | None, step: _Step, *, applied: bool) -> Report:
    changed = step.data != before
    old, new = text_of(before, view.path), text_of(step.data, view.path)
    backup = newest_backup(view.path) if applied and changed and before is not None else ""
    diff = diffs.unified(view.client, old, new, view.path)
    return Report(view.client.name, view.path, applied, changed, step.action, diff, step.reason, backup)

"""Perdure itself in a client's files, as a server, as hooks and as permissions: put in, and taken out so that a file is
what it was, byte for byte.

Nothing secret is ever written: an entry is a command and where to work. A client may keep servers and hooks in one file:
what is undone then is both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from perdure.protocol.tool_groups import Profile
from perdure.registry.clients.encoder import encode_entry
from perdure.registry.clients.hook_text import has_hooks, with_hooks, without_hooks
from perdure.registry.clients.json_file import JsonText
from perdure.registry.clients.ownership import Claim, Sidecar, Undo, hash_of, undo_of, undone
from perdure.registry.clients.permissions import (
    entry_permissions,
    missing_rules,
    settings_rules,
    with_rules,
    without_rules,
)
from perdure.registry.clients.plan import put_entry
from perdure.registry.clients.references import Unrepresentable
from perdure.registry.clients.table import Client
from perdure.registry.clients.text_edit import Uneditable
from perdure.registry.clients.views import (
    Decision,
    View,
    changed_bytes,
    missing_folders,
    name_uneditable,
    text_of,
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


class _Outcome(msgspec.Struct, frozen=True):
    action: Action
    reason: str = ""


def own_fields(
    client: Client,
    words: Sequence[str],
    workspace: str,
    *,
    is_chosen: bool = False,
    profile: Profile | None = None,
    is_shared: bool = False,
) -> dict[str, Any]:
    """The entry that starts Perdure with these words, in the client's own form; in a chosen workspace or where it fits.

    Without a profile it gets the one that suits the client. `full` is the default, so the entry does not name it. A shared
    one attaches to `perdure serve`, which has to be told the workspace."""
    chosen = profile or client.profile
    listed = () if chosen == "full" else ("--profile", chosen)
    way = "anywhere" if is_chosen else client.start
    start = {
        "project": ("--workspace", ".") if is_shared else (),
        "variable": ("--workspace",),
        "anywhere": ("--workspace", workspace),
    }[way]
    mode = ("attach", "--start") if is_shared else ("run",)
    command, *args = [Template.literal(word) for word in (*words, *mode, *listed, *start)]
    try:
        fields = encode_entry(client, Entry(name=NAME, command=command, args=tuple(args))).fields
    except Unrepresentable as error:
        raise InvalidEntry(f"{client.name}: {error}", entry=NAME) from None
    if way == "variable":
        fields[client.shape.args or client.shape.command].append(WORKSPACE)
    return {**fields, **entry_permissions(client.name)}


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


def uninstall(client: Client, path: str, *, apply: bool, holds_hooks: bool = False) -> Report:
    """`holds_hooks` where the client keeps its hooks in the same file: they go along."""
    return _run(
        View(client, path),
        lambda data, sidecar: _uninstalled(client, path, data, sidecar, holds_hooks),
        apply,
    )


def install_settings(
    client: Client, path: str, hooks: Mapping[str, Any] | None, preset: Mapping[str, Any], *, apply: bool
) -> Report:
    """The hooks of each event and the permissions, beside those of others. An older hook of ours is replaced. Without
    hooks, those that are there stay."""
    return _run(
        _settings_view(client, path),
        lambda data, sidecar: _settings_installed(client, path, hooks, preset, data, sidecar),
        apply,
    )


def uninstall_settings(client: Client, path: str, *, apply: bool) -> Report:
    return _run(
        _settings_view(client, path), lambda data, sidecar: _settings_uninstalled(path, data, sidecar), apply
    )


def settings_label(client: Client, *, has_hooks: bool = True) -> str:
    """What we write into the client's settings file, in words; empty for nothing."""
    words = ["hooks"] if has_hooks else []
    return " and ".join([*words, *(["permissions"] if settings_rules(client.name) else [])])


def has_own_hooks(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return has_hooks(text_of(file.read(), path))
    except (OSError, Uneditable):
        return False


def _settings_view(client: Client, path: str) -> View:
    """The file of hooks and permissions is JSON, whatever the one of the servers is."""
    return View(msgspec.structs.replace(client, text=JsonText(("hooks",))), path)


def _run(view: View, decide: Callable[[bytes | None, Sidecar], Decision], apply: bool) -> Report:
    change = view.change(decide, apply=apply)
    outcome: _Outcome = change.outcome
    return Report(
        view.client.name,
        view.path,
        apply,
        change.changed,
        outcome.action,
        change.diff,
        outcome.reason,
        change.backup,
    )


def _decision(action: Action, data: bytes | None, sidecar: Sidecar, reason: str = "") -> Decision:
    """What is added or updated is on record before it is written."""
    claimed = sidecar if action in ("added", "updated") else None
    return Decision(data, sidecar, claimed, _Outcome(action, reason))


def _installed(
    client: Client, path: str, fields: dict[str, Any], data: bytes | None, sidecar: Sidecar
) -> Decision:
    text = text_of(data, path)
    keys = client.shape.keys
    value = name_uneditable(path, lambda: client.text.servers(text)).get(NAME)
    ours = hash_of(fields, keys)
    if isinstance(value, dict) and hash_of(value, keys) == ours:
        return _decision("unchanged", data, sidecar)
    if value is not None and not _is_ours(client, value, sidecar):
        reason = (
            "there is an entry of this name that was not written by `perdure install`, or was edited since"
        )
        return _decision("conflict", data, sidecar, reason)
    if value is not None:  # what is not ours to write is written once, and then left to the user
        fields = {key: field for key, field in fields.items() if key in keys}
    new = name_uneditable(path, lambda: put_entry(client, text, NAME, value, fields))
    after = changed_bytes(data, new, path) or b""
    is_first = value is None and not sidecar.has_hooks
    undo = _new_undo(path, data, after, sidecar, is_first=is_first)
    hashes = (ours,) if value is None else (ours, hash_of(value, keys))
    changed = msgspec.structs.replace(sidecar, installed=Claim(hashes, True), undo=undo)
    return _decision("added" if value is None else "updated", after, changed)


def _settings_installed(
    client: Client,
    path: str,
    hooks: Mapping[str, Any] | None,
    preset: Mapping[str, Any],
    data: bytes | None,
    sidecar: Sidecar,
) -> Decision:
    text = text_of(data, path)
    rules = name_uneditable(path, lambda: missing_rules(text, settings_rules(client.name)))

    def edit() -> str:
        return with_rules(text if hooks is None else with_hooks(text, hooks, preset), rules)

    after = changed_bytes(data, name_uneditable(path, edit), path)
    if after is None:
        return _decision("unchanged", data, sidecar)
    is_update = bool(sidecar.permissions) or name_uneditable(path, lambda: has_hooks(text))
    is_first = not is_update and sidecar.installed is None
    undo = _new_undo(path, data, after, sidecar, is_first=is_first)
    changed = msgspec.structs.replace(
        sidecar,
        has_hooks=sidecar.has_hooks or hooks is not None,
        permissions=tuple(dict.fromkeys((*sidecar.permissions, *rules))),
        undo=undo,
    )
    return _decision("updated" if is_update else "added", after, changed)


def _new_undo(
    path: str, data: bytes | None, after: bytes, sidecar: Sidecar, *, is_first: bool
) -> Undo | None:
    """How the file gets back to what it was before anything of ours was in it; None where that is not known."""
    if sidecar.undo is not None and (back := undone(sidecar.undo, data or b"")) is not None:
        return undo_of(back if sidecar.undo.existed else None, after, sidecar.undo.made)
    return undo_of(data, after, missing_folders(path)) if is_first else None


def _uninstalled(
    client: Client, path: str, data: bytes | None, sidecar: Sidecar, holds_hooks: bool
) -> Decision:
    cleared = msgspec.structs.replace(sidecar, installed=None, undo=None, has_hooks=False, permissions=())
    if data is None:
        return _decision("absent", None, cleared)
    if sidecar.undo is not None and (back := undone(sidecar.undo, data)) is not None:
        return _decision("restored", back if sidecar.undo.existed else None, cleared)
    text = text_of(data, path)
    value = name_uneditable(path, lambda: client.text.servers(text)).get(NAME)
    if value is not None and not _is_ours(client, value, sidecar):
        return _decision(
            "conflict", data, sidecar, "the entry was not written by `perdure install`, or was edited since"
        )
    try:
        new = text if value is None else client.text.without_entries(text, [NAME])
        new = without_hooks(new) if holds_hooks else new
    except Uneditable as error:
        return _decision("conflict", data, sidecar, str(error))
    return _removed(path, data, new, cleared)


def _settings_uninstalled(path: str, data: bytes | None, sidecar: Sidecar) -> Decision:
    cleared = msgspec.structs.replace(sidecar, undo=None, has_hooks=False, permissions=())
    if data is None:
        return _decision("absent", None, cleared)
    if sidecar.undo is not None and (back := undone(sidecar.undo, data)) is not None:
        return _decision("restored", back if sidecar.undo.existed else None, cleared)
    text = text_of(data, path)
    new = name_uneditable(path, lambda: without_rules(without_hooks(text), sidecar.permissions))
    return _removed(path, data, new, cleared)


def _removed(path: str, data: bytes, new: str, cleared: Sidecar) -> Decision:
    after = changed_bytes(data, new, path)
    if after is None:
        return _decision("absent", data, cleared)
    return _decision(
        "removed", after, cleared, "the file was edited since, so only what is ours was taken out"
    )


def _is_ours(client: Client, value: Any, sidecar: Sidecar) -> bool:
    claim = sidecar.installed
    return claim is not None and isinstance(value, dict) and hash_of(value, client.shape.keys) in claim.hashes

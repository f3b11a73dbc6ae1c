"""Perdure's own entry, hooks and permissions in a client's files: added, and removed so that a file is what it was, byte for
byte.

Nothing secret is ever written: an entry is a command and a workspace. If a client keeps servers and hooks in one file, both
are undone together.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from perdure.protocol.tool_groups import Profile
from perdure.registry.clients.client_file import ClientFile, Decision, decode, encode, missing_folders
from perdure.registry.clients.codec import encode_entry
from perdure.registry.clients.config_text import ConfigText, Uneditable
from perdure.registry.clients.hook_text import has_hooks, with_hooks, without_hooks
from perdure.registry.clients.json_syntax import JsonSyntax
from perdure.registry.clients.ownership import Claim, Sidecar, Undo, hash_of, restore_undo, undo_of
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
from perdure.registry.entry import Entry
from perdure.registry.errors import InvalidEntry
from perdure.registry.templates import Template

NAME: Final = "perdure"
WORKSPACE: Final = "${workspaceFolder}"
Action = Literal["added", "updated", "unchanged", "restored", "removed", "absent", "conflict"]
_Outcome = tuple[Action, str]


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


def own_fields(
    client: Client,
    words: Sequence[str],
    workspace: str,
    *,
    is_chosen: bool = False,
    profile: Profile | None = None,
    is_shared: bool = False,
    state: str | None = None,
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
    kept = () if state is None else ("--state", state)
    command, *args = [Template.literal(word) for word in (*words, *mode, *listed, *kept, *start)]
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
    file = ClientFile(client, path)
    return _run(file, lambda data, sidecar: _install(file, fields, data, sidecar), apply)


def uninstall(client: Client, path: str, *, apply: bool, holds_hooks: bool = False) -> Report:
    """`holds_hooks` if the client keeps its hooks in the same file: they are removed, too."""
    file = ClientFile(client, path)
    return _run(file, lambda data, sidecar: _uninstall(file, data, sidecar, holds_hooks), apply)


def install_settings(
    client: Client, path: str, hooks: Mapping[str, Any] | None, preset: Mapping[str, Any], *, apply: bool
) -> Report:
    """The hooks of each event and the permissions, beside those of other programs. An older hook of ours is replaced.
    Without hooks, those that are there stay."""
    file = _settings_file(client, path)
    return _run(file, lambda data, sidecar: _install_settings(file, hooks, preset, data, sidecar), apply)


def uninstall_settings(client: Client, path: str, *, apply: bool) -> Report:
    file = _settings_file(client, path)
    return _run(file, lambda data, sidecar: _uninstall_settings(file, data, sidecar), apply)


def settings_label(client: Client, *, has_hooks: bool = True) -> str:
    """What we write into the client's settings file, in words; empty for nothing."""
    words = ["hooks"] if has_hooks else []
    return " and ".join([*words, *(["permissions"] if settings_rules(client.name) else [])])


def has_own_hooks(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return has_hooks(decode(file.read(), path))
    except (OSError, Uneditable):
        return False


def _settings_file(client: Client, path: str) -> ClientFile:
    """The file of hooks and permissions is JSON, whatever the one of the servers is."""
    return ClientFile(msgspec.structs.replace(client, text=ConfigText(JsonSyntax(), "hooks")), path)


def _run(
    file: ClientFile, decide: Callable[[bytes | None, Sidecar], Decision[_Outcome]], apply: bool
) -> Report:
    change = file.change(decide, apply=apply)
    action, reason = change.outcome
    return Report(
        file.client.name, file.path, apply, change.changed, action, change.diff, reason, change.backup
    )


def _decision(action: Action, data: bytes | None, sidecar: Sidecar, reason: str = "") -> Decision[_Outcome]:
    """What is added or updated is recorded before it is written."""
    claimed = sidecar if action in ("added", "updated") else None
    return Decision((action, reason), data, sidecar, claimed)


def _install(
    file: ClientFile, fields: dict[str, Any], data: bytes | None, sidecar: Sidecar
) -> Decision[_Outcome]:
    text, keys = decode(data, file.path), file.client.shape.keys
    value = file.edit(lambda: file.client.text.servers(text)).get(NAME)
    if value is not None and hash_of(value, keys) == hash_of(fields, keys):
        return _decision("unchanged", data, sidecar)
    if value is not None and not _is_ours(file, value, sidecar):
        reason = (
            "there is an entry of this name that was not written by `perdure install`, or was edited since"
        )
        return _decision("conflict", data, sidecar, reason)
    if value is not None:  # keys of the client's own are written once, and then left to the user
        fields = {key: field for key, field in fields.items() if key in keys}
    new = file.edit(lambda: put_entry(file.client, text, NAME, value, fields))
    after = encode(data, new, file.path) or b""
    undo = _undo(file, data, after, sidecar, is_first=value is None and not sidecar.has_hooks)
    hashes = tuple(hash_of(entry, keys) for entry in (fields, value) if entry is not None)
    changed = msgspec.structs.replace(sidecar, installed=Claim(hashes, True), undo=undo)
    return _decision("added" if value is None else "updated", after, changed)


def _install_settings(
    file: ClientFile,
    hooks: Mapping[str, Any] | None,
    preset: Mapping[str, Any],
    data: bytes | None,
    sidecar: Sidecar,
) -> Decision[_Outcome]:
    text = decode(data, file.path)
    rules = file.edit(lambda: missing_rules(text, settings_rules(file.client.name)))

    def edit() -> str:
        return with_rules(text if hooks is None else with_hooks(text, hooks, preset), rules)

    after = encode(data, file.edit(edit), file.path)
    if after is None or after == data:
        return _decision("unchanged", data, sidecar)
    is_update = bool(sidecar.permissions) or file.edit(lambda: has_hooks(text))
    changed = msgspec.structs.replace(
        sidecar,
        has_hooks=sidecar.has_hooks or hooks is not None,
        permissions=tuple(dict.fromkeys((*sidecar.permissions, *rules))),
        undo=_undo(file, data, after, sidecar, is_first=not is_update and sidecar.installed is None),
    )
    return _decision("updated" if is_update else "added", after, changed)


def _undo(
    file: ClientFile, data: bytes | None, after: bytes, sidecar: Sidecar, *, is_first: bool
) -> Undo | None:
    """How the file gets back to its content before anything of ours was in it; None if that is not known."""
    if sidecar.undo is not None and (before := restore_undo(sidecar.undo, data or b"")) is not None:
        return undo_of(before if sidecar.undo.existed else None, after, sidecar.undo.made)
    return undo_of(data, after, missing_folders(file.path)) if is_first else None


def _uninstall(
    file: ClientFile, data: bytes | None, sidecar: Sidecar, holds_hooks: bool
) -> Decision[_Outcome]:
    cleared = msgspec.structs.replace(sidecar, installed=None, undo=None, has_hooks=False, permissions=())
    if (restored := _restore(data, sidecar, cleared)) is not None:
        return restored
    text, client = decode(data, file.path), file.client
    value = file.edit(lambda: client.text.servers(text)).get(NAME)
    if value is not None and not _is_ours(file, value, sidecar):
        reason = "the entry was not written by `perdure install`, or was edited since"
        return _decision("conflict", data, sidecar, reason)
    try:
        new = text if value is None else client.text.without_entries(text, [NAME])
        new = without_hooks(new) if holds_hooks else new
    except Uneditable as error:
        return _decision("conflict", data, sidecar, str(error))
    return _remove(file, data, new, cleared)


def _uninstall_settings(file: ClientFile, data: bytes | None, sidecar: Sidecar) -> Decision[_Outcome]:
    cleared = msgspec.structs.replace(sidecar, undo=None, has_hooks=False, permissions=())
    if (restored := _restore(data, sidecar, cleared)) is not None:
        return restored
    text = decode(data, file.path)
    new = file.edit(lambda: without_rules(without_hooks(text), sidecar.permissions))
    return _remove(file, data, new, cleared)


def _restore(data: bytes | None, sidecar: Sidecar, cleared: Sidecar) -> Decision[_Outcome] | None:
    """The content from before, if the file is still what we left; None if it was edited since."""
    if data is None:
        return _decision("absent", None, cleared)
    if sidecar.undo is not None and (before := restore_undo(sidecar.undo, data)) is not None:
        return _decision("restored", before if sidecar.undo.existed else None, cleared)
    return None


def _remove(file: ClientFile, data: bytes | None, new: str, cleared: Sidecar) -> Decision[_Outcome]:
    after = encode(data, new, file.path)
    if after == data:
        return _decision("absent", data, cleared)
    return _decision("removed", after, cleared, "the file was edited since, so only what is ours was removed")


def _is_ours(file: ClientFile, value: Any, sidecar: Sidecar) -> bool:
    claim = sidecar.installed
    return claim is not None and hash_of(value, file.client.shape.keys) in claim.hashes

"""Import: the servers of a client's file taken into a registry, one by one; a problem of one does not affect the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from perdure.registry.allowed_commands import is_allowed
from perdure.registry.backend import Backend, BulkBackend
from perdure.registry.clients.client_file import ClientFile, decode
from perdure.registry.clients.codec import DecodedEntry, Loss, Undecodable, decode_entry
from perdure.registry.clients.install import NAME
from perdure.registry.clients.plan import Step
from perdure.registry.clients.references import meaning
from perdure.registry.clients.table import Client
from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled, NotInRegistry, RegistryError, Unreadable
from perdure.registry.file.backend import FileBackend
from perdure.registry.portable import IN_USE, MovedSecret, move_secrets
from perdure.registry.templates import Template

# The registry's entry of a name, why it cannot be used, or None if the name is free.
_Present = Entry | RegistryError | None


class Report(msgspec.Struct, frozen=True):
    """`secrets` stay in the client's file, each with the variable that stands for it; `kept` were copied."""

    client: str
    file: str
    applied: bool
    steps: tuple[Step, ...]
    notes: tuple[Loss, ...]
    secrets: tuple[MovedSecret, ...]
    kept: tuple[MovedSecret, ...] = ()

    @property
    def has_conflicts(self) -> bool:
        return any(step.action == "conflict" for step in self.steps)


def import_from(
    client: Client, path: str, backend: Backend, *, keep_secrets: bool = False, apply: bool = True
) -> Report:
    """Raises Unreadable if there is no such file, or it cannot be read."""
    file = ClientFile(client, path)
    data = file.read()
    if data is None:
        raise Unreadable(
            f"{client.title} has no file {os.path.basename(path)} here", hint="--file names another"
        )
    text = decode(data, path)
    servers = file.edit(lambda: client.text.servers(text))
    run = _Import(client, backend)
    for name, value in servers.items():
        run.decode(name, value)
    moved = run.install(keep_secrets=keep_secrets, apply=apply)
    secrets, kept = ((), moved) if keep_secrets else (moved, ())
    return Report(client.name, file.path, apply, tuple(run.steps), tuple(run.notes), secrets, kept)


class _Import:
    def __init__(self, client: Client, backend: Backend) -> None:
        self.client = client
        self.backend = backend
        self.steps: list[Step] = []
        self.notes: list[Loss] = []
        self.decoded: dict[str, DecodedEntry] = {}

    def decode(self, name: str, value: Any) -> None:
        try:
            if _is_perdure(value):
                raise Undecodable("this is Perdure itself")
            decoded = decode_entry(self.client, name, value)
            if decoded.entry.name in self.decoded:
                raise Undecodable(f"another server of the file is {decoded.entry.name} here already")
        except Undecodable as error:
            self.steps.append(Step(name, "skipped", str(error)))
            return
        self.decoded[decoded.entry.name] = decoded
        self.notes += decoded.notes

    def install(self, *, keep_secrets: bool, apply: bool) -> tuple[MovedSecret, ...]:
        """After all were decoded: a variable that one refers to must not stand for the secret of another."""
        taken = {
            variable: IN_USE for decoded in self.decoded.values() for variable in decoded.entry.variables()
        }
        entries: dict[str, Entry] = {}
        moved: list[MovedSecret] = []
        for decoded in self.decoded.values():
            entry, secrets = move_secrets(decoded.entry, taken)
            entries[decoded.name] = decoded.entry if keep_secrets else entry
            moved += secrets
            self._note_if_not_allowed(decoded)
        present = {entry.name: self._load(entry.name) for entry in entries.values()}
        if apply:
            present |= self._install([entry for entry in entries.values() if present[entry.name] is None])
        self.steps += [_step(name, entry, present[entry.name]) for name, entry in entries.items()]
        return tuple(moved)

    def _note_if_not_allowed(self, decoded: DecodedEntry) -> None:
        command = decoded.entry.command
        if not isinstance(self.backend, FileBackend) or command is None or not command.is_literal:
            return
        if not is_allowed(command.resolve({}), self.backend.read().allowed):
            reason = "it is not started until it is in the registry's list of allowed commands"
            self.notes.append(Loss(decoded.name, "command", reason))

    def _install(self, entries: list[Entry]) -> dict[str, _Present]:
        """Those that could not be installed: the entry that has the name, or the reason."""
        if isinstance(self.backend, BulkBackend) and entries:
            try:
                return {name: self._load(name) for name in self.backend.install_all(entries)}
            except RegistryError as error:
                return {entry.name: _of_entry(error) for entry in entries}
        failed: dict[str, _Present] = {}
        for entry in entries:
            try:
                self.backend.install(entry)
            except AlreadyInstalled:
                failed[entry.name] = self._load(entry.name)
            except RegistryError as error:
                failed[entry.name] = _of_entry(error)
        return failed

    def _load(self, name: str) -> _Present:
        try:
            return self.backend.load(name)
        except NotInRegistry:
            return None
        except RegistryError as error:
            return _of_entry(error)


def _step(name: str, entry: Entry, present: _Present) -> Step:
    other = entry.name if entry.name != name else ""
    if isinstance(present, RegistryError):
        return Step(name, "skipped", present.message, other)
    if present is None:
        return Step(name, "imported", "", other)
    if _content(present) == _content(entry):
        return Step(name, "unchanged", "", other)
    return Step(name, "conflict", "the registry has another server of this name; it stays", other)


def _of_entry(error: RegistryError) -> RegistryError:
    if error.exit_code > 3:
        raise error  # of the registry, not of this entry
    return error


def _is_perdure(value: Any) -> bool:
    """An entry that starts Perdure would mount it behind itself."""
    if not isinstance(value, dict):
        return False
    command, args = value.get("command") or value.get("cmd"), value.get("args")
    words = command if isinstance(command, list) else [command, *(args if isinstance(args, list) else [])]
    if not words or not all(isinstance(word, str) for word in words):
        return False
    starts = os.path.basename(words[0]) == NAME or words[1:4] == ["-P", "-m", NAME]
    return starts and "run" in words[:5]


def _content(entry: Entry) -> Mapping[str, Any]:
    """An entry for comparison: texts by their meaning, and without its provenance."""

    def plain(value: Any) -> Any:
        match value:
            case Template():
                return meaning(value)
            case dict():
                return {key: plain(member) for key, member in value.items()}
            case tuple():
                return [plain(item) for item in value]
        return value

    return {
        key: plain(value) for key, value in structs.asdict(structs.replace(entry, provenance=None)).items()
    }

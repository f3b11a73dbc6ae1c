"""Import: the servers of a client's file taken into a registry, one by one; a problem of one hides no other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import structs

from perdure.registry.allowed_commands import is_allowed
from perdure.registry.backend import Backend, BulkBackend
from perdure.registry.clients.decoder import DecodedEntry, Problem, decode_entry
from perdure.registry.clients.encoder import Loss
from perdure.registry.clients.install import NAME
from perdure.registry.clients.references import meaning
from perdure.registry.clients.table import Client
from perdure.registry.clients.views import View, name_uneditable, text_of
from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled, NotInRegistry, RegistryError, Unreadable
from perdure.registry.file.backend import FileBackend
from perdure.registry.portable import IN_USE, MovedSecret, move_secrets
from perdure.registry.templates import Template

Action = Literal["imported", "unchanged", "conflict", "skipped"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one server. `entry` is its name here, where that is another one."""

    name: str
    action: Action
    reason: str = ""
    entry: str = ""


class Report(msgspec.Struct, frozen=True):
    """`secrets` stayed in the client's file, with the variable that stands for each; `kept` were taken along."""

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
    """Raises Unreadable where there is no such file, or it cannot be read."""
    view = View(client, path)
    data = view.data()
    if data is None:
        raise Unreadable(
            f"{client.title} has no file {os.path.basename(path)} here", hint="--file names another"
        )
    text = text_of(data, path)
    servers = name_uneditable(path, lambda: client.text.servers(text))
    taking = _Import(client, backend, keep_secrets, apply)
    for name, value in servers.items():
        taking.decode(name, value)
    taking.take()
    return Report(
        client.name,
        view.path,
        apply,
        tuple(taking.steps),
        tuple(taking.notes),
        tuple(taking.moved),
        tuple(taking.kept),
    )


class _Import:
    def __init__(self, client: Client, backend: Backend, keep_secrets: bool, apply: bool) -> None:
        self.client = client
        self.backend = backend
        self.keep_secrets = keep_secrets
        self.apply = apply
        self.steps: list[Step] = []
        self.notes: list[Loss] = []
        self.moved: list[MovedSecret] = []
        self.kept: list[MovedSecret] = []
        self.decoded: dict[str, DecodedEntry] = {}

    def decode(self, name: str, value: Any) -> None:
        if _is_perdure(value):
            self.steps.append(Step(name, "skipped", "this is Perdure itself"))
            return
        try:
            taken = decode_entry(self.client, name, value)
        except Problem as problem:
            self.steps.append(Step(name, "skipped", str(problem)))
            return
        if taken.entry.name in self.decoded:
            reason = f"another server of the file is {taken.entry.name} here already"
            self.steps.append(Step(name, "skipped", reason))
            return
        self.decoded[taken.entry.name] = taken
        self.notes += taken.notes

    def take(self) -> None:
        """All were heard before: a variable that one refers to must not stand for another one's secret."""
        variables = {name: IN_USE for one in self.decoded.values() for name in one.entry.variables()}
        chosen: list[tuple[str, Entry]] = []
        for taken in self.decoded.values():
            entry, moved = move_secrets(taken.entry, variables)
            if self.keep_secrets:
                self.kept += moved
            else:
                self.moved += moved
            chosen.append((taken.name, taken.entry if self.keep_secrets else entry))
            self._note_if_not_allowed(taken)
        found = {entry.name: self._looked_up(entry.name) for _, entry in chosen}
        if self.apply:
            found |= self._installed([entry for _, entry in chosen if found[entry.name] is None])
        for name, entry in chosen:
            self._tell(name, entry, found[entry.name])

    def _note_if_not_allowed(self, taken: DecodedEntry) -> None:
        command = taken.entry.command
        if not isinstance(self.backend, FileBackend) or command is None or not command.is_literal:
            return
        if not is_allowed(command.resolve({}), self.backend.read().allowed):
            reason = "it is not started before it is in the registry's list of allowed commands"
            self.notes.append(Loss(taken.name, "command", reason))

    def _installed(self, entries: list[Entry]) -> dict[str, Entry | RegistryError | None]:
        """Those that could not be installed: with the one that is there, or with the reason."""
        if isinstance(self.backend, BulkBackend) and entries:
            try:
                return {name: self._looked_up(name) for name in self.backend.install_all(entries)}
            except RegistryError as error:
                return {entry.name: _of_entry(error) for entry in entries}
        found: dict[str, Entry | RegistryError | None] = {}
        for entry in entries:
            try:
                self.backend.install(entry)
            except AlreadyInstalled:
                found[entry.name] = self._looked_up(entry.name)
            except RegistryError as error:
                found[entry.name] = _of_entry(error)
        return found

    def _tell(self, name: str, entry: Entry, there: Entry | RegistryError | None) -> None:
        other = entry.name if entry.name != name else ""
        if isinstance(there, RegistryError):
            self.steps.append(Step(name, "skipped", there.message, other))
        elif there is None:
            self.steps.append(Step(name, "imported", "", other))
        elif _same(there, entry):
            self.steps.append(Step(name, "unchanged", "", other))
        else:
            reason = "the registry has another server of this name; it stays"
            self.steps.append(Step(name, "conflict", reason, other))

    def _looked_up(self, name: str) -> Entry | RegistryError | None:
        """The entry of this name, why there is none to be had, or None where the name is free."""
        try:
            return self.backend.load(name)
        except NotInRegistry:
            return None
        except RegistryError as error:
            return _of_entry(error)


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


def _same(one: Entry, other: Entry) -> bool:
    return _plain(one) == _plain(other)


def _plain(entry: Entry) -> Mapping[str, Any]:
    """Everything of an entry, with texts as what they say; where it came from does not matter."""

    def plain(value: Any) -> Any:
        match value:
            case Template():
                return meaning(value)
            case dict():
                return {key: plain(one) for key, one in value.items()}
            case tuple():
                return [plain(one) for one in value]
        return value

    fields = structs.asdict(structs.replace(entry, provenance=None))
    return {key: plain(value) for key, value in fields.items()}

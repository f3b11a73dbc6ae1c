"""An entry in a client's words, and field by field what the client has no words for."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.registry.clients.references import Unrepresentable, format_template
from perdure.registry.clients.table import Client, Shape, Timing
from perdure.registry.entry import Entry
from perdure.registry.templates import Literal, Reference, Template

NO_KEY: Final = "the client has no place for it"


class Loss(msgspec.Struct, frozen=True):
    """A field that did not get across, and why."""

    name: str
    field: str
    reason: str


class EncodedEntry(msgspec.Struct, frozen=True):
    fields: dict[str, Any]
    losses: tuple[Loss, ...] = ()


def encode_entry(client: Client, entry: Entry) -> EncodedEntry:
    """Raises Unrepresentable where an entry without the missing part would be another server, or none."""
    return _Encoder(client, entry).all()


class _Encoder:
    def __init__(self, client: Client, entry: Entry) -> None:
        self.shape: Shape = client.shape
        self.entry = entry
        self.fields: dict[str, Any] = {}
        self.losses: list[Loss] = []

    def all(self) -> EncodedEntry:
        self._way()
        self._switch()
        self._time("timeout startup", self.entry.timeouts.startup, self.shape.startup)
        self._time("timeout call", self.entry.timeouts.call, self.shape.call)
        self._list("tools allow", self.entry.tools.allow, self.shape.allow)
        self._list("tools deny", self.entry.tools.deny, self.shape.deny)
        self._rest()
        return EncodedEntry(self.fields, tuple(self.losses))

    def _lose(self, field: str, reason: str = NO_KEY) -> None:
        self.losses.append(Loss(self.entry.name, field, reason))

    def _way(self) -> None:
        self.fields |= {key: value for key, value in self.shape.always.items() if key != self.shape.enabled}
        if self.shape.name:
            self.fields[self.shape.name] = self.entry.name
        if self.entry.transport in self.shape.types:
            self.fields["type"] = self.shape.types[self.entry.transport]
        if self.entry.transport == "stdio":
            self._local()
        else:
            self._remote()

    def _local(self) -> None:
        shape, entry = self.shape, self.entry
        assert entry.command is not None
        command = self._must("command", entry.command)
        args = [self._must(f"args {number}", arg) for number, arg in enumerate(entry.args, 1)]
        if shape.args is None:
            self.fields[shape.command] = [command, *args]
        else:
            self.fields |= {shape.command: command, shape.args: args}
        if entry.cwd is not None:
            if shape.cwd is None:
                self._lose("cwd")
            else:
                self.fields[shape.cwd] = self._must("cwd", entry.cwd)
        self._env()

    def _env(self) -> None:
        shape = self.shape
        values: dict[str, str] = {}
        passed_on = []
        for name, value in self.entry.env.items():
            if shape.env_names and _variable_alone(value) == name:
                passed_on.append(name)
            elif (text := self._may(f"env {name}", value)) is not None:
                values[name] = text
        if values:
            self.fields[shape.env] = values
        if passed_on and shape.env_names:
            self.fields[shape.env_names] = passed_on

    def _remote(self) -> None:
        shape, entry = self.shape, self.entry
        assert entry.url is not None
        key = shape.urls.get(entry.transport)
        if key is None:
            raise Unrepresentable(f"transport: the client has no {entry.transport}")
        self.fields[key] = self._must("url", entry.url)
        if entry.transport == "sse" and shape.types.get("sse", "") in (
            "",
            shape.types.get("streamable-http"),
        ):
            self._lose("transport", "the client has no word for sse and finds out by itself")
        for name, value in self.entry.headers.items():
            self._header(name, value)
        if entry.env:
            self._lose("env", "a remote server has no environment")

    def _header(self, name: str, value: Template) -> None:
        shape = self.shape
        variable = _variable_alone(value)
        if shape.bearer_name and name.lower() == "authorization" and (bearer := _bearer(value)):
            self.fields[shape.bearer_name] = bearer
        elif shape.header_names and variable:
            self.fields.setdefault(shape.header_names, {})[name] = variable
        elif (text := self._may(f"headers {name}", value)) is not None:
            held: dict[str, Any] = self.fields
            for key in shape.headers:
                held = held.setdefault(key, {})
            held[name] = text

    def _switch(self) -> None:
        shape, enabled = self.shape, self.entry.enabled
        if shape.enabled is not None:
            if not enabled or shape.enabled in shape.always:
                self.fields[shape.enabled] = enabled
        elif shape.disabled is not None:
            if not enabled:
                self.fields[shape.disabled] = True
        elif not enabled:
            raise Unrepresentable("enabled: the client has no switch for it, and would start it")

    def _time(self, field: str, seconds: float | None, timing: Timing | None) -> None:
        if seconds is None:
            return
        if timing is None:
            self._lose(field)
            return
        units = seconds * timing.per_second
        self.fields[timing.key] = int(units) if float(units).is_integer() else units
        if timing.per_second > 1 and not float(units).is_integer():
            self.fields[timing.key] = max(1, round(units))

    def _list(self, field: str, names: tuple[str, ...], key: str | None) -> None:
        if names and key is None:
            self._lose(field)
        elif names and key is not None:
            self.fields[key] = list(names)

    def _rest(self) -> None:
        shape, entry = self.shape, self.entry
        if entry.description:
            if shape.description is None:
                self._lose("description")
            else:
                self.fields[shape.description] = entry.description
        elif shape.description and shape.name:
            self.fields[shape.description] = ""  # a file without it is refused by that client
        if entry.required:
            if shape.required is None:
                self._lose("required")
            else:
                self.fields[shape.required] = True
        for field, is_set in _only_ours(entry).items():
            if is_set:
                self._lose(field)

    def _must(self, field: str, template: Template) -> str:
        try:
            return format_template(template, self.shape.references)
        except Unrepresentable as error:
            raise Unrepresentable(f"{field}: {error}") from None

    def _may(self, field: str, template: Template) -> str | None:
        try:
            return format_template(template, self.shape.references)
        except Unrepresentable as error:
            self._lose(field, str(error))
            return None


def _only_ours(entry: Entry) -> dict[str, bool]:
    """What no client but Perdure knows."""
    fields = ("title", "oauth", "start", "restart", "replay", "pin", "provenance", "extra")
    found = {field: getattr(entry, field) != getattr(_PLAIN, field) for field in fields}
    return {**found, "timeout idle": entry.timeouts.idle is not None}


_PLAIN: Final = Entry(name="plain", command=Template("x"))


def _variable_alone(value: Template) -> str | None:
    match value.parts:
        case (Reference(variable=name, default=None),):
            return name
    return None


def _bearer(value: Template) -> str | None:
    match value.parts:
        case (Literal(text="Bearer "), Reference(variable=name, default=None)):
            return name
    return None

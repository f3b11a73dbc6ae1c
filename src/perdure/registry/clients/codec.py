"""An entry in a client's format and back: every spelling that clients use is read, and each loss is reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec

from perdure.registry.clients.references import Unrepresentable, format_template, parse_template
from perdure.registry.clients.table import Client, Shape, Timing
from perdure.registry.entry import MAX_NAME, Entry, Timeouts, Tools, Transport, check_name
from perdure.registry.errors import InvalidName, RegistryError
from perdure.registry.templates import Literal, Reference, Template

NO_KEY: Final = "the client has no place for it"
# What a client may have one key for: the name of the loss, the key's attribute in `Shape`, the field of an entry.
_FIELDS: Final = (
    ("timeout startup", "startup", "timeouts.startup"),
    ("timeout call", "call", "timeouts.call"),
    ("tools allow", "allow", "tools.allow"),
    ("tools deny", "deny", "tools.deny"),
    ("description", "description", "description"),
    ("required", "required", "required"),
)
_ONLY_OURS: Final = (
    "title",
    "oauth",
    "start",
    "restart",
    "replay",
    "pin",
    "provenance",
    "extra",
    "timeouts.idle",
)
_DEFAULTS: Final = Entry(name="x", command=Template("x"))
TRANSPORT_WORDS: Final[dict[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "streamable-http",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "streamableHttp": "streamable-http",
    "remote": "streamable-http",
    "sse": "sse",
}
URL_KEYS: Final = ("url", "serverUrl", "httpUrl", "uri")
# Keys that are read though this client's own files have others for the same thing.
_READ: Final = frozenset({*URL_KEYS, "type", "enabled", "disabled", "source", "name"})


class Loss(msgspec.Struct, frozen=True):
    """A field that the other format has no place for, or that changed its meaning."""

    name: str
    field: str
    reason: str


class EncodedEntry(msgspec.Struct, frozen=True):
    fields: dict[str, Any]
    losses: tuple[Loss, ...] = ()


class DecodedEntry(msgspec.Struct, frozen=True):
    """`name` is the client's; the entry's own name may differ."""

    name: str
    entry: Entry
    notes: tuple[Loss, ...] = ()


class Undecodable(ValueError):
    """Why a client's server cannot become an entry. Holds no value of it."""


def encode_entry(client: Client, entry: Entry) -> EncodedEntry:
    """Raises Unrepresentable if an entry without the missing part would be another server, or none."""
    return _Encoder(client.shape, entry).encode()


def decode_entry(client: Client, name: str, value: Any) -> DecodedEntry:
    """Raises Undecodable."""
    if not isinstance(value, dict):
        raise Undecodable("not a table of settings")
    return _Decoder(client.shape, name, value).decode()


class _Encoder:
    def __init__(self, shape: Shape, entry: Entry) -> None:
        self.shape = shape
        self.entry = entry
        self.fields: dict[str, Any] = dict(shape.always)
        self.losses: list[Loss] = []

    def encode(self) -> EncodedEntry:
        shape, entry = self.shape, self.entry
        if shape.name:
            self.fields[shape.name] = entry.name
        if entry.transport in shape.types:
            self.fields["type"] = shape.types[entry.transport]
        if entry.transport == "stdio":
            self._local()
        else:
            self._remote()
        self._switch()
        for field, attribute, path in _FIELDS:
            self._field(field, attrgetter(path)(entry), getattr(shape, attribute))
        for path in _ONLY_OURS:
            if attrgetter(path)(entry) != attrgetter(path)(_DEFAULTS):
                self._lose(path.replace("timeouts.", "timeout "))
        return EncodedEntry(self.fields, tuple(self.losses))

    def _lose(self, field: str, reason: str = NO_KEY) -> None:
        self.losses.append(Loss(self.entry.name, field, reason))

    def _field(self, field: str, value: Any, key: str | Timing | None) -> None:
        if not value:
            return
        if key is None:
            self._lose(field)
        elif isinstance(key, Timing):
            self.fields[key.key] = key.encode(value)
        else:
            self.fields[key] = list(value) if isinstance(value, tuple) else value

    def _local(self) -> None:
        shape, entry = self.shape, self.entry
        assert entry.command is not None
        command = self._required("command", entry.command)
        args = [self._required(f"args {number}", arg) for number, arg in enumerate(entry.args, 1)]
        if shape.args is None:
            self.fields[shape.command] = [command, *args]
        else:
            self.fields |= {shape.command: command, shape.args: args}
        if entry.cwd is not None:
            self._field("cwd", self._required("cwd", entry.cwd) if shape.cwd else entry.cwd, shape.cwd)
        values: dict[str, str] = {}
        names = []
        for name, value in entry.env.items():
            if shape.env_names and _variable_of(value) == name:
                names.append(name)
            elif (text := self._optional(f"env {name}", value)) is not None:
                values[name] = text
        self._field("env", values, shape.env)
        self._field("env", names, shape.env_names)

    def _remote(self) -> None:
        shape, entry = self.shape, self.entry
        assert entry.url is not None
        key = shape.urls.get(entry.transport)
        if key is None:
            raise Unrepresentable(f"transport: the client has no {entry.transport}")
        self.fields[key] = self._required("url", entry.url)
        if entry.transport == "sse" and shape.types.get("sse") in (None, shape.types.get("streamable-http")):
            self._lose("transport", "the client has no word for sse and detects the transport")
        for name, value in entry.headers.items():
            self._header(name, value)
        if entry.env:
            self._lose("env", "a remote server has no environment")

    def _header(self, name: str, value: Template) -> None:
        shape = self.shape
        variable = _variable_of(value)
        if (
            shape.bearer_name
            and name.lower() == "authorization"
            and (bearer := _variable_of(value, "Bearer "))
        ):
            self.fields[shape.bearer_name] = bearer
        elif shape.header_names and variable:
            self.fields.setdefault(shape.header_names, {})[name] = variable
        elif (text := self._optional(f"headers {name}", value)) is not None:
            table: dict[str, Any] = self.fields
            for key in shape.headers:
                table = table.setdefault(key, {})
            table[name] = text

    def _switch(self) -> None:
        shape = self.shape
        if self.entry.enabled:
            return
        if shape.enabled is None and shape.disabled is None:
            raise Unrepresentable("enabled: the client has no switch for it, and would start it")
        self.fields[shape.enabled or shape.disabled or ""] = shape.enabled is None

    def _required(self, field: str, template: Template) -> str:
        try:
            return format_template(template, self.shape.references)
        except Unrepresentable as error:
            raise Unrepresentable(f"{field}: {error}") from None

    def _optional(self, field: str, template: Template) -> str | None:
        try:
            return format_template(template, self.shape.references)
        except Unrepresentable as error:
            self._lose(field, str(error))
            return None


def _variable_of(value: Template, prefix: str = "") -> str | None:
    """The variable of a value that is one reference, after a literal prefix."""
    match value.parts:
        case (Reference(variable=name, default=None),) if not prefix:
            return name
        case (Literal(text=text), Reference(variable=name, default=None)) if prefix and text == prefix:
            return name
    return None


class _Decoder:
    def __init__(self, shape: Shape, name: str, value: dict[str, Any]) -> None:
        self.shape = shape
        self.client_name = name
        self.name = usable_name(name)
        self.value = value
        if isinstance(command := value.get("command"), dict):  # Zed once wrote the command as a table
            inner = {"command": command.get("path"), "args": command.get("args"), "env": command.get("env")}
            self.value = {**value, **{key: member for key, member in inner.items() if member is not None}}
        self.notes: list[Loss] = []

    def decode(self) -> DecodedEntry:
        shape = self.shape
        if not self.name:
            raise Undecodable("its name has no letter or digit that a name may hold")
        if self.name != self.client_name:
            self._note("name", f"became {self.name}")
        transport = self._transport()
        start = self._local() if transport == "stdio" else self._remote()
        for key in sorted(set(self.value) - shape.keys - _READ):
            self._note(key, "left out: it has no meaning here")
        description = self._get(shape.description)
        try:
            entry = Entry(
                name=self.name,
                title=self.client_name if self.name != self.client_name else "",
                description=" ".join(description.split()) if isinstance(description, str) else "",
                enabled=self.value.get("enabled") is not False and self.value.get("disabled") is not True,
                transport=transport,
                tools=Tools(self._names(shape.allow), self._names(shape.deny)),
                timeouts=Timeouts(startup=self._seconds(shape.startup), call=self._seconds(shape.call)),
                required=self._get(shape.required) is True,
                **start,
            )
        except RegistryError as error:
            raise Undecodable(error.message) from None
        return DecodedEntry(self.client_name, entry, tuple(self.notes))

    def _note(self, field: str, reason: str) -> None:
        self.notes.append(Loss(self.client_name, field, reason))

    def _get(self, key: str | None) -> Any:
        """The value of a key, if the client has such a key at all."""
        return self.value.get(key) if key is not None else None

    def _list(self, key: str | None) -> list[Any]:
        items = self._get(key) or []
        if not isinstance(items, list):
            raise Undecodable(f"{key} is not a list")
        return items

    def _names(self, key: str | None) -> tuple[str, ...]:
        names = self._list(key)
        if not all(isinstance(name, str) for name in names):
            raise Undecodable(f"{key} is not a list of names")
        return tuple(name for name in names if name != "*")

    def _seconds(self, timing: Timing | None) -> float | None:
        return None if timing is None else timing.decode(self.value.get(timing.key))

    def _transport(self) -> Transport:
        word = self.value.get("type")
        if word is not None:
            transport = TRANSPORT_WORDS.get(word) if isinstance(word, str) else None
            if transport is None:
                raise Undecodable("type is not a known transport")
            return transport
        if self.value.get(self.shape.command) is not None:
            return "stdio"
        if any(self.value.get(key) is not None for key in URL_KEYS):
            return "streamable-http"
        raise Undecodable("neither a command nor a url")

    def _local(self) -> dict[str, Any]:
        shape = self.shape
        command, args = self.value.get(shape.command), self._list(shape.args)
        if isinstance(command, list):
            if not command:
                raise Undecodable("command is empty")
            command, args = command[0], [*command[1:], *args]
        if not isinstance(command, str):
            raise Undecodable("command is not a text")
        env = self._templates("env", self._get(shape.env))
        for item in self._list(shape.env_names):
            name = item.get("name") if isinstance(item, dict) else item
            if not isinstance(name, str):
                raise Undecodable(f"{shape.env_names} holds something that is not a name")
            env.setdefault(name, Template(f"${name}"))
        cwd = self._get(shape.cwd)
        return {
            "command": self._template("command", command),
            "args": tuple(self._template(f"args {number}", arg) for number, arg in enumerate(args, 1)),
            "cwd": self._template("cwd", cwd) if cwd else None,
            "env": env,
        }

    def _remote(self) -> dict[str, Any]:
        shape = self.shape
        url = next((self.value[key] for key in URL_KEYS if self.value.get(key) is not None), None)
        if not isinstance(url, str):
            raise Undecodable("url is not a text")
        table: Any = self.value
        for key in shape.headers:
            table = _table(table, key).get(key)
        headers = self._templates("headers", table)
        for name, variable in _table(self._get(shape.header_names), "headers").items():
            headers[name] = Template(f"${_text(variable, 'headers')}")
        if bearer := self._get(shape.bearer_name):
            headers["Authorization"] = Template(f"Bearer ${_text(bearer, 'headers')}")
        return {"url": self._template("url", url), "headers": headers}

    def _templates(self, field: str, values: Any) -> dict[str, Template]:
        table = _table(values, field)
        return {name: self._template(f"{field} {name}", value) for name, value in table.items()}

    def _template(self, field: str, value: Any) -> Template:
        parsed = parse_template(_text(value, field.partition(" ")[0]), self.shape.references)
        for note in parsed.notes:
            self._note(field, note)
        return parsed.template


def usable_name(name: str) -> str:
    """The name itself if a registry may hold it, else the nearest one that it may."""
    try:
        check_name(name)
        return name
    except InvalidName:
        usable = re.sub(r"[^a-zA-Z0-9_.+@-]+", "-", name).strip("-.")
    return re.sub(r"\.{2,}", ".", usable)[:MAX_NAME]


def _table(value: Any, field: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Undecodable(f"{field} is not a table")
    return value


def _text(value: Any, field: str) -> str:
    """A text; a number or a switch as it is written."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    raise Undecodable(f"{field} holds something that is not a text")

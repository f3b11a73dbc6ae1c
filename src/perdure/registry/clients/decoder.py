"""A client's entry as one of ours: every spelling that clients use is understood, and each loss is reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.registry.clients.encoder import Loss
from perdure.registry.clients.references import ParsedText, parse_template, reference
from perdure.registry.clients.table import Client, Shape, Timing
from perdure.registry.entry import MAX_NAME, Entry, Timeouts, Tools, Transport, check_name
from perdure.registry.errors import InvalidName, RegistryError
from perdure.registry.templates import Template

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
# Keys that are understood though this client's own files have others for the same thing.
_UNDERSTOOD: Final = frozenset({*URL_KEYS, "type", "enabled", "disabled", "source", "name"})


class Problem(ValueError):
    """Why an entry cannot be taken over. Holds no value of it."""


class DecodedEntry(msgspec.Struct, frozen=True):
    """`name` is what the client calls it; the entry's own name may be another one."""

    name: str
    entry: Entry
    notes: tuple[Loss, ...] = ()


def decode_entry(client: Client, name: str, value: Any) -> DecodedEntry:
    """Raises Problem."""
    if not isinstance(value, dict):
        raise Problem("not a table of settings")
    return _Decoder(client.shape, name, value).all()


def usable_name(name: str) -> str:
    """The name itself where we can have it, else the nearest that we can."""
    try:
        check_name(name)
        return name
    except InvalidName:
        found = re.sub(r"[^a-zA-Z0-9_.+@-]+", "-", name).strip("-.")
    return re.sub(r"\.{2,}", ".", found)[:MAX_NAME]


class _Decoder:
    def __init__(self, shape: Shape, name: str, value: dict[str, Any]) -> None:
        self.shape = shape
        self.client_name = name
        self.value = _flattened(value)
        self.name = usable_name(name)
        self.notes: list[Loss] = []

    def all(self) -> DecodedEntry:
        if not self.name:
            raise Problem("its name has no letter or digit that a name may hold")
        if self.name != self.client_name:
            self._note("name", f"became {self.name}")
        transport = self._transport()
        way = self._local() if transport == "stdio" else self._remote()
        for key in sorted(set(self.value) - self.shape.keys - _UNDERSTOOD):
            self._note(key, "left behind: it means nothing here")
        try:
            entry = Entry(
                name=self.name,
                title=self.client_name if self.name != self.client_name else "",
                description=self._text(self.shape.description) if self.shape.description else "",
                enabled=self._enabled(),
                transport=transport,
                tools=Tools(self._names(self.shape.allow), self._names(self.shape.deny)),
                timeouts=Timeouts(startup=self._time(self.shape.startup), call=self._time(self.shape.call)),
                required=self._get(self.shape.required) is True,
                **way,
            )
        except RegistryError as error:
            raise Problem(error.message) from None
        return DecodedEntry(self.client_name, entry, tuple(self.notes))

    def _note(self, field: str, reason: str) -> None:
        self.notes.append(Loss(self.client_name, field, reason))

    def _get(self, key: str | None) -> Any:
        """The value of a key, if the client has such a key at all."""
        return self.value.get(key) if key is not None else None

    def _list(self, key: str | None) -> list[Any]:
        found = self._get(key) or []
        if not isinstance(found, list):
            raise Problem(f"{key} is not a list")
        return found

    def _transport(self) -> Transport:
        word = self.value.get("type")
        if word is not None:
            found = TRANSPORT_WORDS.get(word) if isinstance(word, str) else None
            if found is None:
                raise Problem("type is not a transport that is known here")
            return found
        if self.value.get(self.shape.command) is not None:
            return "stdio"
        if any(self.value.get(key) is not None for key in URL_KEYS):
            return "streamable-http"
        raise Problem("neither a command nor a url")

    def _local(self) -> dict[str, Any]:
        command = self.value.get(self.shape.command)
        args = self._list(self.shape.args)
        if isinstance(command, list):
            if not command:
                raise Problem("command is empty")
            command, args = command[0], [*command[1:], *args]
        if not isinstance(command, str):
            raise Problem("command is not a text")
        found: dict[str, Any] = {
            "command": self._parse("command", command),
            "args": tuple(self._parse(f"args {n}", _word(arg, "args")) for n, arg in enumerate(args, 1)),
            "env": self._env(),
        }
        cwd = self._get(self.shape.cwd)
        return {**found, "cwd": self._parse("cwd", _word(cwd, "cwd"))} if cwd else found

    def _env(self) -> dict[str, Template]:
        values = _table(self.value.get(self.shape.env), "env")
        found = {name: self._parse(f"env {name}", _word(value, "env")) for name, value in values.items()}
        for one in self._list(self.shape.env_names):
            name = one.get("name") if isinstance(one, dict) else one
            if not isinstance(name, str):
                raise Problem(f"{self.shape.env_names} holds something that is not a name")
            found.setdefault(name, Template(reference(name)))
        return found

    def _remote(self) -> dict[str, Any]:
        url = next((self.value[key] for key in URL_KEYS if self.value.get(key) is not None), None)
        if not isinstance(url, str):
            raise Problem("url is not a text")
        held: Any = self.value
        for key in self.shape.headers:
            held = _table(held, key).get(key)
        headers = {
            name: self._parse(f"headers {name}", _word(value, "headers"))
            for name, value in _table(held, "headers").items()
        }
        for name, variable in _table(self._get(self.shape.header_names), "headers").items():
            headers[name] = Template(reference(_word(variable, "headers")))
        if bearer := self._get(self.shape.bearer_name):
            headers["Authorization"] = Template(f"Bearer {reference(_word(bearer, 'headers'))}")
        return {"url": self._parse("url", url), "headers": headers}

    def _enabled(self) -> bool:
        return self.value.get("enabled") is not False and self.value.get("disabled") is not True

    def _names(self, key: str | None) -> tuple[str, ...]:
        found = self._list(key)
        if not all(isinstance(one, str) for one in found):
            raise Problem(f"{key} is not a list of names")
        return tuple(one for one in found if one != "*")

    def _time(self, timing: Timing | None) -> float | None:
        value = self.value.get(timing.key) if timing is not None else None
        if timing is None or isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return None
        return value / timing.per_second

    def _text(self, key: str) -> str:
        found = self.value.get(key)
        return " ".join(found.split()) if isinstance(found, str) else ""

    def _parse(self, field: str, text: str) -> Template:
        found: ParsedText = parse_template(text, self.shape.references)
        for note in found.notes:
            self._note(field, note)
        return found.template


def _flattened(value: dict[str, Any]) -> dict[str, Any]:
    """Zed once wrote the command as a table of its own."""
    command = value.get("command")
    if not isinstance(command, dict):
        return value
    inner = {"command": command.get("path"), "args": command.get("args"), "env": command.get("env")}
    return {**value, **{key: one for key, one in inner.items() if one is not None}}


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Problem(f"{what} is not a table")
    return value


def _word(value: Any, what: str) -> str:
    """A text; a number or a switch as it is written."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    raise Problem(f"{what} holds something that is not a text")

"""The one JSON form of an entry: a flat object of its fields, texts as they are written, defaults left out.

    to_wire(entry), from_wire(object)        as a tiered catalog carries it
    to_object(entry), from_object(name, …)   as `mcp.json` holds it: the keys that clients share at the top, the rest
                                             under `perdure`; keys that are neither are the entry's `extra`

    {"command": "npx", "args": ["-y", "x"], "env": {"K": "$V"}, "cwd": ".", "type": "http", "url": "…", "headers": {},
     "description": "…", "disabled": true,
     "perdure": {"title", "oauth": {"client_id"}, "tools": {"allow", "deny"}, "timeouts": {"startup", "call", "idle"},
                 "start", "restart", "replay": {"mode", "tools": {"charge": "probe find_charge {\\"key\\": \\"/key\\"}"}},
                 "pin", "required", "provenance"}}

`null` means absent; a number or a boolean in place of a text is its text. Errors name the field, never the value.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import structs

from perdure.protocol.msgspec_types import prepare_type
from perdure.protocol.replay import Convergent, NeverReplay, ProbeRequired
from perdure.registry.entry import (
    TRANSPORT_NAMES,
    Entry,
    check_count,
    check_name,
    format_replay,
    parse_replay,
)
from perdure.registry.errors import InvalidEntry, RegistryError
from perdure.registry.templates import Template

OWN: Final = "perdure"
DEPTH: Final = 3  # fields, `replay`, its `tools`
_SHARED: Final = ("command", "url", "cwd", "args", "env", "headers", "description")
_OWN: Final = (
    "title", "oauth", "tools", "timeouts", "start", "restart", "replay", "pin", "required", "provenance",
)  # fmt: skip
_KNOWN: Final = frozenset({*_SHARED, "type", "transport", "disabled", "enabled", OWN})
_DEFAULTS: Final = structs.asdict(Entry(name="x", command=Template("x"))) | {"name": None, "command": None}


def members(entry: Entry, *, whole: bool = False) -> dict[str, Any]:
    """Its fields as JSON. `whole` includes those that have their default."""
    return {
        name: _plain(value, whole)
        for name, value in structs.asdict(entry).items()
        if whole or value != _DEFAULTS[name]
    }


def to_wire(entry: Entry) -> dict[str, Any]:
    """With the keys that every catalog knows, even if they have their default."""
    plain: dict[str, Any] = {"args": [], "env": {}} if entry.transport == "stdio" else {"headers": {}}
    return {"description": "", "transport": entry.transport, **plain, **members(entry)}


def from_wire(value: Any) -> Entry:
    """Raises InvalidName or InvalidEntry. Keys that are not known are ignored."""
    if not isinstance(value, dict):
        raise InvalidEntry("it is not an object")
    return _entry({name: member for name, member in value.items() if name in _DEFAULTS})


def to_object(entry: Entry) -> dict[str, Any]:
    fields = members(entry)
    value: dict[str, Any] = {}
    if entry.transport != "stdio":
        value["type"] = "http" if entry.transport == "streamable-http" else entry.transport
    value |= {name: fields[name] for name in _SHARED if name in fields}
    if not entry.enabled:
        value["disabled"] = True
    if own := {name: fields[name] for name in _OWN if name in fields}:
        value[OWN] = own
    return {**value, **{key: value for key, value in entry.extra.items() if key not in _KNOWN}}


def from_object(name: str, value: Any) -> Entry:
    """Raises InvalidName or InvalidEntry."""
    check_name(name)
    own = value.get(OWN, {}) if isinstance(value, dict) else value
    own = {} if own is None and isinstance(value, dict) else own
    if not isinstance(own, dict):
        raise InvalidEntry(f"{name}: {OWN if isinstance(value, dict) else 'it'} is not an object", entry=name)
    switches = {key: value.get(key) for key in ("enabled", "disabled")}
    if wrong := [key for key, member in switches.items() if member not in (None, True, False)]:
        raise InvalidEntry(f"{name}: {wrong[0]} is not true or false", entry=name)
    return _entry(
        {
            **{key: value[key] for key in _SHARED if key in value},
            **{key: own[key] for key in _OWN if key in own},
            "name": name,
            "transport": value.get("type") or value.get("transport"),
            "enabled": not switches["disabled"] and switches["enabled"] is not False,
            "extra": {key: member for key, member in value.items() if key not in _KNOWN},
        }
    )


# --- JSON to an entry ---------------------------------------------------------------------------------------


def _entry(fields: dict[str, Any]) -> Entry:
    extra = fields.pop("extra", None)
    fields = _without_nulls(fields)
    name = fields["name"] if isinstance(fields.get("name"), str) else ""
    is_remote = fields.get("url") and not fields.get("command")
    word = str(fields.get("transport") or ("http" if is_remote else "stdio")).lower()
    if word not in TRANSPORT_NAMES:
        raise InvalidEntry(f"{name}: type is not known", entry=name, hint="one of stdio, http, sse")
    fields["transport"] = TRANSPORT_NAMES[word]
    for key in ("command", "cwd", "url"):
        if key in fields:
            fields[key] = _template(fields[key]) if fields[key] != "" else None
    for key in ("args", "env", "headers", "oauth"):
        if key in fields:
            fields[key] = _templates(fields[key], key, name)
    _parse_tools(fields.get("replay"), name)
    try:
        return msgspec.convert(_without_nulls(fields) | {"extra": extra or {}}, prepare_type(Entry))
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, RegistryError):
            raise error.__cause__ from None
        raise InvalidEntry(f"{name}: {_reason(error)}", entry=name) from None


def _without_nulls(value: Any, depth: int = DEPTH) -> Any:
    if not isinstance(value, dict) or depth == 0:
        return value
    return {key: _without_nulls(member, depth - 1) for key, member in value.items() if member is not None}


def _template(value: Any) -> Any:
    """A value that is no text is refused by the conversion."""
    return Template(value) if isinstance(value, str) else {"text": value}


def _templates(value: Any, key: str, name: str) -> Any:
    """Of a list or an object; a number or a boolean in it is its text."""
    if isinstance(value, list | dict):
        check_count(value, key, name)
    if isinstance(value, list):
        return [_template(_scalar(item)) for item in value]
    return (
        {label: _template(_scalar(item)) for label, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _parse_tools(replay: Any, name: str) -> None:
    """The replay class of each tool, from its text."""
    if not isinstance(replay, dict):
        return
    if unknown := [key for key in replay if key not in ("mode", "tools")]:
        raise InvalidEntry(f"{name}: {OWN}.replay does not know {unknown[0]}", entry=name)
    if isinstance(tools := replay.get("tools"), dict):
        replay["tools"] = {tool: _replay_class(text, name) for tool, text in tools.items()}


def _replay_class(value: Any, name: str) -> Any:
    match value:
        case str():
            return parse_replay(name, value)
        case {"probe": str(tool), "arguments": dict(arguments)}:  # catalogs of version 0.1.0
            return {"type": "ProbeRequired", "tool": tool, "arguments": arguments}
    return value


def _reason(error: msgspec.ValidationError) -> str:
    """The field and what is expected; a message that quotes a value is replaced."""
    reason, _, place = str(error).partition(" - at `$.")
    place = re.sub(r"\.text|`$", "", place)
    if not place:
        return reason
    return f"{place}: {reason}" if reason.startswith("Expected") else f"{place} is not known"


# --- an entry to JSON ---------------------------------------------------------------------------------------


def _plain(value: Any, whole: bool) -> Any:
    match value:
        case Template():
            return value.text
        case tuple():
            return [_plain(member, whole) for member in value]
        case dict():
            return {key: _plain(member, whole) for key, member in value.items()}
        case Convergent() | NeverReplay() | ProbeRequired():
            return format_replay(value)
        case msgspec.Struct():
            defaults = structs.asdict(type(value)())
            fields = structs.asdict(value).items()
            return {key: _plain(member, whole) for key, member in fields if whole or member != defaults[key]}
    return value

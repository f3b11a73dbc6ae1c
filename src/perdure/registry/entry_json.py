"""An entry as a JSON object: the keys that clients share at the top, the rest under `perdure`.

    {"command": "npx", "args": ["-y", "x"], "env": {"K": "$V"}, "cwd": ".", "type": "http", "url": "…", "headers": {},
     "description": "…", "disabled": true,
     "perdure": {"title", "oauth": {"client_id"}, "tools": {"allow", "deny"}, "timeouts": {"startup", "call", "idle"},
                 "start", "restart", "replay": {"mode", "tools": {"charge": "probe find_charge {\\"key\\": \\"/key\\"}"}},
                 "pin", "required", "provenance"}}

Keys that are none of these are the entry's `extra`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from perdure.registry.entry import Entry, Provenance, Replay, Timeouts, Tools, Transport, check_name
from perdure.registry.errors import InvalidEntry
from perdure.registry.md_values import TRANSPORT_NAMES, read_replay
from perdure.registry.redaction import shown_replay
from perdure.registry.templates import Template

OWN: Final = "perdure"


class _ReplayMembers(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    mode: Literal["annotations", "declared"] = "annotations"
    tools: dict[str, str] = {}


class _OwnMembers(msgspec.Struct, omit_defaults=True):
    title: str = ""
    oauth: dict[str, str] = {}
    tools: Tools = Tools()
    timeouts: Timeouts = Timeouts()
    start: Literal["eager", "lazy"] = "eager"
    restart: Literal["always", "never"] = "always"
    replay: _ReplayMembers = msgspec.field(default_factory=_ReplayMembers)
    pin: bool = False
    required: bool = False
    provenance: Provenance | None = None


class _Members(msgspec.Struct, omit_defaults=True):
    """What other clients read too. `null` is as good as absent: some write it."""

    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    description: str | None = None
    disabled: bool | None = None
    enabled: bool | None = None
    perdure: _OwnMembers = msgspec.field(default_factory=_OwnMembers)


_KNOWN: Final = frozenset({*_Members.__struct_fields__, "transport"})


def from_object(name: str, found: Any) -> Entry:
    """Raises InvalidName or InvalidEntry with the first problem; values are never repeated in it."""
    check_name(name)
    if not isinstance(found, dict):
        raise InvalidEntry(f"{name}: not an object", entry=name)
    try:
        members = msgspec.convert(found, type=_Members)
    except msgspec.ValidationError as error:
        raise InvalidEntry(f"{name}: {error}", entry=name) from None
    own = members.perdure
    replay = {tool: read_replay(name, value) for tool, value in own.replay.tools.items()}
    return Entry(
        name=name,
        title=own.title,
        description=members.description or "",
        enabled=not members.disabled and members.enabled is not False,
        transport=_transport(name, found, members),
        command=_template(members.command),
        args=tuple(Template(arg) for arg in members.args or ()),
        cwd=_template(members.cwd),
        env={key: Template(value) for key, value in (members.env or {}).items()},
        url=_template(members.url),
        headers={key: Template(value) for key, value in (members.headers or {}).items()},
        oauth={key: Template(value) for key, value in own.oauth.items()},
        tools=own.tools,
        timeouts=own.timeouts,
        start=own.start,
        restart=own.restart,
        replay=Replay(own.replay.mode, replay),
        pin=own.pin,
        required=own.required,
        provenance=own.provenance,
        extra={key: value for key, value in found.items() if key not in _KNOWN},
    )


def to_object(entry: Entry) -> dict[str, Any]:
    """The members of an entry, references as they are written; what is a default is left out."""
    own = _OwnMembers(
        title=entry.title,
        oauth={key: value.text for key, value in entry.oauth.items()},
        tools=entry.tools,
        timeouts=entry.timeouts,
        start=entry.start,
        restart=entry.restart,
        replay=_ReplayMembers(
            entry.replay.mode, {tool: shown_replay(one) for tool, one in entry.replay.tools.items()}
        ),
        pin=entry.pin,
        required=entry.required,
        provenance=entry.provenance,
    )
    found: dict[str, Any] = {}
    if entry.transport != "stdio":
        found["type"] = "http" if entry.transport == "streamable-http" else entry.transport
    for key, template in (("command", entry.command), ("url", entry.url), ("cwd", entry.cwd)):
        if template is not None:
            found[key] = template.text
    if entry.args:
        found["args"] = [arg.text for arg in entry.args]
    for key, values in (("env", entry.env), ("headers", entry.headers)):
        if values:
            found[key] = {name: value.text for name, value in values.items()}
    if entry.description:
        found["description"] = entry.description
    if not entry.enabled:
        found["disabled"] = True
    rest = _without_empty(msgspec.to_builtins(own))
    if rest:
        found[OWN] = rest
    return {**found, **{key: value for key, value in entry.extra.items() if key not in _KNOWN}}


def _without_empty(found: dict[str, Any]) -> dict[str, Any]:
    """Nested values that are all defaults are no values."""
    for key in ("timeouts", "tools"):
        found[key] = {name: value for name, value in found.get(key, {}).items() if value}
        if not found[key]:
            del found[key]
    if found.get("replay") == {}:
        del found["replay"]
    return found


def _transport(name: str, found: dict[str, Any], members: _Members) -> Transport:
    given = (
        members.type or found.get("transport") or ("http" if members.url and not members.command else "stdio")
    )
    transport = TRANSPORT_NAMES.get(str(given).lower())
    if transport is None:
        raise InvalidEntry(f"{name}: type is not known", entry=name, hint="one of stdio, http, sse")
    return transport


def _template(text: str | None) -> Template | None:
    return Template(text) if text else None

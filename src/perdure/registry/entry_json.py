"""An entry as a JSON object: the keys that clients share at the top, the rest under `perdure`.

    {"command": "npx", "args": ["-y", "x"], "env": {"K": "$V"}, "cwd": ".", "type": "http", "url": "…", "headers": {},
     "description": "…", "disabled": true,
     "perdure": {"title", "oauth": {"client_id"}, "tools": {"allow", "deny"}, "timeouts": {"startup", "call", "idle"},
                 "start", "restart", "replay": {"mode", "tools": {"charge": "probe find_charge {\\"key\\": \\"/key\\"}"}},
                 "pin", "required", "provenance"}}

Keys that are none of these are the entry's `extra`.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from perdure.registry.entry import Entry, Replay, Timeouts, Tools, Transport, check_count, check_name
from perdure.registry.errors import InvalidEntry
from perdure.registry.file.mcp_md_fields import TRANSPORT_NAMES, read_provenance, read_replay
from perdure.registry.members import Members, WrongKind
from perdure.registry.redaction import shown_replay
from perdure.registry.templates import Template

OWN: Final = "perdure"
_KNOWN: Final = frozenset(
    {
        "type",
        "transport",
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "headers",
        "description",
        "disabled",
        "enabled",
        OWN,
    }
)


def from_object(name: str, found: Any) -> Entry:
    """Raises InvalidName or InvalidEntry with the first problem; values are never repeated in it."""
    check_name(name)
    if not isinstance(found, dict):
        raise InvalidEntry(f"{name}: not an object", entry=name)
    try:
        return _entry(name, Members(found))
    except WrongKind as error:
        raise InvalidEntry(f"{name}: {error}", entry=name) from None


def _entry(name: str, members: Members) -> Entry:
    own = members.below(OWN)
    tools, times, replay = own.below("tools"), own.below("timeouts"), own.below("replay")
    if unknown := [key for key in replay.found if key not in ("mode", "tools")]:
        raise WrongKind(f"{OWN}.replay does not know {unknown[0]}")
    return Entry(
        name=name,
        title=own.text("title"),
        description=members.text("description"),
        enabled=not members.flag("disabled", False) and members.flag("enabled", True),
        transport=_transport(name, members),
        command=_template(members.text("command")),
        args=_args(name, members.texts("args")),
        cwd=_template(members.text("cwd")),
        env=_templates(members.named_texts("env")),
        url=_template(members.text("url")),
        headers=_templates(members.named_texts("headers")),
        oauth=_templates(own.named_texts("oauth")),
        tools=Tools(tools.texts("allow"), tools.texts("deny")),
        timeouts=Timeouts(times.seconds("startup"), times.seconds("call"), times.seconds("idle")),
        start=own.word("start", "eager", "lazy"),  # type: ignore[arg-type]
        restart=own.word("restart", "always", "never"),  # type: ignore[arg-type]
        replay=Replay(
            replay.word("mode", "annotations", "declared"),  # type: ignore[arg-type]
            {tool: read_replay(name, text) for tool, text in replay.named_texts("tools").items()},
        ),
        pin=own.flag("pin", False),
        required=own.flag("required", False),
        provenance=read_provenance(own.below("provenance"))
        if own.found.get("provenance") is not None
        else None,
        extra={key: value for key, value in members.found.items() if key not in _KNOWN},
    )


def to_object(entry: Entry) -> dict[str, Any]:
    """The members of an entry, references as they are written; what is a default is left out."""
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
    rest = _own(entry)
    if rest:
        found[OWN] = rest
    return {**found, **{key: value for key, value in entry.extra.items() if key not in _KNOWN}}


def _own(entry: Entry) -> dict[str, Any]:
    """What stands under our own key; nested values that are all defaults are no values."""
    replay: dict[str, Any] = {"tools": {tool: shown_replay(one) for tool, one in entry.replay.tools.items()}}
    if entry.replay.mode != "annotations":
        replay = {"mode": entry.replay.mode, **replay}
    found = {
        "title": entry.title,
        "oauth": {key: value.text for key, value in entry.oauth.items()},
        "tools": {kind: list(names) for kind, names in structs.asdict(entry.tools).items() if names},
        "timeouts": {name: seconds for name, seconds in structs.asdict(entry.timeouts).items() if seconds},
        "start": entry.start if entry.start != "eager" else "",
        "restart": entry.restart if entry.restart != "always" else "",
        "replay": {key: value for key, value in replay.items() if value},
        "pin": entry.pin,
        "required": entry.required,
    }
    found = {key: value for key, value in found.items() if value}
    if entry.provenance is not None:
        found["provenance"] = entry.provenance.members()
    return found


def _transport(name: str, members: Members) -> Transport:
    is_remote = members.text("url") and not members.text("command")
    given = members.text("type") or members.found.get("transport") or ("http" if is_remote else "stdio")
    transport = TRANSPORT_NAMES.get(str(given).lower())
    if transport is None:
        raise InvalidEntry(f"{name}: type is not known", entry=name, hint="one of stdio, http, sse")
    return transport


def _args(name: str, texts: tuple[str, ...]) -> tuple[Template, ...]:
    check_count(texts, "args", name)
    return tuple(map(Template, texts))


def _template(text: str) -> Template | None:
    return Template(text) if text else None


def _templates(texts: dict[str, str]) -> dict[str, Template]:
    return {key: Template(text) for key, text in texts.items()}

"""An entry as a tiered catalog carries it: the plain keys that every such catalog knows, and ours beside them.

Reading is tolerant of everything but what would change the meaning of an entry: null is absent, a number is its
text, keys that nobody knows are left alone. What is wrong with one entry is said of that entry (`WireError`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import structs

from perdure.protocol.replay import Convergent, NeverReplay, ProbeRequired, ReplayClass
from perdure.registry.entry import Entry, Provenance, Replay, Timeouts, Tools
from perdure.registry.errors import RegistryError
from perdure.registry.members import texts
from perdure.registry.templates import Template

_DEFAULTS: Final = Entry(name="defaults", command=Template("none"))


class WireError(ValueError):
    """Why this entry cannot be used; fit to be shown."""


def as_wire(entry: Entry) -> dict[str, Any]:
    """References stay references. Keys with their usual value are left out, except those of the plain form."""
    found: dict[str, Any] = {
        "name": entry.name,
        "description": entry.description,
        "transport": entry.transport,
    }
    if entry.transport == "stdio":
        found["command"] = entry.command.text if entry.command is not None else ""
        found["args"] = [arg.text for arg in entry.args]
        found["env"] = {name: value.text for name, value in entry.env.items()}
    else:
        found["url"] = entry.url.text if entry.url is not None else ""
        found["headers"] = {name: value.text for name, value in entry.headers.items()}
        if entry.oauth:
            found["oauth"] = {name: value.text for name, value in entry.oauth.items()}
        if entry.env:
            found["env"] = {name: value.text for name, value in entry.env.items()}
    for name in ("title", "start", "restart", "pin", "required", "enabled"):
        if (value := getattr(entry, name)) != getattr(_DEFAULTS, name):
            found[name] = value
    if entry.cwd is not None:
        found["cwd"] = entry.cwd.text
    for name in ("tools", "timeouts"):
        if (value := getattr(entry, name)) != getattr(_DEFAULTS, name):
            found[name] = structs.asdict(value)
    if entry.replay != Replay():
        found["replay"] = {
            "mode": entry.replay.mode,
            "tools": {tool: _replay_out(one) for tool, one in entry.replay.tools.items()},
        }
    if entry.provenance is not None:
        found["provenance"] = entry.provenance.members()
    if entry.extra:
        found["extra"] = entry.extra
    return found


def from_wire(found: object) -> Entry:
    """Raises WireError with the reason."""
    if not isinstance(found, dict):
        raise WireError("it is not an object")
    remote = _text(found, "transport") or ("streamable-http" if found.get("url") else "stdio")
    try:
        return Entry(
            name=_text(found, "name"),
            title=_text(found, "title"),
            description=_text(found, "description"),
            enabled=_flag(found, "enabled", True),
            transport=remote,  # type: ignore[arg-type]
            command=_template(found, "command"),
            args=_templates(found, "args"),
            cwd=_template(found, "cwd"),
            env=_named_templates(found, "env"),
            url=_template(found, "url"),
            headers=_named_templates(found, "headers"),
            oauth=_named_templates(found, "oauth"),
            tools=_tools(found),
            timeouts=Timeouts(*_below(found, "timeouts", Timeouts.__struct_fields__, float)),
            start="lazy" if found.get("start") == "lazy" else "eager",
            restart="never" if found.get("restart") == "never" else "always",
            replay=_replay(found.get("replay")),
            pin=_flag(found, "pin", False),
            required=_flag(found, "required", False),
            provenance=_provenance(found),
            extra=found["extra"] if isinstance(found.get("extra"), dict) else {},
        )
    except RegistryError as error:
        raise WireError(error.message) from None


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(f"{key} is not a text")
    return value


def _flag(found: Mapping[str, Any], key: str, usual: bool) -> bool:
    value = found.get(key)
    if value is None:
        return usual
    if not isinstance(value, bool):
        raise WireError(f"{key} is neither true nor false")
    return value


def _template(found: Mapping[str, Any], key: str) -> Template | None:
    text = _text(found, key)
    return Template(text) if text else None


def _templates(found: Mapping[str, Any], key: str) -> tuple[Template, ...]:
    values = found.get(key)
    if values is None:
        return ()
    if not isinstance(values, list):
        raise WireError(f"{key} is not a list")
    return tuple(Template(_scalar(value, key)) for value in values)


def _named_templates(found: Mapping[str, Any], key: str) -> dict[str, Template]:
    values = found.get(key)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise WireError(f"{key} is not an object")
    return {name: Template(_scalar(value, f"{key} {name}")) for name, value in values.items()}


def _scalar(value: object, what: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise WireError(f"{what} is not a text")
    return value


def _below(
    found: Mapping[str, Any], key: str, names: tuple[str, ...], read: Callable[[Any], Any]
) -> list[Any]:
    """Each of these below a key, as it is read; None where it is not said."""
    below = found.get(key) or {}
    if not isinstance(below, dict):
        raise WireError(f"{key} cannot be read")
    try:
        return [None if below.get(name) is None else read(below[name]) for name in names]
    except (ValueError, TypeError, OverflowError):
        raise WireError(f"{key} cannot be read") from None


def _tools(found: Mapping[str, Any]) -> Tools:
    allow, deny = _below(found, "tools", Tools.__struct_fields__, texts)
    return Tools(allow or (), deny or ())


def _provenance(found: Mapping[str, Any]) -> Provenance | None:
    if found.get("provenance") is None:
        return None
    said = _below(
        found, "provenance", Provenance.__struct_fields__, lambda value: _scalar(value, "provenance")
    )
    return Provenance(*(one or "" for one in said))


def _replay(found: object) -> Replay:
    if found is None:
        return Replay()
    if not isinstance(found, dict) or not isinstance(found.get("tools", {}), dict):
        raise WireError("replay cannot be read")
    mode = found.get("mode", "annotations")
    if mode not in ("annotations", "declared"):
        raise WireError("replay is neither annotations nor declared")
    return Replay(mode, {tool: _replay_in(one) for tool, one in found.get("tools", {}).items()})


def _replay_out(one: ReplayClass) -> str | dict[str, Any]:
    if isinstance(one, ProbeRequired):
        return {"probe": one.tool, "arguments": one.arguments}
    return "convergent" if isinstance(one, Convergent) else "never"


def _replay_in(one: object) -> ReplayClass:
    match one:
        case "convergent":
            return Convergent()
        case "never":
            return NeverReplay()
        case {"probe": str(tool), **rest}:
            arguments = rest.get("arguments", {})
            if isinstance(arguments, dict) and all(isinstance(path, str) for path in arguments.values()):
                return ProbeRequired(tool, arguments)
    raise WireError("replay names a class that nobody knows")

"""The values of `mcp.md`, from text to an entry and back.

    command: python                        a text as it stands, or a JSON string where blanks or quotes matter
    args: ["a", "b, c"]                    a JSON list, or the plain comma form: a, b
    env: A=1, "B=v,w"                      comma separated, repeatable; an item with a comma as a JSON string
    oauth: client_id=$ID, scopes=read write
    timeout: startup=15, call=60
    tools: allow=a,b                       repeatable: tools: deny=c
    replay TOOL: probe OTHER {"k": "/k"}   or convergent, never
    provenance: {"catalog": …}

Of a key that stands twice the first counts. A key that is none of ours is kept, and shown as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, TypeVar

from msgspec import structs

from perdure.protocol.replay import CONVERGENT, NEVER, ProbeRequired, ReplayClass
from perdure.registry.entry import (
    Entry,
    Provenance,
    Replay,
    Timeouts,
    Tools,
    Transport,
    check_count,
    check_name,
    check_text,
)
from perdure.registry.errors import InvalidEntry
from perdure.registry.file.mcp_md_sections import Line, is_key
from perdure.registry.members import Members, named_texts, texts
from perdure.registry.redaction import shown_replay
from perdure.registry.templates import Template

T = TypeVar("T")

KEYS: Final = (
    "title", "description", "transport", "command", "args", "cwd", "env", "url", "headers", "oauth", "enabled", "start",
    "restart", "timeout", "tools", "replay", "pin", "required", "provenance",
)  # fmt: skip
TRANSPORT_NAMES: Final[dict[str, Transport]] = {
    "stdio": "stdio", "streamable-http": "streamable-http", "streamable_http": "streamable-http",
    "streamablehttp": "streamable-http", "http": "streamable-http", "sse": "sse",
}  # fmt: skip
_YES: Final = frozenset({"true", "yes", "on"})
_NO: Final = frozenset({"false", "no", "off"})


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def read(name: str, lines: Sequence[Line]) -> Entry:
    """The entry of a section. Raises InvalidName or InvalidEntry with the first problem."""
    check_name(name)
    found = _Values(name, lines)
    url = found.text("url")
    transport = found.word("transport", tuple(TRANSPORT_NAMES), "streamable-http" if url else "stdio")
    return Entry(
        name=name,
        title=found.text("title"),
        description=found.text("description"),
        enabled=found.flag("enabled", True),
        transport=TRANSPORT_NAMES[transport],
        command=_template(found.text("command")),
        args=found.args(),
        cwd=_template(found.text("cwd")),
        env=found.pairs("env"),
        url=_template(url),
        headers=found.pairs("headers"),
        oauth=found.pairs("oauth"),
        tools=found.tools(),
        timeouts=found.timeouts(),
        start=found.word("start", ("eager", "lazy"), "eager"),  # type: ignore[arg-type]
        restart=found.word("restart", ("always", "never"), "always"),  # type: ignore[arg-type]
        replay=found.replay(),
        pin=found.flag("pin", False),
        required=found.flag("required", False),
        provenance=found.provenance(),
        extra=found.extra(),
    )


def written(entry: Entry) -> dict[str, list[str]]:
    """The lines of an entry, without their endings, by key and in order; a default is not written."""
    found: dict[str, list[str]] = {
        "title": _texts("title", entry.title),
        "description": _texts("description", entry.description),
        "transport": [f"transport: {entry.transport}"] if entry.transport != "stdio" else [],
        "command": _texts("command", _source(entry.command)),
        "args": [f"args: {_json([arg.text for arg in entry.args])}"] if entry.args else [],
        "cwd": _texts("cwd", _source(entry.cwd)),
        "env": [f"env: {_pair(name, value)}" for name, value in entry.env.items()],
        "url": _texts("url", _source(entry.url)),
        "headers": [f"headers: {_pair(name, value)}" for name, value in entry.headers.items()],
        "oauth": [f"oauth: {_pair(name, value)}" for name, value in entry.oauth.items()],
        "enabled": [] if entry.enabled else ["enabled: false"],
        "start": ["start: lazy"] if entry.start == "lazy" else [],
        "restart": ["restart: never"] if entry.restart == "never" else [],
        "timeout": _times(entry.timeouts),
        "tools": [
            f"tools: {kind}={','.join(names)}"
            for kind, names in (("allow", entry.tools.allow), ("deny", entry.tools.deny))
            if names
        ],
        "replay": [f"replay: {entry.replay.mode}"] if entry.replay.mode != "annotations" else [],
        **{
            f"replay {tool}": [f"replay {tool}: {shown_replay(one)}"]
            for tool, one in entry.replay.tools.items()
        },
        "pin": ["pin: true"] if entry.pin else [],
        "required": ["required: true"] if entry.required else [],
        "provenance": [],
    }
    if entry.provenance is not None:
        found["provenance"] = [f"provenance: {_json(entry.provenance.members())}"]
    for key, value in entry.extra.items():
        found[key] = [
            _unknown(entry.name, key, one) for one in (value if isinstance(value, list) else [value])
        ]
    return {key: lines for key, lines in found.items() if lines}


def key_of(line: Line) -> str:
    """A key of ours in small letters, any other as it is written."""
    lower = line.key.lower()
    return lower if lower in KEYS else line.key


def is_ours(key: str) -> bool:
    return key in KEYS or key.startswith("replay ")


def read_replay(name: str, value: str) -> ReplayClass:
    """`convergent`, `never` or `probe TOOL {"argument": "/pointer"}`."""
    word, _, rest = value.strip().partition(" ")
    tool, _, arguments = rest.strip().partition(" ")
    match word.lower():
        case "convergent" if not tool:
            return CONVERGENT
        case "never" if not tool:
            return NEVER
        case "probe" if tool:
            try:
                return ProbeRequired(tool, named_texts(_JSON.decode(arguments.strip() or "{}")))
            except (ValueError, RecursionError):
                problem = "a probe's arguments are not an object of JSON Pointers"
        case _:
            problem = "replay is neither convergent, never nor probe TOOL"
    raise InvalidEntry(f"{name}: {problem}", entry=name, hint='replay TOOL: probe OTHER {"key": "/key"}')


class _Values:
    """The lines of one section, asked by key."""

    def __init__(self, name: str, lines: Sequence[Line]) -> None:
        self.name = name
        self.lines = [(key_of(line), line.value) for line in lines]

    def problem(self, problem: str, hint: str = "") -> InvalidEntry:
        return InvalidEntry(f"{self.name}: {problem}", entry=self.name, hint=hint)

    def first(self, key: str) -> str:
        return next((value for found, value in self.lines if found == key), "")

    def all(self, key: str) -> Iterator[str]:
        return (value for found, value in self.lines if found == key)

    def text(self, key: str) -> str:
        value = self.first(key)
        if len(value) > 1 and value.startswith('"') and value.endswith('"'):
            try:
                found = _JSON.decode(value)
            except (ValueError, RecursionError):
                return value
            return found if isinstance(found, str) else value
        return value

    def word(self, key: str, allowed: Sequence[str], default: str) -> str:
        value = self.first(key).lower() or default
        if value not in allowed:
            raise self.problem(f"{key} is not known", f"one of {', '.join(allowed)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.first(key).lower()
        if value and value not in _YES | _NO:
            raise self.problem(f"{key} is neither true nor false")
        return value in _YES if value else default

    def json(self, value: str, kind: Callable[[Any], T], what: str, hint: str) -> T:
        try:
            return kind(_JSON.decode(value))
        except (ValueError, RecursionError):
            raise self.problem(f"{what} is not {hint}") from None

    def args(self) -> tuple[Template, ...]:
        value = self.first("args")
        if value.startswith("["):
            words = self.json(value, texts, "args", 'a JSON list of texts, like ["a", "b"]')
        else:
            words = tuple(word.strip() for word in value.split(",") if word.strip())
        check_count(words, "args", self.name)
        return tuple(map(Template, words))

    def pairs(self, key: str) -> dict[str, Template]:
        found: dict[str, Template] = {}
        for value in self.all(key):
            if value.startswith("{"):
                pairs = [*self.json(value, named_texts, key, "a JSON object of texts").items()]
            else:
                pairs = [self.pair(key, item, is_quoted) for item, is_quoted in self.items(key, value)]
            check_count(pairs, key, self.name)
            for name, text in pairs:
                found.setdefault(name, Template(text))
        return found

    def pair(self, key: str, item: str, is_quoted: bool) -> tuple[str, str]:
        name, equals, value = item.partition("=")
        if not equals:
            hint = f'a value with a comma as a JSON string: {key}: "NAME=a,b"'
            raise self.problem(f"{key} holds an item without =", hint)
        return (name, value) if is_quoted else (name.strip(), value.strip())

    def items(self, key: str, value: str) -> Iterator[tuple[str, bool]]:
        """Items between commas; one that is a JSON string may hold commas itself."""
        at = 0
        while at < len(value):
            if value[at] in " \t,":
                at += 1
            elif value[at] == '"':
                try:
                    item, at = _JSON.raw_decode(value, at)
                except ValueError:
                    raise self.problem(f"{key} holds a JSON string that does not end") from None
                yield item, True
                while value[at : at + 1] in (" ", "\t"):
                    at += 1
                if value[at : at + 1] not in ("", ","):
                    raise self.problem(f"{key} holds something between a JSON string and the next comma")
            else:
                end = value.find(",", at)
                end = len(value) if end < 0 else end
                yield value[at:end], False
                at = end + 1

    def tools(self) -> Tools:
        found: dict[str, list[str]] = {"allow": [], "deny": []}
        for value in self.all("tools"):
            kind = ""
            for item in value.replace(";", ",").split(","):
                name, equals, first = item.strip().partition("=")
                if equals:
                    kind, item = name.strip(), first
                if kind not in found:
                    raise self.problem("tools is neither allow=… nor deny=…")
                if not item.strip():
                    raise self.problem(f"tools: {kind} names no tool")
                found[kind].append(item.strip())
        return Tools(tuple(found["allow"]), tuple(found["deny"]))

    def timeouts(self) -> Timeouts:
        found: dict[str, float] = {}
        for value in self.all("timeout"):
            for item in filter(None, (part.strip() for part in value.split(","))):
                name, _, seconds = item.partition("=")
                if name.strip() not in ("startup", "call", "idle"):
                    raise self.problem("timeout names something else than startup, call, idle")
                try:
                    found.setdefault(name.strip(), float(seconds))
                except ValueError:
                    raise self.problem(f"timeout {name.strip()} is not a number of seconds") from None
        return Timeouts(**found)

    def replay(self) -> Replay:
        mode = self.word("replay", ("annotations", "declared"), "annotations")
        tools: dict[str, ReplayClass] = {}
        for key, value in self.lines:
            if key.startswith("replay "):
                tools.setdefault(key.partition(" ")[2], read_replay(self.name, value))
        return Replay(mode, tools)  # type: ignore[arg-type]

    def provenance(self) -> Provenance | None:
        value = self.first("provenance")
        return self.json(value, _provenance, "provenance", "a JSON object") if value else None

    def extra(self) -> dict[str, Any]:
        found: dict[str, list[str]] = {}
        for key, value in self.lines:
            if not is_ours(key):
                found.setdefault(key, []).append(value)
        return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def read_provenance(found: Members) -> Provenance:
    return Provenance(*(found.text(key) for key in Provenance.__struct_fields__))


def _provenance(value: Any) -> Provenance:
    return read_provenance(Members(value))


def _template(text: str) -> Template | None:
    return Template(text) if text else None


def _source(template: Template | None) -> str:
    return template.text if template is not None else ""


def _texts(key: str, text: str) -> list[str]:
    if not text:
        return []
    is_plain = text == text.strip() and not text.startswith('"')
    return [f"{key}: {text if is_plain else _json(text)}"]


def _pair(name: str, value: Template) -> str:
    item = f"{name}={value.text}"
    is_plain = (
        "," not in item and item == item.strip() and value.text == value.text.strip() and item[0] not in '"{'
    )
    return item if is_plain else _json(item)


def _unknown(name: str, key: str, value: Any) -> str:
    """A line of a key that is not ours. What such a line cannot hold is refused rather than lost."""
    text = value if isinstance(value, str) else _json(value)
    check_text(text, f"the key {key}", name)
    if not is_key(key) or key.lower() in KEYS or text != text.strip():
        raise InvalidEntry(f"{name}: the key {key} cannot be written in mcp.md", entry=name)
    return f"{key}: {text}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _times(times: Timeouts) -> list[str]:
    named = [
        f"{name}={int(seconds) if seconds == int(seconds) else seconds}"
        for name, seconds in structs.asdict(times).items()
        if seconds is not None
    ]
    return [f"timeout: {', '.join(named)}"] if named else []

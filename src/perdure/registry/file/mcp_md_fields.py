"""The values of `mcp.md`, from text to an entry and back.

    command: python                        a text, or a JSON string if blanks or quotes matter
    args: ["a", "b, c"]                    a JSON list, or the plain comma form: a, b
    env: A=1, "B=v,w"                      comma separated, repeatable; an item with a comma as a JSON string
    oauth: client_id=$ID, scopes=read write
    timeout: startup=15, call=60
    tools: allow=a,b                       repeatable: tools: deny=c
    replay TOOL: probe OTHER {"k": "/k"}   or convergent, never
    provenance: {"catalog": …}

Of a repeated key the first counts. A key of another program is kept, and reported as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.json import Decoder

from perdure.registry.entry import TRANSPORT_NAMES, Entry, check_count, check_name, check_text
from perdure.registry.entry_json import from_wire, members
from perdure.registry.errors import InvalidEntry
from perdure.registry.file.mcp_md_sections import Line, is_key

T = TypeVar("T")

KEYS: Final = (
    "title", "description", "transport", "command", "args", "cwd", "env", "url", "headers", "oauth", "enabled", "start",
    "restart", "timeout", "tools", "replay", "pin", "required", "provenance",
)  # fmt: skip
_WORDS: Final = {
    "transport": tuple(TRANSPORT_NAMES), "start": ("eager", "lazy"), "restart": ("always", "never"),
}  # fmt: skip
_TEXTS: Final = Decoder(list[str])
_PAIRS: Final = Decoder(dict[str, str])
_VALUES: Final = Decoder(dict[str, str | None])
_YES: Final = ("true", "yes", "on")
_NO: Final = ("false", "no", "off")


def read_entry(name: str, lines: Sequence[Line]) -> Entry:
    """The entry of a section. Raises InvalidName or InvalidEntry with the first problem."""
    check_name(name)
    section = _Section(name, lines)
    fields: dict[str, Any] = {"name": name, "replay": section.replay(), "extra": section.unknown()}
    for key in KEYS:
        if key != "replay" and any(section.all(key)):
            fields["timeouts" if key == "timeout" else key] = section.value(key)
    return from_wire(fields)


def entry_lines(entry: Entry) -> dict[str, list[str]]:
    """The lines of an entry, without their endings, by key and in order; a default is not written."""
    fields = members(entry)
    fields["timeout"] = fields.pop("timeouts", None)
    lines = {key: _lines(key, fields[key]) for key in KEYS if fields.get(key) not in (None, "")}
    replay = fields.get("replay", {})
    lines["replay"] = [f"replay: {replay['mode']}"] if "mode" in replay else []
    lines |= {f"replay {tool}": [f"replay {tool}: {text}"] for tool, text in replay.get("tools", {}).items()}
    for key, value in entry.extra.items():
        lines[key] = [
            _unknown_line(entry.name, key, item) for item in (value if isinstance(value, list) else [value])
        ]
    return {key: texts for key, texts in lines.items() if texts}


def key_of(line: Line) -> str:
    """A known key in lower case, any other unchanged."""
    lower = line.key.lower()
    return lower if lower in KEYS else line.key


class _Section:
    """The lines of one section, by key."""

    def __init__(self, name: str, lines: Sequence[Line]) -> None:
        self.name = name
        self.lines = [(key_of(line), line.value) for line in lines]

    def error(self, problem: str, hint: str = "") -> InvalidEntry:
        return InvalidEntry(f"{self.name}: {problem}", entry=self.name, hint=hint)

    def all(self, key: str) -> Iterator[str]:
        return (value for other, value in self.lines if other == key)

    def value(self, key: str) -> Any:
        first = next(self.all(key), "")
        match key:
            case "args" if first.startswith("["):
                return self.json(first, _TEXTS, "args", 'a JSON list of texts, like ["a", "b"]')
            case "args":
                return [word.strip() for word in first.split(",") if word.strip()]
            case "env" | "headers" | "oauth":
                return self.pairs(key)
            case "enabled" | "pin" | "required":
                return self.flag(key, first.lower())
            case "transport" | "start" | "restart":
                return self.word(key, _WORDS[key])
            case "tools":
                return self.tools()
            case "timeout":
                return self.timeouts()
            case "provenance":
                return self.json(first, _VALUES, key, "a JSON object") if first else None
        return self.text(first)

    def text(self, value: str) -> str:
        if len(value) > 1 and value.startswith('"') and value.endswith('"'):
            try:
                return msgspec.json.decode(value, type=str)
            except (msgspec.MsgspecError, ValueError):
                pass
        return value

    def word(self, key: str, allowed: Sequence[str]) -> str | None:
        value = next(self.all(key), "").lower()
        if value and value not in allowed:
            raise self.error(f"{key} is not known", f"one of {', '.join(allowed)}")
        return value or None

    def flag(self, key: str, value: str) -> bool | None:
        if value and value not in (*_YES, *_NO):
            raise self.error(f"{key} is neither true nor false")
        return value in _YES if value else None

    def json(self, value: str, decoder: Decoder[T], field: str, form: str) -> T:
        try:
            return decoder.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise self.error(f"{field} is not {form}") from None

    def pairs(self, key: str) -> dict[str, str]:
        values: dict[str, str] = {}
        for line in self.all(key):
            if line.startswith("{"):
                pairs = [*self.json(line, _PAIRS, key, "a JSON object of texts").items()]
            else:
                pairs = [self.pair(key, item, is_quoted) for item, is_quoted in self.items(key, line)]
            check_count(pairs, key, self.name)
            for name, text in pairs:
                values.setdefault(name, text)
        return values

    def pair(self, key: str, item: str, is_quoted: bool) -> tuple[str, str]:
        name, equals, value = item.partition("=")
        if not equals:
            hint = f'a value with a comma as a JSON string: {key}: "NAME=a,b"'
            raise self.error(f"{key} holds an item without =", hint)
        return (name, value) if is_quoted else (name.strip(), value.strip())

    def items(self, key: str, value: str) -> Iterator[tuple[str, bool]]:
        """Items between commas; one that is a JSON string may hold commas itself."""
        at = 0
        while at < len(value):
            if value[at] in " \t,":
                at += 1
            elif value[at] == '"':
                try:
                    item, at = json.JSONDecoder().raw_decode(value, at)
                except ValueError:
                    raise self.error(f"{key} holds a JSON string that does not end") from None
                yield item, True
                while value[at : at + 1] in (" ", "\t"):
                    at += 1
                if value[at : at + 1] not in ("", ","):
                    raise self.error(f"{key} holds something between a JSON string and the next comma")
            else:
                end = value.find(",", at)
                end = len(value) if end < 0 else end
                yield value[at:end], False
                at = end + 1

    def tools(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {"allow": [], "deny": []}
        for value in self.all("tools"):
            kind = ""
            for item in value.replace(";", ",").split(","):
                name, equals, first = item.strip().partition("=")
                if equals:
                    kind, item = name.strip(), first
                if kind not in names:
                    raise self.error("tools is neither allow=… nor deny=…")
                if not item.strip():
                    raise self.error(f"tools: {kind} names no tool")
                names[kind].append(item.strip())
        return names

    def timeouts(self) -> dict[str, float]:
        seconds_by_name: dict[str, float] = {}
        for value in self.all("timeout"):
            for item in filter(None, (part.strip() for part in value.split(","))):
                name, _, seconds = item.partition("=")
                if name.strip() not in ("startup", "call", "idle"):
                    raise self.error("timeout names something else than startup, call, idle")
                try:
                    seconds_by_name.setdefault(name.strip(), float(seconds))
                except ValueError:
                    raise self.error(f"timeout {name.strip()} is not a number of seconds") from None
        return seconds_by_name

    def replay(self) -> dict[str, Any]:
        tools: dict[str, str] = {}
        for key, value in self.lines:
            if key.startswith("replay "):
                tools.setdefault(key.partition(" ")[2], value)
        return {"mode": self.word("replay", ("annotations", "declared")), "tools": tools}

    def unknown(self) -> dict[str, Any]:
        lines: dict[str, list[str]] = {}
        for key, value in self.lines:
            if key not in KEYS and not key.startswith("replay "):
                lines.setdefault(key, []).append(value)
        return {key: values if len(values) > 1 else values[0] for key, values in lines.items()}


def _lines(key: str, value: Any) -> list[str]:
    match key:
        case "args" | "provenance":
            return [f"{key}: {_json(value)}"]
        case "env" | "headers" | "oauth":
            return [f"{key}: {_pair(name, text)}" for name, text in value.items()]
        case "enabled" | "pin" | "required":
            return [f"{key}: {'true' if value else 'false'}"]
        case "tools":
            return [f"tools: {kind}={','.join(names)}" for kind, names in value.items()]
        case "timeout":
            return [f"timeout: {', '.join(f'{name}={_number(seconds)}' for name, seconds in value.items())}"]
        case "replay":
            return []
    is_plain = value == value.strip() and not value.startswith('"')
    return [f"{key}: {value if is_plain else _json(value)}"]


def _number(seconds: float) -> int | float:
    return int(seconds) if seconds == int(seconds) else seconds


def _pair(name: str, value: str) -> str:
    item = f"{name}={value}"
    is_plain = "," not in item and item == item.strip() and value == value.strip() and item[0] not in '"{'
    return item if is_plain else _json(item)


def _unknown_line(name: str, key: str, value: Any) -> str:
    """A line of an unknown key. A value that no line can hold is refused."""
    text = value if isinstance(value, str) else _json(value)
    check_text(text, f"the key {key}", name)
    if not is_key(key) or key.lower() in KEYS or text != text.strip():
        raise InvalidEntry(f"{name}: the key {key} cannot be written in mcp.md", entry=name)
    return f"{key}: {text}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

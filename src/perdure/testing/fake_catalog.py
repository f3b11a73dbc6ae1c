"""What the fake server lists: tools, resources, templates and prompts, whole or in pages."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from perdure.testing.fake_wire import INVALID_PARAMS, Object, Refusal

_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}
_BOOLEAN: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}
_CRASH: Final = {"type": "string", "enum": ["none", "before", "during", "after", "after_answer"]}
_FLOODS: Final = [
    "noise",
    "notifications",
    "unknown_notifications",
    "list_changed",
    "pings",
    "late_answers",
    "junk_json",
]
_READ_ONLY: Final = {"readOnlyHint": True}

_EFFECT: Final[Object] = {
    "crash": _CRASH,
    "times": _INTEGER,
    "delay_ms": _INTEGER,
    "linger_ms": _INTEGER,
    "deaf": _BOOLEAN,
}
_ASK: Final[Object] = {
    "method": {
        "type": "string",
        "enum": ["sampling/createMessage", "elicitation/create", "roots/list", "ping"],
    },
    "params": _OBJECT,
    "rounds": _INTEGER,
}


def _tool(name: str, description: str, annotations: Object | None = None, /, **properties: Any) -> Object:
    tool: Object = {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {"key": _STRING, **properties}},
    }
    if annotations is not None:
        tool["annotations"] = annotations
    return tool


_ECHO: Final = {
    **_tool("echo", "Say the text again", _READ_ONLY, text=_STRING, delay_ms=_INTEGER),
    "outputSchema": {"type": "object", "properties": {"text": _STRING}, "required": ["text"]},
}

BUILT_IN: Final[tuple[Object, ...]] = (
    _ECHO,
    _tool("effect", "Perform an effect that must happen once", None, **_EFFECT),
    _tool("read_effect", "Perform an effect, declared read-only", _READ_ONLY, **_EFFECT),
    _tool("idem_effect", "Perform an effect, declared idempotent", {"idempotentHint": True}, **_EFFECT),
    _tool("slow", "Answer after a while", None, ms=_INTEGER, deaf=_BOOLEAN),
    _tool("hang", "Never answer", None),
    _tool("wedge", "Neither read nor answer anything, for a while or for ever", None, ms=_INTEGER),
    _tool("stop_reading", "Answer, then read nothing for a while or for ever", None, ms=_INTEGER),
    _tool(
        "flood",
        "Flood standard output",
        None,
        seconds=_NUMBER,
        kind={"type": "string", "enum": _FLOODS},
        line_bytes=_INTEGER,
        answer={"type": "string", "enum": ["first", "last"]},
    ),
    _tool(
        "answer_badly",
        "Break the protocol in the named way",
        None,
        kind=_STRING,
        then={"type": "string", "enum": ["answer", "nothing", "die"]},
        delay_ms=_INTEGER,
        bytes=_INTEGER,
    ),
    _tool(
        "grandchild", "Start a process that keeps standard output", None, seconds=_NUMBER, session=_BOOLEAN
    ),
    _tool(
        "die",
        "Die by a signal or with an exit code",
        None,
        signal={},
        code=_INTEGER,
        answer=_BOOLEAN,
        delay_ms=_INTEGER,
    ),
    _tool(
        "progress",
        "Report progress, then answer",
        _READ_ONLY,
        n=_INTEGER,
        delay_ms=_INTEGER,
        crash_at=_INTEGER,
        times=_INTEGER,
    ),
    _tool("log", "Send a log message", _READ_ONLY, level=_STRING, data={}, logger=_STRING),
    _tool("ask", "Ask the client something and return its answer", None, **_ASK),
    _tool(
        "ask_then_die", "Ask the client something and die", None, **_ASK, times=_INTEGER, delay_ms=_INTEGER
    ),
    _tool(
        "change_catalog",
        "Add and remove a tool, resource or prompt",
        None,
        add=_STRING,
        remove=_STRING,
        kind={"type": "string", "enum": ["tools", "resources", "prompts"]},
        silent=_BOOLEAN,
    ),
    _tool("touch_resource", "Change a resource and tell its subscribers", None, uri=_STRING),
    _tool("close_listens", "End every subscriptions/listen stream gracefully", None),
    _tool("whoami", "Describe this process and its session", _READ_ONLY),
    _tool("find_effect", "Find out whether an effect happened", _READ_ONLY, tool=_STRING),
    _tool("big", "Return a text of that many bytes", _READ_ONLY, bytes=_INTEGER),
    _tool("custom_meta", "Return the received params and members nobody knows", _READ_ONLY),
)
CWD: Final = _tool("cwd", "Return the working directory", _READ_ONLY)


class Catalog:
    """The four lists by name or URI; a list answers in pages of `page_size` (0: whole)."""

    def __init__(self, scheme: str, path: str | None, page_size: int, *, cwd_tool: bool) -> None:
        self.scheme = scheme
        self._page_size = page_size
        self.tools: dict[str, Object] = {str(tool["name"]): tool for tool in BUILT_IN}
        if cwd_tool:
            self.tools["cwd"] = CWD
        self.behaviours: dict[str, str] = {}
        self.resources: dict[str, Object] = {}
        for name in ("a", "b"):
            self.add("resources", f"{scheme}://{name}")
        self.templates: dict[str, Object] = {
            "item": {"uriTemplate": f"{scheme}://item/{{id}}", "name": "item", "mimeType": "text/plain"}
        }
        self.prompts: dict[str, Object] = {}
        self.add("prompts", "greet")
        self.revisions: dict[str, int] = {}
        if path is not None and os.path.exists(path):
            self._read(path)

    def _read(self, path: str) -> None:
        with open(path, encoding="utf-8") as source:
            document = json.load(source)
        if isinstance(document, list):
            document = {"tools": document}
        for name in document.get("remove", ()):
            self.tools.pop(name, None)
        for entry in document.get("tools", ()):
            tool = {"name": entry} if isinstance(entry, str) else dict(entry)
            name = str(tool["name"])
            self.behaviours[name] = str(tool.pop("behaves", name))
            self.tools[name] = {**self.tools.get(name, _tool(name, "From the catalog file")), **tool}

    def _listing(self, kind: str) -> dict[str, Object]:
        match kind:
            case "tools":
                return self.tools
            case "resources":
                return self.resources
            case "templates":
                return self.templates
            case "prompts":
                return self.prompts
            case _:
                raise ValueError(f"no list of {kind}")

    def add(self, kind: str, name: str) -> None:
        entry: Object
        match kind:
            case "tools":
                entry = _tool(name, "Added at run time")
            case "resources":
                entry = {"uri": name, "name": name.rpartition("/")[2], "mimeType": "text/plain"}
            case _:
                entry = {"name": name, "arguments": [{"name": "who", "required": True}]}
        self._listing(kind)[name] = entry

    def remove(self, kind: str, name: str) -> None:
        self._listing(kind).pop(name, None)

    def find_unknown_arguments(self, tool: str, arguments: Object) -> list[str]:
        """Arguments that the tool's schema forbids with `additionalProperties: false`."""
        schema = self.tools[tool].get("inputSchema", {})
        if schema.get("additionalProperties") is not False:
            return []
        return sorted(arguments.keys() - schema.get("properties", {}).keys())

    def page(self, kind: str, member: str, cursor: object) -> Object:
        entries = list(self._listing(kind).values())
        if cursor is None:
            start = 0
        elif isinstance(cursor, str) and cursor.startswith("from-") and cursor[5:].isdigit():
            start = int(cursor[5:])
        else:
            raise Refusal(INVALID_PARAMS, "Invalid cursor")
        end = start + self._page_size if self._page_size else len(entries)
        result: Object = {member: entries[start:end]}
        if end < len(entries):
            result["nextCursor"] = f"from-{end}"
        return result

    def read(self, uri: str) -> str | None:
        """The text of a resource; a new one after each `touch`."""
        if uri in self.resources or uri.startswith(f"{self.scheme}://item/"):
            return f"{uri} revision {self.revisions.get(uri, 0)}"
        return None

    def touch(self, uri: str) -> None:
        self.revisions[uri] = self.revisions.get(uri, 0) + 1

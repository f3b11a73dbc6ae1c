"""How a tool is declared: one frozen `ToolSpec`, from which its public definition and its contract follow.

    definition(spec)   what tools/list shows: name, title, inputSchema, annotations; the contract in `_meta`
    contract(spec)     what the host reads: replay class, conflict keys, deadline, aliases, whether it waits

A spec is data only. The function that does the work is bound to it elsewhere, so that a host, a
document generator or a test can read every tool without loading what runs it.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, assert_never

import msgspec
from msgspec import Meta

from perdure.protocol.eras import META_CONTRACT
from perdure.protocol.msgspec_types import prepare_type
from perdure.protocol.replay import Convergent, NeverReplay, ProbeRequired, ReplayClass
from perdure.protocol.tool_search import search_meta

Render = Literal["porcelain", "json"]
Detail = Literal["concise", "full"]
PathStyle = Literal["relative", "absolute"]
ReplayWord = Literal["convergent", "probe", "never"]

RENDERS: Final[tuple[Render, ...]] = ("porcelain", "json")
DETAILS: Final[tuple[Detail, ...]] = ("concise", "full")
PRESENTATION: Final = ("render", "detail")

_NAME = re.compile(r"[a-z0-9_]{1,64}")
_ALIAS = re.compile(r"[A-Za-z0-9_.\-]{1,128}")


class View(msgspec.Struct, frozen=True):
    """How a caller wants to see a result."""

    render: Render = "porcelain"
    detail: Detail = "concise"


DEFAULT_VIEW: Final = View()


class Contract(msgspec.Struct, frozen=True):
    """What the host must know about a tool before it dispatches a call to it."""

    replay: ReplayWord = "never"
    conflict: tuple[str, ...] = ()
    deadline_s: float = 60
    aliases: tuple[str, ...] = ()
    waits: bool = False


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool, declared. Contradictions are refused when the spec is made, not when it is called."""

    name: str
    title: str
    description: str
    params: type[msgspec.Struct]
    replay: ReplayClass
    aliases: tuple[str, ...] = ()
    conflict: tuple[str, ...] = ()
    deadline_s: float = 60
    waits: bool = False
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False
    open_world: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"tool name {self.name!r} must match [a-z0-9_]{{1,64}}")
        if any(not _ALIAS.fullmatch(alias) for alias in self.aliases):
            raise ValueError(f"{self.name}: bad alias")
        if len({self.name, *self.aliases}) != 1 + len(self.aliases):
            raise ValueError(f"{self.name}: an alias repeats a name")
        if self.read_only and self.destructive:
            raise ValueError(f"{self.name}: a tool that only reads destroys nothing")
        if isinstance(self.replay, Convergent) and not (self.read_only or self.idempotent):
            raise ValueError(f"{self.name}: a convergent tool only reads or is idempotent")
        if not self.deadline_s > 0:
            raise ValueError(f"{self.name}: the deadline must be positive")
        names = {field.encode_name for field in msgspec.structs.fields(self.params)}
        if taken := names.intersection(PRESENTATION):
            raise ValueError(f"{self.name}: {', '.join(sorted(taken))} belongs to every tool")
        for pointer in self.conflict:
            if not pointer.startswith("/") or _first(pointer) not in names:
                raise ValueError(f"{self.name}: conflict {pointer!r} names no argument")


def _first(pointer: str) -> str:
    return pointer[1:].split("/", 1)[0].replace("~1", "/").replace("~0", "~")


def arg(
    description: str = "",
    *,
    aliases: tuple[str, ...] = (),
    path: PathStyle | None = None,
    json_text: bool = False,
    **bounds: Any,
) -> Meta:
    """The annotation of one argument; bounds (`ge`, `pattern`, …) are those of `msgspec.Meta`.

    One that the server's instructions explain for all tools needs no description of its own. With `json_text`, JSON is
    also taken as it is, and becomes its text.
    """
    extra = {"aliases": aliases, "path": path, "json_text": json_text}
    return Meta(description=description or None, extra=extra, **bounds)


def contract(spec: ToolSpec) -> Contract:
    word: ReplayWord
    match spec.replay:
        case Convergent():
            word = "convergent"
        case ProbeRequired():
            word = "probe"
        case NeverReplay():
            word = "never"
        case _:
            assert_never(spec.replay)
    return Contract(word, spec.conflict, spec.deadline_s, spec.aliases, spec.waits)


def definition(spec: ToolSpec) -> dict[str, Any]:
    """The tool as `tools/list` shows it, the host's contract included."""
    return {
        "name": spec.name,
        "title": spec.title,
        "description": spec.description,
        "inputSchema": input_schema(spec.params),
        "annotations": _annotations(spec),
        "_meta": {META_CONTRACT: msgspec.to_builtins(contract(spec)), **search_meta(spec.name)},
    }


def public_definition(spec: ToolSpec) -> dict[str, Any]:
    """The tool as a client of the host sees it: without the contract, which is between worker and host."""
    found = definition(spec)
    del found["_meta"][META_CONTRACT]
    return found if found["_meta"] else {key: value for key, value in found.items() if key != "_meta"}


def _annotations(spec: ToolSpec) -> dict[str, bool]:
    """The other hints say nothing of a tool that only reads. A tool is not idempotent unless it says so."""
    if spec.read_only:
        return {"readOnlyHint": True, "openWorldHint": spec.open_world}
    known = {"destructiveHint": spec.destructive, "openWorldHint": spec.open_world}
    return {"idempotentHint": True, **known} if spec.idempotent else known


# The server's instructions name their choices: a list that is read at every start must be short.
_PRESENTATION_SCHEMA: Final[dict[str, Any]] = {"render": {"type": "string"}, "detail": {"type": "string"}}


def input_schema(params: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, self-contained: several clients do not follow `$ref`."""
    (root,), components = msgspec.json.schema_components((prepare_type(params),), ref_template="{name}")
    body = _inlined(root, components, ())
    # That what is left out is false or empty goes without saying.
    for declared in body["properties"].values():
        if declared.get("default", ...) in (False, "", {}, []):
            del declared["default"]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {**body["properties"], **_PRESENTATION_SCHEMA},
        "additionalProperties": False,
    }
    if body.get("required"):
        schema["required"] = body["required"]
    return schema


_VALUES: Final = frozenset({"default", "enum", "const", "examples"})
# A refusal names the bound that was met, which is seldom; the list is read at every start.
_BOUNDS: Final = frozenset({"minimum", "maximum", "maxLength", "minItems", "maxItems"})


def _inlined(node: Any, components: dict[str, Any], open_refs: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, components, open_refs) for item in node]
    if not isinstance(node, dict):
        return node
    if (name := node.get("$ref")) is not None:
        if name in open_refs:
            raise ValueError(f"{name} contains itself: the arguments of a tool must be finite")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _inlined({**components[name], **beside}, components, (*open_refs, name))
    schema = {
        key: value if key in _VALUES else _inlined(value, components, open_refs)
        for key, value in node.items()
        # A struct's class name means nothing to a caller; an argument may be called "title".
        if (key != "title" or not isinstance(value, str)) and not (key in _BOUNDS and isinstance(value, int))
    }
    if "properties" in schema and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    if schema.get("additionalProperties") is True:
        del schema["additionalProperties"]  # it goes without saying
    if "enum" in schema:
        # It goes without saying, but some models' services refuse the whole list where it does.
        schema = {"type": "string", **schema}
    return _optional(schema)


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """An argument that may be left out says what it is, and not that null would be taken for nothing as well."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(options) != 1 or schema.get("default", ...) is not None:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**options[0], **rest}

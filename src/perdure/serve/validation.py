"""The headers of a 2026-07-28 request over HTTP: they must say what its body says, before any server gets it.

Proxies route by these headers, so a request in which the two differ is refused:

| header | repeats |
|---|---|
| `MCP-Protocol-Version` | `_meta`'s protocol version |
| `Mcp-Method` | the method |
| `Mcp-Name` | the name of a tool or prompt, the URI of a resource |
| `Mcp-Param-*` | arguments that a tool's schema marks with `x-mcp-header` |
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from perdure.http.server import Headers
from perdure.protocol import eras
from perdure.protocol.frames import (
    METHOD_NOT_FOUND,
    Members,
    Request,
    members_if_clear,
    text_if_clear,
)

HEADER_MISMATCH: Final = -32020
STATUS: Final = {
    -32700: 400,
    -32600: 400,
    -32602: 400,
    HEADER_MISMATCH: 400,
    eras.MISSING_CAPABILITY: 400,
    eras.UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
NAMED: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(eras.MODERN_TASK_METHODS, "taskId"),
}
REMOVED: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
ROUTING: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_WRAPPED: Final = re.compile(r"=\?base64\?(.*)\?=")
HEADER_KEYWORD: Final = "x-mcp-header"
PREFIX: Final = "mcp-param-"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]{1,1000})(?:\.0{1,1000})?")
_KEYWORD: Final = HEADER_KEYWORD.encode()


class Rejection(msgspec.Struct, frozen=True):
    """A JSON-RPC error for a request that no server gets."""

    code: int
    message: str
    data: Any = None


def check_request(request: Request, headers: Headers) -> Rejection | None:
    """The first rule that a request breaks; None where it breaks none."""
    values: dict[bytes, str] = {}
    for name, value in headers:
        if name in ROUTING:
            if name in values:
                return Rejection(HEADER_MISMATCH, f"the header {name.decode()} is there twice: send it once.")
            values[name] = value.decode("latin-1")
    params = members_if_clear(request.params)
    meta = members_if_clear(params.get("_meta")) if "_meta" in params else {}
    fault = eras.check_envelope(meta)
    if fault is not None and fault.code != eras.UNSUPPORTED_VERSION:
        return Rejection(fault.code, fault.message)
    version = text_if_clear(meta[eras.META_VERSION])
    if values.get(b"mcp-protocol-version") != version:
        return Rejection(
            HEADER_MISMATCH, "the header mcp-protocol-version must name the version that params._meta names."
        )
    if values.get(b"mcp-method") != request.method:
        return Rejection(HEADER_MISMATCH, "the header mcp-method must name the method of the request.")
    target = text_if_clear(params.get(NAMED.get(request.method, "")))
    if target is not None and decode_value(values.get(b"mcp-name")) != target:
        return Rejection(
            HEADER_MISMATCH, f"the header mcp-name must be the same as params.{NAMED[request.method]}."
        )
    if fault is not None:
        return Rejection(fault.code, fault.message, fault.data)
    if request.method in REMOVED:
        return Rejection(
            METHOD_NOT_FOUND, f"{request.method} is not part of {version}.", {"method": request.method}
        )
    return None


def decode_value(value: str | None) -> str | None:
    """The text of a header: as it is, or in base64 where a header cannot hold it. None where the base64 is broken."""
    if value is None or (wrapped := _WRAPPED.fullmatch(value)) is None:
        return value
    try:
        data = b64decode(wrapped[1], validate=True)
        return data.decode() if b64encode(data).decode() == wrapped[1] else None
    except ValueError:
        return None


# --- arguments in headers ---------------------------------------------------------------------------------------

Path = tuple[str, ...]
Declared = tuple[Path, str, str]


def check_arguments(definition: bytes, params: Members, headers: Headers) -> Rejection | None:
    """The first `Mcp-Param-*` header that contradicts the arguments. `definition` is the tool's, as its server sent it."""
    if _KEYWORD not in definition:
        return None
    declared = _declared(msgspec.json.decode(definition).get("inputSchema"))
    if declared is None:
        return None  # clients leave such a tool out, and send no headers for it
    arguments = msgspec.json.decode(params["arguments"]) if "arguments" in params else {}
    for path, name, kind in declared:
        header = PREFIX + name.lower()
        values = [value.decode("latin-1") for key, value in headers if key == header.encode()]
        if (difference := _difference(_at(arguments, path), kind, values)) is not None:
            return Rejection(HEADER_MISMATCH, f"the header Mcp-Param-{name} {difference} {'.'.join(path)!r}")
    return None


def _declared(schema: Any) -> list[Declared] | None:
    """Every property with a header of its own. None where one is declared in a way that the protocol rules out."""
    declared: list[Declared] = []
    for path, position in _positions(schema, ()):
        if HEADER_KEYWORD not in position:
            continue
        name, kind = position[HEADER_KEYWORD], position.get("type")
        if not path or not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            return None
        if kind not in ("string", "integer", "boolean") or name.lower() in {
            other.lower() for _, other, _ in declared
        }:
            return None
        declared.append((path, name, kind))
    return declared


def _positions(schema: Any, path: Path | None) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Each schema within a schema, with the properties that lead to it; None once it takes more than properties."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, inner in schema.items():
        if key == "properties" and isinstance(inner, dict):
            for name, schema_of_name in inner.items():
                yield from _positions(schema_of_name, None if path is None else (*path, name))
        elif key in _ONE:
            yield from _positions(inner, None)
        elif key in _MANY and isinstance(inner, list):
            for branch in inner:
                yield from _positions(branch, None)
        elif key in _NAMED and isinstance(inner, dict):
            for branch in inner.values():
                yield from _positions(branch, None)


_ONE: Final = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
)
_MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})


def _at(arguments: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments


def _difference(value: Any, kind: str, headers: list[str]) -> str | None:
    """How a header and an argument differ, in words; None where they do not. null counts as an absent argument."""
    if len(headers) > 1:
        return "is there twice for"
    if value is None or isinstance(value, dict | list):
        return "is there without the argument" if headers else None
    if not headers:
        return "is missing for the argument"
    text = decode_value(headers[0])
    if text is None:
        return "is not readable base64 for the argument"
    if kind == "integer" and _is_whole(value) and (number := _DECIMAL.fullmatch(text)) is not None:
        is_same = int(number[1]) == int(value)
    else:
        is_same = text == _written(value)
    return None if is_same else "differs from the argument"


def _is_whole(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

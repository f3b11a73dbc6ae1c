"""Arguments that a tool wants repeated in headers (`x-mcp-header` in its schema): each header says what the body says.

Whoever routes by such a header relies on it, so a call in which the two differ is refused before anybody works on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from perdure.protocol.frames import Members
from perdure.serve.ladder import HEADER_MISMATCH, Rejection, unwrapped

MARK: Final = "x-mcp-header"
PREFIX: Final = "mcp-param-"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL: Final = re.compile(r"(-?[0-9]{1,1000})(?:\.0{1,1000})?")
_MARK: Final = MARK.encode()

Path = tuple[str, ...]
Declared = tuple[Path, str, str]


def check(definition: bytes, params: Members, headers: list[tuple[bytes, bytes]]) -> Rejection | None:
    """The first header that contradicts the arguments; `definition` is the tool's, as its server gave it."""
    if _MARK not in definition:
        return None
    declared = _declared(msgspec.json.decode(definition).get("inputSchema"))
    if declared is None:
        return None  # clients leave such a tool out, and send no headers for it
    arguments = msgspec.json.decode(params["arguments"]) if "arguments" in params else {}
    for path, name, kind in declared:
        header = PREFIX + name.lower()
        given = [value.decode("latin-1") for key, value in headers if key == header.encode()]
        if (wrong := _differs(_at(arguments, path), kind, given)) is not None:
            return Rejection(HEADER_MISMATCH, f"the header Mcp-Param-{name} {wrong} {'.'.join(path)!r}")
    return None


def _declared(schema: Any) -> list[Declared] | None:
    """Every property with a header of its own. None where one is declared in a way that the protocol rules out."""
    found: list[Declared] = []
    for path, position in _positions(schema, ()):
        if MARK not in position:
            continue
        name, kind = position[MARK], position.get("type")
        if not path or not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            return None
        if kind not in ("string", "integer", "boolean") or name.lower() in {one[1].lower() for one in found}:
            return None
        found.append((path, name, kind))
    return found


def _positions(schema: Any, path: Path | None) -> Iterator[tuple[Path | None, dict[str, Any]]]:
    """Each schema within a schema, with the properties that lead to it; None once it takes more than properties."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, inner in schema.items():
        if key == "properties" and isinstance(inner, dict):
            for name, one in inner.items():
                yield from _positions(one, None if path is None else (*path, name))
        elif key in _ONE:
            yield from _positions(inner, None)
        elif key in _MANY and isinstance(inner, list):
            for one in inner:
                yield from _positions(one, None)
        elif key in _NAMED and isinstance(inner, dict):
            for one in inner.values():
                yield from _positions(one, None)


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


def _differs(value: Any, kind: str, given: list[str]) -> str | None:
    """In what way a header and an argument contradict each other; null is an argument that is not there."""
    if len(given) > 1:
        return "is there twice for"
    if value is None or isinstance(value, dict | list):
        return "is there without the argument" if given else None
    if not given:
        return "is missing for the argument"
    said = unwrapped(given[0])
    if said is None:
        return "is not readable base64 for the argument"
    if kind == "integer" and _is_whole(value) and (found := _DECIMAL.fullmatch(said)) is not None:
        is_same = int(found[1]) == int(value)
    else:
        is_same = said == _written(value)
    return None if is_same else "differs from the argument"


def _is_whole(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

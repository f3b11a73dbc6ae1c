"""JSON text with comments and trailing commas as a tree of places, read only as far as it is looked into.

A client's file can hold megabytes of its own beside a few servers. So the whole text is checked by a decoder that is
written in C, and of the tree only the branches that somebody asks for are made. Where that decoder refuses a text, it
is gone through step by step, which gives the reason and its place.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from perdure.model import json_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Literal

MAX_DEPTH: Final = 200

_BLANK: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR: Final = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# What is not data, and the strings in which it would be.
_REMARK: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/|\ufeff', re.DOTALL)
_SPARE_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/|[\[\]{}]', re.DOTALL)


class JsonProblem(ValueError):
    """Text that is not JSON, with the place where that shows."""

    def __init__(self, reason: str, text: str, at: int) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class Element:
    """A member or an item, from its key on; `comma` is where the comma after it stands, or -1."""

    __slots__ = ("comma", "key", "node", "start")

    def __init__(self, key: str, start: int, node: Node, comma: int) -> None:
        self.key = key
        self.start = start
        self.node = node
        self.comma = comma

    @property
    def end(self) -> int:
        return self.node.end


class Node:
    """A value and where it stands. `elements` are the members of an object, or the items of a list."""

    __slots__ = ("_elements", "_text", "end", "kind", "start")

    def __init__(self, text: str, kind: Literal["object", "list", "scalar"], start: int, end: int) -> None:
        self._text = text
        self._elements: tuple[Element, ...] | None = None
        self.kind = kind
        self.start = start
        self.end = end

    @property
    def source(self) -> str:
        return self._text[self.start : self.end]

    @property
    def value(self) -> Any:
        """Of a scalar."""
        return json.loads(self.source) if self.kind == "scalar" else None

    @property
    def elements(self) -> tuple[Element, ...]:
        if self._elements is None:
            self._elements = () if self.kind == "scalar" else tuple(_elements(self._text, self))
        return self._elements


@lru_cache(maxsize=16)
def parse(text: str) -> Node:
    """The tree of a text. Raises JsonProblem."""
    try:
        decoded(text)
    except (ValueError, RecursionError):
        _examine(text)
        raise JsonProblem("a number has too many digits", text, 0) from None
    return _node(text, _skip(text, 0))


def decoded(text: str) -> Any:
    """What a text says, by the fast decoder: as it is, or without what is not data. Raises ValueError, RecursionError."""
    try:
        return json_values.loads(text)
    except ValueError:
        plain = _REMARK.sub(_blanked, text)
        return json_values.loads(_SPARE_COMMA.sub(_blanked, plain))


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[0][0] == '"' else " "


# --- a sound text, branch by branch ---------------------------------------------------------------------------


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _node(text: str, at: int) -> Node:
    mark = text[at]
    if mark in "{[":
        return Node(text, "object" if mark == "{" else "list", at, _closing(text, at))
    found = (_STRING if mark == '"' else _SCALAR).match(text, at)
    assert found is not None
    return Node(text, "scalar", at, found.end())


def _closing(text: str, at: int) -> int:
    """Behind the bracket that closes the one at a place."""
    depth = 0
    for found in _BRACKET.finditer(text, at):
        mark = text[found.start()]
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth == 0:
                return found.end()
    raise AssertionError("a sound text closes what it opens")


def _elements(text: str, holder: Node) -> list[Element]:
    found: list[Element] = []
    at = _skip(text, holder.start + 1)
    while at < holder.end - 1:
        first, key = at, ""
        if holder.kind == "object":
            name = _node(text, at)
            key = name.value
            at = _skip(text, _skip(text, name.end) + 1)
        node = _node(text, at)
        at = _skip(text, node.end)
        comma = at if text[at] == "," else -1
        found.append(Element(key, first, node, comma))
        at = _skip(text, at + 1) if comma >= 0 else at
    return found


# --- a text that may not be sound, step by step -------------------------------------------------------------------


def _examine(text: str) -> None:
    """Raises JsonProblem at the first place where it is not JSON."""
    at = _skip(text, _past_value(text, _skip(text, 0), 0))
    if at != len(text):
        raise JsonProblem("something stands after the end", text, at)


def _past_value(text: str, at: int, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise JsonProblem("nested too deeply", text, at)
    mark = text[at : at + 1]
    if mark in ("{", "["):
        return _past_holder(text, at, depth)
    if mark == '"':
        return _past_string(text, at)
    found = _SCALAR.match(text, at)
    if found is None:
        raise JsonProblem("a value is missing" if mark in ("", "}", "]", ",") else "not a value", text, at)
    return found.end()


def _past_string(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    if found is None:
        raise JsonProblem("a text that does not end, or holds what must be escaped", text, at)
    return found.end()


def _past_holder(text: str, start: int, depth: int) -> int:
    close = "}" if text[start] == "{" else "]"
    at = _skip(text, start + 1)
    while text[at : at + 1] != close:
        if close == "}":
            if text[at : at + 1] != '"':
                raise JsonProblem("a key is missing", text, at)
            at = _skip(text, _past_string(text, at))
            if text[at : at + 1] != ":":
                raise JsonProblem("a colon is missing", text, at)
            at = _skip(text, at + 1)
        at = _skip(text, _past_value(text, at, depth + 1))
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != close:
            raise JsonProblem(f"a comma or {close} is missing", text, at)
    return at + 1

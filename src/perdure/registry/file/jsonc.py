"""JSON with comments and trailing commas, edited by span: one value changes, every other byte stays.

    parse(text)                      the tree of values, each with its place
    find(node, path)                 the value at a path of keys and, in lists, positions
    put(text, path, value)           the new text
    remove(text, path)

One parser reads every text. Comments (`//`, `/* */`) and trailing commas are read and kept; so are a byte order mark,
the indentation, the line endings and the order of keys. Of a repeated key in an object the last counts, as for other readers
of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Literal

MAX_DEPTH: Final = 500
DEFAULT_INDENT: Final = "  "

Kind = Literal["object", "list", "scalar"]
Path = Sequence[str | int]

_BLANK: Final = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_LITERAL: Final = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_REST_OF_LINE: Final = re.compile(r"[ \t]*(?:/\*[^\r\n]*?\*/[ \t]*)*(?://[^\r\n]*)?(?=[\r\n]|$)")


class JsonProblem(ValueError):
    """Text that is not JSON, with the place of the error."""

    def __init__(self, reason: str, text: str, at: int) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class Element:
    """A member or an item, from its key on; `comma` is the place of the comma after it, or -1."""

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
    """A value and its place. `elements` are the members of an object, or the items of a list."""

    __slots__ = ("elements", "end", "kind", "start", "value")

    def __init__(
        self, kind: Kind, start: int, end: int, value: Any, elements: Sequence[Element] = ()
    ) -> None:
        self.kind = kind
        self.start = start
        self.end = end
        self.value = value
        self.elements = elements


# --- reading -----------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def parse(text: str) -> Node:
    """The tree of a text. Raises JsonProblem."""
    try:
        root = _value(text, _skip(text, 0), 0)
    except RecursionError:  # a caller that is deep in the stack itself
        raise JsonProblem("nested too deeply", text, 0) from None
    end = _skip(text, root.end)
    if end != len(text):
        raise JsonProblem("text after the end", text, end)
    return root


def _skip(text: str, at: int) -> int:
    """After blanks and comments."""
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _value(text: str, at: int, depth: int) -> Node:
    mark = text[at : at + 1]
    if mark not in ("{", "["):
        return _scalar(text, at)
    if depth > MAX_DEPTH:
        raise JsonProblem("nested too deeply", text, at)
    is_object, close = mark == "{", "}" if mark == "{" else "]"
    elements: list[Element] = []
    start, at = at, _skip(text, at + 1)
    while text[at : at + 1] != close:
        first, key = at, ""
        if is_object:
            key, at = _key(text, at)
        node = _value(text, at, depth + 1)
        at = _skip(text, node.end)
        comma = at if text[at : at + 1] == "," else -1
        elements.append(Element(key, first, node, comma))
        if comma >= 0:
            at = _skip(text, at + 1)
        elif text[at : at + 1] != close:
            raise JsonProblem(f"a comma or {close} is missing", text, at)
    if is_object:
        members = {element.key: element.node.value for element in elements}
        return Node("object", start, at + 1, members, elements)
    return Node("list", start, at + 1, [element.node.value for element in elements], elements)


def _key(text: str, at: int) -> tuple[str, int]:
    """A key, and the place of its value."""
    if text[at : at + 1] != '"':
        raise JsonProblem("a key is missing", text, at)
    name = _scalar(text, at)
    at = _skip(text, name.end)
    if text[at : at + 1] != ":":
        raise JsonProblem("a colon is missing", text, at)
    return name.value, _skip(text, at + 1)


def _scalar(text: str, at: int) -> Node:
    mark = text[at : at + 1]
    if mark == '"':
        string = _STRING.match(text, at)
        if string is None:
            raise JsonProblem("a text that does not end, or holds what must be escaped", text, at)
        source = string[0]
        return Node("scalar", at, string.end(), json.loads(source) if "\\" in source else source[1:-1])
    literal = _LITERAL.match(text, at)
    if literal is None:
        raise JsonProblem("a value is missing" if mark in ("", "}", "]", ",") else "not a value", text, at)
    source = literal[0]
    try:
        return Node("scalar", at, literal.end(), _WORDS[source] if source in _WORDS else json.loads(source))
    except ValueError:
        raise JsonProblem("a number has too many digits", text, at) from None


def find(node: Node, path: Path) -> Node | None:
    """The value at a path, or None."""
    for step in path:
        at = _position(node, step)
        if at is None:
            return None
        node = node.elements[at].node
    return node


# --- writing -----------------------------------------------------------------------------------------


def put(text: str, path: Path, value: Any) -> str:
    """The text with this value at this path: replaced, or added at the end of its object or list.

    Missing objects on the path are created. Raises JsonProblem if another value is on the path.
    """
    root = parse(text)
    node = root
    for depth, step in enumerate(path):
        at = _position(node, step)
        if at is None:
            if node.kind != ("list" if isinstance(step, int) else "object"):
                raise JsonProblem(
                    f"no {'list' if isinstance(step, int) else 'object'} here", text, node.start
                )
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return append(text, node, None if isinstance(step, int) else step, value)
        node = node.elements[at].node
    return replace(text, node, value)


def remove(text: str, path: Path) -> str:
    """The text without the value at this path; unchanged if there is none."""
    holder = find(parse(text), path[:-1])
    at = None if holder is None else _position(holder, path[-1])
    return text if holder is None or at is None else without(text, holder, at)


def replace(text: str, node: Node, value: Any) -> str:
    """The text with another value in place of this node."""
    return text[: node.start] + render(text, value, _indent_at(text, node.start)) + text[node.end :]


def append(text: str, holder: Node, key: str | None, value: Any) -> str:
    """The text with one more member or item at the end of an object or list."""
    return append_all(text, holder, [(key, value)])


def append_all(text: str, holder: Node, members: Sequence[tuple[str | None, Any]]) -> str:
    """The same with several, in order."""
    if not holder.elements:
        return _first(text, holder, members)
    last = holder.elements[-1]
    is_wide = _is_alone_on_its_line(text, last.start) or _breaks(text, holder.start, last.start)
    indent = _indent_at(text, last.start)
    lead = _newline(text) + indent if is_wide else " "
    element = ("," + lead).join(_element(text, key, value, indent) for key, value in members)
    if last.comma >= 0:
        at = _after_line(text, last.comma + 1) if is_wide else last.comma + 1
        return text[:at] + lead + element + "," + text[at:]
    at = _after_line(text, last.end) if is_wide else last.end
    return text[: last.end] + "," + text[last.end : at] + lead + element + text[at:]


def without(text: str, holder: Node, *positions: int) -> str:
    """The text without some elements, their commas, and their lines if nothing else is on them."""
    cuts: list[tuple[int, int]] = []
    for at in positions:
        gone = holder.elements[at]
        has_comment = gone.comma >= 0 and bool(text[gone.end : gone.comma].strip())
        cuts.append(
            _whole_line(text, gone.start, gone.end if has_comment or gone.comma < 0 else gone.comma + 1)
        )
        if has_comment:  # before the comma: it stays, and the comma is removed alone
            cuts.append((gone.comma, gone.comma + 1))
    kept = [element for at, element in enumerate(holder.elements) if at not in positions]
    if holder.elements[-1].comma < 0 and kept and kept[-1].comma >= 0:
        cuts.append((kept[-1].comma, kept[-1].comma + 1))
    parts, done = [], 0
    for first, last in sorted(cuts):
        parts.append(text[done:first])
        done = max(done, last)
    return "".join([*parts, text[done:]])


def render(text: str, value: Any, indent: str) -> str:
    """A value as this text would write it, for a line with this indentation."""
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return (_newline(text) + indent).join(lines)


def _position(node: Node, step: str | int) -> int | None:
    if isinstance(step, int):
        return step if node.kind == "list" and 0 <= step < len(node.elements) else None
    if node.kind != "object":
        return None
    return next((at for at in reversed(range(len(node.elements))) if node.elements[at].key == step), None)


# --- style of the text -------------------------------------------------------------------------------


def _first(text: str, holder: Node, members: Sequence[tuple[str | None, Any]]) -> str:
    """The first elements of an empty object or list, each on its own line; comments in it stay."""
    outer = _indent_at(text, holder.start)
    newline = _newline(text)
    inner = outer + _unit(text)
    kept = text[holder.start + 1 : holder.end - 1].rstrip()
    element = ("," + newline + inner).join(_element(text, key, value, inner) for key, value in members)
    return (
        text[: holder.start + 1] + kept + newline + inner + element + newline + outer + text[holder.end - 1 :]
    )


def _element(text: str, key: str | None, value: Any, indent: str) -> str:
    shown = render(text, value, indent)
    return shown if key is None else f"{json.dumps(key, ensure_ascii=False)}: {shown}"


def _newline(text: str) -> str:
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _line_start(text: str, at: int) -> int:
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    return start + 1 if text[start : start + 1] == "\ufeff" else start


def _indent_at(text: str, at: int) -> str:
    """The indentation of the line on which a place is."""
    line = text[_line_start(text, at) : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_alone_on_its_line(text: str, at: int) -> bool:
    return not text[_line_start(text, at) : at].strip()


def _breaks(text: str, start: int, end: int) -> bool:
    return "\n" in text[start:end]


def _after_line(text: str, at: int) -> int:
    """After a comment that ends the line; `at` itself if there is more on it."""
    rest = _REST_OF_LINE.match(text, at)
    return rest.end() if rest and rest[0].strip() else at


def _whole_line(text: str, start: int, end: int) -> tuple[int, int]:
    """A span widened to its lines if nothing else is on them; else without the blanks before it."""
    first = _line_start(text, start)
    last = end
    while text[last : last + 1] in (" ", "\t"):
        last += 1
    is_own = not text[first:start].strip()
    if is_own and text[last : last + 1] in ("\r", "\n"):
        last += 2 if text[last : last + 2] == "\r\n" else 1
        return first, last
    if text[last : last + 1] in ("}", "]"):
        while start > 0 and text[start - 1] in " \t":
            start -= 1
        return start, end
    return start, last


def _unit(text: str) -> str:
    """One step of indentation: that of the first indented line."""
    indent = re.search(r"[\r\n]([ \t]+)[^ \t\r\n/]", text)
    return indent[1] if indent else DEFAULT_INDENT

"""Splices that change a block or flow of a YAML text: a line more, a line less, another value."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from perdure.registry.clients.splices import (
    Splice,
    Uneditable,
    column,
    line_end,
    line_start,
    newline_of,
    without_member,
)
from perdure.registry.clients.yaml_spans import Node

# Words that no YAML reader of any age takes for anything but themselves.
_PLAIN: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+-]*")
_NOT_PLAIN: Final = re.compile(
    r"y|n|yes|no|on|off|true|false|null|nan|inf|\.nan|\.inf|[.0-9_]*|\.[0-9].*|.*[:#].*|[-.]{3}.*",
    re.IGNORECASE,
)
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def written(value: Any) -> str:
    """A value on one line, in a form that every YAML reader takes alike."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(written(one) for one in value)}]"
        case dict():
            inside = ", ".join(f"{quoted(key)}: {written(one)}" for key, one in value.items())
            return f"{{{inside}}}"
    raise Uneditable(f"YAML has no {type(value).__name__}")


def quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _NOT_PLAIN.fullmatch(text):
        return text
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def indent_of(text: str, node: Node) -> str:
    """How far the entries of a block are indented: by what stands before the first one."""
    first = node.start
    start = line_start(text, first)
    if text[start:first].strip():
        raise Uneditable("the first entry does not begin a line")
    return text[start:first]


def after_colon(text: str, node: Node) -> int:
    return text.rfind(":", 0, node.start + 1) + 1 if text[node.start - 1 : node.start] != ":" else node.start


def block_end(text: str, end: int) -> int:
    """Behind the last line of something that ends at `end`."""
    return end if end > 0 and text[end - 1] == "\n" else line_end(text, end)


def end_of_document(text: str, top: Node | None) -> int:
    """Before an explicit end of the document, else the end of the text."""
    after = 0 if top is None else top.end
    found = re.compile(r"^\.\.\.(?=\s|$)", re.MULTILINE).search(text, after)
    return found.start() if found else len(text)


def new_lines(text: str, at: int, lines: str) -> Splice:
    return Splice(at, at, lines if at == 0 or text[at - 1] == "\n" else newline_of(text) + lines)


def new_pair(text: str, mapping: Node, key: str, value: Any) -> Splice:
    assert mapping.pairs is not None
    pair = f"{quoted(key)}: {written(value)}"
    if mapping.is_flow:
        if not mapping.pairs:
            return Splice(mapping.start, mapping.end, f"{{{pair}}}")
        at = mapping.pairs[-1][1].end
        return Splice(at, at, f", {pair}")
    indent = " " * column(text, mapping.pairs[0][0].start)
    at = block_end(text, mapping.end)
    return new_lines(text, at, f"{indent}{pair}{newline_of(text)}")


def new_value(text: str, mapping: Node, place: Node, value: Any) -> Splice:
    """In the place of the old value; one that takes lines of its own gives them up."""
    if mapping.is_flow or text.count("\n", after_colon(text, place), place.end) == 0:
        return Splice(place.start, place.end, ("" if text[place.start - 1] != ":" else " ") + written(value))
    start = after_colon_of(text, mapping, place)
    end = place.end
    tail = newline_of(text) if end > 0 and text[end - 1] == "\n" else ""
    if "#" in text[start : place.start]:
        raise Uneditable("a comment stands between the key and its value")
    return Splice(start, end, f" {written(value)}{tail}")


def after_colon_of(text: str, mapping: Node, place: Node) -> int:
    key = next(key for key, value in mapping.pairs or () if value is place)
    return text.index(":", key.end) + 1


def without_pair(text: str, mapping: Node, index: int) -> Splice:
    assert mapping.pairs is not None
    key, value = mapping.pairs[index]
    if mapping.is_flow:
        return without_member([(k.start, v.end) for k, v in mapping.pairs], index)
    start = line_start(text, key.start)
    if not text[start : key.start].strip():
        return Splice(start, block_end(text, value.end), "")
    if index + 1 == len(mapping.pairs):
        raise Uneditable("the only line of an entry cannot be taken out of it")
    following = mapping.pairs[index + 1][0].start
    if text[value.end : following].strip():
        raise Uneditable("a comment stands between the first two lines of an entry")
    return Splice(key.start, following, "")


def without_item(text: str, sequence: Node, index: int) -> Splice:
    assert sequence.items is not None
    if sequence.is_flow:
        return without_member([(one.start, one.end) for one in sequence.items], index)
    item = sequence.items[index]
    dash = text.rfind("-", 0, item.start)
    between = text[dash + 1 : item.start]
    start = line_start(text, dash)
    if text[start:dash].strip() or between.strip():
        raise Uneditable("an entry of the list does not begin a line")
    return Splice(start, block_end(text, item.end), "")

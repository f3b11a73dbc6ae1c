"""JSON with or without comments, edited in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from perdure.registry.clients.config_text import Key, Path, Scalar, Uneditable, is_blank, newline_of
from perdure.registry.file import jsonc
from perdure.registry.file.jsonc import JsonProblem, Node


class JsonSyntax:
    """A key that stands twice is refused by the check of the caller: other readers take the last one."""

    def load(self, text: str) -> Any:
        return parse(text).value

    def put(self, text: str, path: Path, members: Mapping[Key, Any]) -> str:
        if is_blank(text):
            text = f"{text}{{}}{newline_of(text)}"
        added = dict(members)
        for key in members:
            if jsonc.find(parse(text), (*path, key)) is not None:
                text = put_value(text, (*path, key), added.pop(key))
        holder = jsonc.find(parse(text), path)
        if not added:
            return text
        if holder is None or holder.value is None:
            return put_value(text, path, added)
        return jsonc.append_all(text, holder, [(str(key), value) for key, value in added.items()])

    def remove(self, text: str, path: Path, keys: Collection[Key]) -> str:
        holder = jsonc.find(parse(text), path)
        if holder is None:
            return text
        last = {element.key: at for at, element in enumerate(holder.elements) if element.key in keys}
        return jsonc.without(text, holder, *last.values())

    def scalars(self, text: str) -> list[Scalar]:
        return list(_scalars(parse(text), ()))


def parse(text: str) -> Node:
    """An empty file is an empty object, as clients take it."""
    try:
        return jsonc.parse("{}" if is_blank(text) else text)
    except JsonProblem as problem:
        raise Uneditable(f"not valid JSON (line {problem.line}, column {problem.column})") from None


def parse_object(text: str) -> Node:
    node = parse(text)
    if node.kind != "object":
        raise Uneditable("the file is not an object")
    return node


def put_value(text: str, path: Path, value: Any) -> str:
    try:
        return jsonc.put(text, path, value)
    except JsonProblem as problem:
        raise Uneditable(str(problem)) from None


def _scalars(node: Node, path: Path) -> Iterator[Scalar]:
    if node.kind == "scalar":
        yield Scalar(path, node.start, node.end, node.value if isinstance(node.value, str) else "")
    for index, element in enumerate(node.elements):
        yield from _scalars(element.node, (*path, index if node.kind == "list" else element.key))

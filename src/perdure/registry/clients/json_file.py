"""Servers in a JSON file, with or without comments: members of one object, changed in place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from perdure.registry.clients.text_edit import Scalar, Uneditable, newline_of
from perdure.registry.file import jsonc
from perdure.registry.file.jsonc import JsonProblem, Node, parse


class JsonText:
    """`root` is the path of the object that holds the servers."""

    def __init__(self, root: tuple[str, ...]) -> None:
        self.root = root

    def servers(self, text: str) -> dict[str, Any]:
        top = _parsed(text)
        node: Node | None = top
        for depth in range(len(self.root) + 1):
            node = jsonc.find(top, self.root[:depth])
            if node is None or _is_null(node):
                return {}
            if node.kind != "object":
                raise Uneditable(f"{'.'.join(self.root[:depth]) or 'the file'} is not an object")
        assert node is not None
        return dict(node.value)

    def scalars(self, text: str, start: int = 0, end: int | None = None) -> list[Scalar]:
        return list(_scalars(_parsed(text), (), start, len(text) if end is None else end))

    def with_entries(self, text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
        (name, fields), *others = entries.items()
        text = self._put(text, (name,), dict(fields))
        if others:
            holder = jsonc.find(_parsed(text), self.root)
            assert holder is not None
            text = jsonc.append_all(text, holder, [(other, dict(more)) for other, more in others])
        return self._checked(text, {(other,): dict(more) for other, more in entries.items()})

    def with_field(self, text: str, name: str, field: str, value: Any) -> str:
        return self._put(text, (name, field), value)

    def without_field(self, text: str, name: str, field: str) -> str:
        return self._checked(jsonc.remove(text, (*self.root, name, field)), {(name, field): None})

    def without_entries(self, text: str, names: Collection[str]) -> str:
        holder = jsonc.find(_parsed(text), self.root)
        if holder is None:
            return text
        last = {element.key: at for at, element in enumerate(holder.elements) if element.key in names}
        return self._checked(jsonc.without(text, holder, *last.values()), {(name,): None for name in names})

    def _put(self, text: str, path: tuple[str, ...], value: Any) -> str:
        if not text.strip("\ufeff \t\r\n"):
            text = f"{text}{{}}{newline_of(text)}"
        try:
            return self._checked(jsonc.put(text, (*self.root, *path), value), {path: value})
        except JsonProblem as problem:
            held = jsonc.find(_parsed(text), self.root)
            if held is None or not _is_null(held):
                raise Uneditable(f"{'.'.join(self.root)}: {problem}") from None
        return self._checked(jsonc.put(text, self.root, {path[0]: value}), {path: value})

    def _checked(self, text: str, meant: Mapping[tuple[str, ...], Any]) -> str:
        """The new text, if it says what was meant."""
        root = _parsed(text)
        for path, value in meant.items():
            node = jsonc.find(root, (*self.root, *path))
            if (None if node is None else node.value) != value:
                raise Uneditable("a key that stands twice cannot be changed in place")
        return text


def _is_null(node: Node) -> bool:
    return node.kind == "scalar" and node.value is None


def _parsed(text: str) -> Node:
    """An empty file is an empty object, as clients take it."""
    try:
        return parse(text if text.strip("\ufeff \t\r\n") else "{}")
    except JsonProblem as problem:
        raise Uneditable(f"not valid JSON (line {problem.line}, column {problem.column})") from None


def _scalars(node: Node, path: tuple[str | int, ...], start: int, end: int) -> Iterator[Scalar]:
    if node.kind == "scalar":
        value = node.value
        yield Scalar(path, node.start, node.end, value if isinstance(value, str) else "")
    for index, element in enumerate(node.elements):
        if node.kind == "list":
            yield from _scalars(element.node, (*path, index), node.start, node.end)
        elif element.end > start and element.start < end:
            yield from _scalars(element.node, (*path, element.key), start, end)

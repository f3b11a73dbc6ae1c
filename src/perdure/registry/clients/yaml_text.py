"""Servers in a YAML file, changed in place: a list of mappings (Continue) or a mapping of mappings (Goose).

Only the lines of one entry are written or removed; comments, order and quoting of all others stay as they are. After
each change the text is read again: if it does not say exactly what was meant, the change is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from perdure.registry.clients.splices import Scalar, Splice, Uneditable, newline_of, spliced
from perdure.registry.clients.yaml_edits import (
    after_colon,
    block_end,
    end_of_document,
    indent_of,
    new_lines,
    new_pair,
    new_value,
    quoted,
    without_item,
    without_pair,
    written,
)
from perdure.registry.clients.yaml_spans import Node, load, scalars, tree

NAME: Final = "name"


class YamlText:
    """`root` is the key above the servers; `is_list` where each names itself in a `name` of its own."""

    def __init__(self, root: str, *, is_list: bool) -> None:
        self.root = root
        self.is_list = is_list

    def servers(self, text: str) -> dict[str, Any]:
        """Of several with one name, the first; an item without a name is nobody's."""
        held = self._held(load(text))
        if isinstance(held, dict):
            return {str(name): value for name, value in held.items()}
        found: dict[str, Any] = {}
        for item in held:
            if (name := _name_of(item)) is not None:
                found.setdefault(name, {key: value for key, value in item.items() if key != NAME})
        return found

    def scalars(self, text: str, start: int = 0, end: int | None = None) -> list[Scalar]:
        """With the name of an entry in the path, where the file has its number."""
        load(text)
        names = self._names_by_index(text)
        return [
            one._replace(path=(self.root, names.get(one.path[1], one.path[1]), *one.path[2:]))
            if len(one.path) > 1 and one.path[0] == self.root
            else one
            for one in scalars(tree(text))
        ]

    def with_entry(self, text: str, name: str, fields: Mapping[str, Any]) -> str:
        meant = self._meant(text)
        held = self._held(meant)
        entry = {NAME: name, **fields} if self.is_list else dict(fields)
        if isinstance(held, list):
            held.append(entry)
        else:
            held[name] = entry
        return self._checked(spliced(text, [self._added(text, name, entry)]), meant)

    def with_field(self, text: str, name: str, field: str, value: Any) -> str:
        meant = self._meant(text)
        self._of(meant, name)[field] = value
        entry = self._entry(text, name)
        place = entry.get(field)
        if place is None:
            return self._checked(spliced(text, [new_pair(text, entry, field, value)]), meant)
        if place.is_alias:
            raise Uneditable(f"{name}: {field} is an alias of another value")
        return self._checked(spliced(text, [new_value(text, entry, place, value)]), meant)

    def without_field(self, text: str, name: str, field: str) -> str:
        meant = self._meant(text)
        del self._of(meant, name)[field]
        entry = self._entry(text, name)
        return self._checked(spliced(text, [without_pair(text, entry, entry.index(field))]), meant)

    def without_entry(self, text: str, name: str) -> str:
        meant = self._meant(text)
        held = self._held(meant)
        node = self._root_node(text)
        self._of(meant, name)
        if isinstance(held, list):
            index = next(i for i, item in enumerate(held) if _name_of(item) == name)
            del held[index]
            splice = without_item(text, node, index)
        else:
            del held[name]
            splice = without_pair(text, node, node.index(name))
        left = spliced(text, [splice])
        if not held and not node.is_flow:
            left = spliced(left, [self._emptied(left)])
        return self._checked(left, meant)

    # --- reading --------------------------------------------------------------------------------------------------

    def _meant(self, text: str) -> dict[str, Any]:
        data = load(text)
        if data is None:
            data = {}
        if not isinstance(data, dict):
            raise Uneditable("the file is not a mapping")
        held = copy.deepcopy(data.get(self.root))  # the rest is only looked at
        return {**data, self.root: ([] if self.is_list else {}) if held is None else held}

    def _held(self, data: Any) -> Any:
        if data is None:
            data = {}
        if not isinstance(data, dict):
            raise Uneditable("the file is not a mapping")
        held = data.get(self.root)
        if held is None:
            return [] if self.is_list else {}
        if not isinstance(held, list if self.is_list else dict):
            raise Uneditable(f"{self.root} is not a {'list' if self.is_list else 'mapping'}")
        return held

    def _of(self, meant: dict[str, Any], name: str) -> dict[str, Any]:
        held = self._held(meant)
        if isinstance(held, dict):
            found = held.get(name)
        else:
            found = next((item for item in held if _name_of(item) == name), None)
        if not isinstance(found, dict):
            raise Uneditable(f"{name} is not a mapping")
        return found

    def _names_by_index(self, text: str) -> dict[str | int, str]:
        held = self._held(load(text))
        if isinstance(held, dict):
            return {}
        return {index: name for index, item in enumerate(held) if (name := _name_of(item)) is not None}

    def _root_node(self, text: str) -> Node:
        top = tree(text)
        node = top.get(self.root) if top is not None else None
        if node is None or (node.pairs is None and node.items is None):
            raise Uneditable(f"{self.root} cannot be changed in place")
        return node

    def _entry(self, text: str, name: str) -> Node:
        node = self._root_node(text)
        if node.pairs is not None:
            found = node.get(name)
        else:
            index = next(i for i, one in self._names_by_index(text).items() if one == name)
            assert node.items is not None
            found = node.items[int(index)]
        if found is None or found.pairs is None:
            raise Uneditable(f"{name} is written in a way that cannot be changed in place")
        return found

    # --- writing --------------------------------------------------------------------------------------------------

    def _added(self, text: str, name: str, entry: dict[str, Any]) -> Splice:
        top = tree(text)
        newline = newline_of(text)
        if top is not None and top.is_flow:
            raise Uneditable("the whole file is one flow mapping")
        node = top.get(self.root) if top is not None else None
        if node is None:
            at = end_of_document(text, top)
            body = self._block(name, entry, "  ", newline)
            return new_lines(text, at, f"{self.root}:{newline}{body}")
        if node.is_alias:
            raise Uneditable(f"{self.root} is an alias of another value")
        children = node.items if node.items is not None else [value for _, value in node.pairs or ()]
        if not children:
            # Nothing, `null`, `[]` or `{}`: a block in its place.
            start = after_colon(text, node)
            return Splice(
                start, node.end, newline + self._block(name, entry, "  ", newline).removesuffix(newline)
            )
        if node.is_flow:
            return Splice(children[-1].end, children[-1].end, ", " + self._flow(name, entry))
        indent = indent_of(text, node)
        at = block_end(text, node.end)
        return new_lines(text, at, self._block(name, entry, indent, newline))

    def _block(self, name: str, entry: dict[str, Any], indent: str, newline: str) -> str:
        if self.is_list:
            lines = [f"{key}: {written(value)}" for key, value in entry.items()]
            body = f"{newline}{indent}  ".join(lines)
            return f"{indent}- {body}{newline}"
        lines = [f"{quoted(name)}:", *(f"  {quoted(key)}: {written(value)}" for key, value in entry.items())]
        return "".join(f"{indent}{line}{newline}" for line in lines)

    def _flow(self, name: str, entry: dict[str, Any]) -> str:
        return written(entry) if self.is_list else f"{quoted(name)}: {written(entry)}"

    def _emptied(self, text: str) -> Splice:
        """An empty list or mapping where the last entry stood."""
        top = tree(text)
        node = top.get(self.root) if top is not None else None
        if node is None:
            raise Uneditable(f"{self.root} cannot be changed in place")
        return Splice(node.start, node.end, " []" if self.is_list else " {}")

    def _checked(self, text: str, meant: Any) -> str:
        if load(text) != meant:
            raise Uneditable("the way this list is written cannot be changed in place")
        return text


def _name_of(item: Any) -> str | None:
    """What an item of a list calls itself."""
    name = item.get(NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None

"""Servers in a YAML file, changed in place: a list of mappings (Continue) or a mapping of mappings (Goose).

Only the lines of one entry are written or removed; comments, order and quoting of all others stay as they are. After
each change the text is read again: if it does not say exactly what was meant, the change is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from perdure.registry.clients.text_edit import (
    Scalar,
    Splice,
    Uneditable,
    column,
    line_end,
    line_start,
    newline_of,
    spliced,
    without_member,
)

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


# --- Splices that change a block or flow of a YAML text: a line more, a line less, another value ---


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


# --- Where everything stands in a YAML text: a tree of spans, from the parser's own events ---


class Node(msgspec.Struct):
    """`pairs` of a mapping, `items` of a sequence; neither for a scalar or an alias.

    `end` is where its own text ends: comments and blank lines that follow a block are not part of it.
    """

    start: int
    end: int
    text: str = ""
    is_flow: bool = False
    is_alias: bool = False
    pairs: list[tuple[Node, Node]] | None = None
    items: list[Node] | None = None

    def get(self, key: str) -> Node | None:
        return next((value for name, value in self.pairs or () if name.text == key), None)

    def index(self, key: str) -> int:
        """Where a key stands. Raises Uneditable where it comes from elsewhere, by a merge."""
        found = next((at for at, (name, _) in enumerate(self.pairs or ()) if name.text == key), None)
        if found is None:
            raise Uneditable(f"{key} is not written where it is used")
        return found


@lru_cache(maxsize=16)
def load(text: str) -> Any:
    """What a YAML text says; kept, so nobody changes it. Raises Uneditable with the place alone."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = False
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "unknown place"
        raise Uneditable(f"not valid YAML ({place})") from None
    except (YAMLError, ValueError, RecursionError):
        raise Uneditable("not valid YAML") from None


@lru_cache(maxsize=16)
def tree(text: str) -> Node | None:
    """The one document of a text that `load` has read; None for an empty one."""
    from ruamel.yaml import YAML

    events = iter(YAML(typ="safe", pure=True).parse(text))
    for event in events:
        name = type(event).__name__
        if name.endswith("EndEvent"):
            return None
        if name not in ("StreamStartEvent", "DocumentStartEvent"):
            found = _node(text, event, events)
            return None if found.start == found.end and found.pairs is None and found.items is None else found
    return None


def scalars(node: Node | None, path: tuple[str | int, ...] = ()) -> Iterator[Scalar]:
    if node is None:
        return
    if node.pairs is not None:
        for key, value in node.pairs:
            yield from scalars(value, (*path, key.text))
    elif node.items is not None:
        for index, item in enumerate(node.items):
            yield from scalars(item, (*path, index))
    elif node.end > node.start:
        yield Scalar(path, node.start, node.end, node.text)


def _node(text: str, event: Any, events: Iterator[Any]) -> Node:
    start, end = event.start_mark.index, event.end_mark.index
    match type(event).__name__:
        case "AliasEvent":
            return Node(start, end, is_alias=True)
        case "ScalarEvent":
            return Node(start, end, text=event.value)
        case "MappingStartEvent":
            return _mapping(text, event, events)
    return _sequence(text, event, events)


def _mapping(text: str, event: Any, events: Iterator[Any]) -> Node:
    found = Node(event.start_mark.index, event.end_mark.index, is_flow=bool(event.flow_style), pairs=[])
    assert found.pairs is not None
    for inner in events:
        if type(inner).__name__ == "MappingEndEvent":
            break
        key = _node(text, inner, events)
        value = _node(text, next(events), events)
        if value.start == value.end and value.pairs is None and value.items is None:
            # Nothing is written for it: the parser reports the next token's place.
            colon = text.find(":", key.end, value.end + 1)
            value.start = value.end = colon + 1 if colon >= 0 else key.end
        found.pairs.append((key, value))
    found.end = inner.end_mark.index if found.is_flow else _last(found, [value for _, value in found.pairs])
    return found


def _sequence(text: str, event: Any, events: Iterator[Any]) -> Node:
    found = Node(event.start_mark.index, event.end_mark.index, is_flow=bool(event.flow_style), items=[])
    assert found.items is not None
    for inner in events:
        if type(inner).__name__ == "SequenceEndEvent":
            break
        found.items.append(_node(text, inner, events))
    found.end = inner.end_mark.index if found.is_flow else _last(found, found.items)
    return found


def _last(node: Node, children: list[Node]) -> int:
    return children[-1].end if children else node.end

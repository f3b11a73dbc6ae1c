"""Where everything stands in a YAML text: a tree of spans, from the parser's own events.

Built from events and not from the parser's nodes, since an alias has a place of its own only there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from perdure.registry.clients.splices import Scalar, Uneditable


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

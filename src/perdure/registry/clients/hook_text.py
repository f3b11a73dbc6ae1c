"""Perdure's hooks in a client's JSON file: `hooks` holds a list for each event, and each list entries of anybody.

An entry is a hook (Cursor), or a group with a list of hooks and a pattern (the others). Ours is a hook whose command is
`perdure hook journal`, of whichever version and wherever it is installed, or one that is posted to `perdure serve`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from perdure.registry.clients.text_edit import Uneditable, newline_of
from perdure.registry.file import jsonc
from perdure.registry.file.jsonc import JsonProblem, Node

ROOT: Final = "hooks"
PROGRAM: Final = "perdure"
WORDS: Final = ("hook", "journal")
_ADDRESS: Final = re.compile(r"https?://[^/]+/hooks/[a-z-]+")
_Place = tuple[str | int, ...]


def with_hooks(text: str, entries: Mapping[str, Any], preset: Mapping[str, Any]) -> str:
    """The text with exactly these of ours. `preset` are members that the file needs beside them."""
    if not text.strip("\ufeff \t\r\n"):
        text = f"{text}{{}}{newline_of(text)}"
    root = jsonc.find(parse_object(text), (ROOT,))
    if root is not None and root.kind == "scalar" and root.value is None:
        text = put_value(text, (ROOT,), {})
    for key, value in preset.items():
        if jsonc.find(parse_object(text), (key,)) is None:
            text = put_value(text, (key,), value)
    for event, entry in entries.items():
        text = _with_entry(text, event, entry)
    for event in [event for event in _events(text) if event not in entries]:
        text = _without_own(text, event)
    return _checked(text, entries)


def without_hooks(text: str) -> str:
    """The text without ours, and without the lists that this leaves empty."""
    before = set(_events(text))
    for event in before:
        text = _without_own(text, event)
    if before and not _events(text):
        text = jsonc.remove(text, (ROOT,))
    return _checked(text, {})


def has_hooks(text: str) -> bool:
    return any(True for event in _events(text) for _ in _own_places(text, event))


def is_own_command(command: Any) -> bool:
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    at = next((n for n in range(len(words)) if tuple(words[n : n + 2]) == WORDS), 0)
    if at == 0:
        return False
    return os.path.basename(words[at - 1]).partition(".")[0] == PROGRAM


def is_own_hook(hook: Any) -> bool:
    if not isinstance(hook, dict):
        return False
    if hook.get("type") == "http":
        return _ADDRESS.fullmatch(str(hook.get("url"))) is not None
    return is_own_command(hook.get("command"))


def own_commands(text: str) -> list[str]:
    """Each command of ours once."""
    root = parse_object(text)
    commands: dict[str, None] = {}
    for event in _events(text):
        for place in _own_places(text, event):
            node = jsonc.find(root, place)
            assert node is not None
            if "command" in node.value:
                commands[str(node.value["command"])] = None
    return list(commands)


def _with_entry(text: str, event: str, entry: Any) -> str:
    node = jsonc.find(parse_object(text), (ROOT, event))
    values = node.value if node is not None and node.kind == "list" else []
    if [value for value in values if _is_own(value)] == [entry] and not any(map(_is_shared, values)):
        return text
    alone = [index for index, value in enumerate(values) if _is_own(value)]
    if not alone:
        text = _without_own(text, event, keep_list=True)
        node = jsonc.find(parse_object(text), (ROOT, event))
        if node is None:
            return put_value(text, (ROOT, event), [entry])
        if node.kind != "list":
            raise Uneditable(f"{ROOT}.{event} is not a list")
        return jsonc.append(text, node, None, entry)
    text = put_value(text, (ROOT, event, alone[0]), entry)
    for place in sorted(_own_places(text, event), reverse=True):
        if place[:3] != (ROOT, event, alone[0]):
            text = _without_place(text, place)
    return text


def _without_own(text: str, event: str, *, keep_list: bool = False) -> str:
    for place in sorted(_own_places(text, event), reverse=True):
        text = _without_place(text, place)
        node = jsonc.find(parse_object(text), (ROOT, event))
        if node is not None and node.kind == "list" and not node.elements and not keep_list:
            text = jsonc.remove(text, (ROOT, event))
    return text


def _without_place(text: str, place: _Place) -> str:
    """Without one hook, and its group if nothing else is in it."""
    if len(place) > 3:
        hooks = jsonc.find(parse_object(text), place[:-1])
        if hooks is not None and len(hooks.elements) == 1:
            place = place[:3]
    return jsonc.remove(text, place)


def _own_places(text: str, event: str) -> Iterator[_Place]:
    node = jsonc.find(parse_object(text), (ROOT, event))
    if node is None or node.kind != "list":
        return
    for index, value in enumerate(node.value):
        if not isinstance(value, dict):
            continue
        if is_own_hook(value):
            yield (ROOT, event, index)
        for number, hook in enumerate(_hooks(value)):
            if is_own_hook(hook):
                yield (ROOT, event, index, "hooks", number)


def _hooks(value: Any) -> list[Any]:
    hooks = value.get("hooks") if isinstance(value, dict) else None
    return hooks if isinstance(hooks, list) else []


def _own_count(value: Any) -> int:
    return sum(map(is_own_hook, _hooks(value)))


def _is_own(value: Any) -> bool:
    """Whether an entry holds a hook of ours and nobody else's."""
    return is_own_hook(value) or 0 < _own_count(value) == len(_hooks(value))


def _is_shared(value: Any) -> bool:
    return 0 < _own_count(value) < len(_hooks(value))


def _events(text: str) -> list[str]:
    root = parse_object(text)
    node = jsonc.find(root, (ROOT,))
    if node is None or (node.kind == "scalar" and node.value is None):
        return []
    if node.kind != "object":
        raise Uneditable(f"{ROOT} is not an object")
    return list(node.value)


def put_value(text: str, path: _Place, value: Any) -> str:
    try:
        return jsonc.put(text, path, value)
    except JsonProblem as problem:
        raise Uneditable(str(problem)) from None


def _checked(text: str, entries: Mapping[str, Any]) -> str:
    """The new text, if it holds exactly these of ours: a key that stands twice cannot be edited in place."""
    root = parse_object(text)
    for event in {*_events(text), *entries}:
        node = jsonc.find(root, (ROOT, event))
        values = node.value if node is not None and node.kind == "list" else []
        wanted = [entries[event]] if event in entries else []
        if [value for value in values if _is_own(value) or _is_shared(value)] != wanted:
            raise Uneditable("a key that stands twice cannot be changed in place")
    return text


def parse_object(text: str) -> Node:
    """An empty file is an empty object, as clients take it."""
    try:
        node = jsonc.parse(text if text.strip("\ufeff \t\r\n") else "{}")
    except JsonProblem as problem:
        raise Uneditable(f"not valid JSON (line {problem.line}, column {problem.column})") from None
    if node.kind != "object":
        raise Uneditable("the file is not an object")
    return node

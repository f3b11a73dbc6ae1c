"""Perdure's hooks in a client's JSON file: `hooks` holds a list for each event, which other programs add to as well.

An item of a list is a hook (Cursor), or a group with a list of hooks and a pattern (the others). A hook is ours if its
command is `perdure hook journal`, of any version and installed anywhere, or if it is posted to `perdure serve`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from perdure.registry.clients.config_text import Key, Path, Uneditable, is_blank, newline_of
from perdure.registry.clients.json_syntax import JsonSyntax, parse
from perdure.registry.file import jsonc

ROOT: Final = "hooks"
PROGRAM: Final = "perdure"
WORDS: Final = ["hook", "journal"]
_ADDRESS: Final = re.compile(r"https?://[^/]+/hooks/[a-z-]+")
_JSON: Final = JsonSyntax()


def with_hooks(text: str, entries: Mapping[str, Any], preset: Mapping[str, Any]) -> str:
    """The text with exactly these hooks of ours. `preset` are members that the file needs beside them."""
    if is_blank(text):
        text = f"{text}{{}}{newline_of(text)}"
    events = _events(text)
    missing: dict[Key, Any] = {key: value for key, value in preset.items() if key not in _JSON.load(text)}
    text = _JSON.put(text, (), missing) if missing else text
    for event in dict.fromkeys((*events, *entries)):
        text = _with_event(text, event, entries.get(event))
    return _check(text, entries)


def without_hooks(text: str) -> str:
    """The text without ours, and without the lists that this leaves empty."""
    events = _events(text)
    for event in events:
        text = _with_event(text, event, None)
    if events and not _events(text):
        text = jsonc.remove(text, (ROOT,))
    return _check(text, {})


def has_hooks(text: str) -> bool:
    return any(_is_own(hook) for items in _events(text).values() for item in items for hook in _hooks(item))


def own_commands(text: str) -> list[str]:
    """Each command of ours once."""
    hooks = (
        hook for items in _events(text).values() for item in items for hook in _hooks(item) if _is_own(hook)
    )
    return list(dict.fromkeys(str(hook["command"]) for hook in hooks if "command" in hook))


def is_own_command(command: Any) -> bool:
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    at = next((at for at in range(1, len(words)) if words[at : at + 2] == WORDS), 0)
    return at > 0 and os.path.basename(words[at - 1]).partition(".")[0] == PROGRAM


def _is_own(hook: Any) -> bool:
    if not isinstance(hook, dict):
        return False
    if hook.get("type") == "http":
        return _ADDRESS.fullmatch(str(hook.get("url"))) is not None
    return is_own_command(hook.get("command"))


def _hooks(item: Any) -> list[Any]:
    """The hooks of an item: those of a group, or the item itself."""
    hooks = item.get("hooks") if isinstance(item, dict) else None
    return hooks if isinstance(hooks, list) else [item]


def _events(text: str) -> dict[str, list[Any]]:
    """The lists by event. A value that is no list belongs to another program."""
    data = _JSON.load(text)
    events = data.get(ROOT) if isinstance(data, dict) else data
    if not isinstance(data, dict) or not isinstance(events, dict | None):
        raise Uneditable(f"{ROOT} is not an object")
    return {event: items if isinstance(items, list) else [] for event, items in (events or {}).items()}


def _with_event(text: str, event: str, entry: Any) -> str:
    """The text with this entry as the only one of ours for an event, in the place of the first; None removes all."""
    items = _events(text).get(event, [])
    own = [at for at, item in enumerate(items) if _hooks(item) and all(map(_is_own, _hooks(item)))]
    is_there = entry is not None and bool(own)
    if is_there and items[own[0]] != entry:
        text = jsonc.put(text, (ROOT, event, own[0]), entry)
    for at in reversed(range(len(items))):
        if at in own[is_there:]:
            text = jsonc.remove(text, (ROOT, event, at))
        elif at not in own:
            for number in reversed(range(len(_hooks(items[at])))):
                if _is_own(_hooks(items[at])[number]):
                    text = jsonc.remove(text, (ROOT, event, at, "hooks", number))
    if entry is not None and not is_there:
        return _append(text, (ROOT, event), entry)
    return jsonc.remove(text, (ROOT, event)) if items and not _events(text)[event] else text


def _append(text: str, path: Path, entry: Any) -> str:
    node = jsonc.find(parse(text), path)
    if node is None:
        return _JSON.put(text, path[:-1], {path[-1]: [entry]})
    if node.kind != "list":
        raise Uneditable(f"{'.'.join(map(str, path))} is not a list")
    return jsonc.append(text, node, None, entry)


def _check(text: str, entries: Mapping[str, Any]) -> str:
    """The new text, if it holds exactly these of ours: a key that stands twice cannot be edited in place."""
    events = _events(text)
    for event in {*events, *entries}:
        own = [item for item in events.get(event, []) if any(map(_is_own, _hooks(item)))]
        if own != ([entries[event]] if event in entries else []):
            raise Uneditable("a key that stands twice cannot be changed in place")
    return text

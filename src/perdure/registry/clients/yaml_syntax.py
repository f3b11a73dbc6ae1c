"""YAML in block style, edited by the places that the parser reports; only the lines of one entry are written or removed.

The servers are a list or a mapping below a key of the file; their entries are mappings. One in flow style (`[…]`, `{…}`) is
refused unless it is empty, and so is one that is written elsewhere and used through an alias.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from perdure.registry.clients.config_text import (
    Key,
    Path,
    Scalar,
    Splice,
    Uneditable,
    line_end,
    line_start,
    newline_of,
    splice,
)

# Words that YAML readers of every version take for text.
_PLAIN: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+-]*")
_NOT_PLAIN: Final = re.compile(
    r"y|n|yes|no|on|off|true|false|null|nan|inf|\.nan|\.inf|[.0-9_]*|\.[0-9].*|.*[:#].*|[-.]{3}.*",
    re.IGNORECASE,
)
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_DOCUMENT_END: Final = re.compile(r"^\.\.\.(?=\s|$)", re.MULTILINE)


class YamlSyntax:
    def load(self, text: str) -> Any:
        return _load(text)

    def put(self, text: str, path: Path, members: Mapping[Key, Any]) -> str:
        for key, value in members.items():
            change = _new_entry if len(path) == 1 else _new_field
            text = splice(text, *change(text, path, key, value))
        return text

    def remove(self, text: str, path: Path, keys: Collection[Key]) -> str:
        for key in sorted(keys, key=lambda key: key if isinstance(key, int) else 0, reverse=True):
            text = splice(text, *_without(text, path, key))
        return text

    def scalars(self, text: str) -> list[Scalar]:
        _load(text)
        return list(_scalars(_tree(text), (), 0))


# --- Reading ---


@lru_cache(maxsize=16)
def _load(text: str) -> Any:
    """The error has the place and nothing of the text."""
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
def _tree(text: str) -> Any:
    """The nodes of a text that `_load` has read; None for an empty one. An alias is the node it stands for."""
    from ruamel.yaml import YAML

    node = YAML(typ="safe", pure=True).compose(text)
    return None if node is None or isinstance(node.value, str) else node


def _find(text: str, path: Path) -> tuple[Any, Any]:
    """The key and the value at a path; the key of an item is None."""
    key, node = None, _tree(text)
    for step in path:
        after = node.start_mark.index
        if isinstance(step, int):
            key, node = None, node.value[step]
        else:
            pairs = [] if isinstance(node.value, str) else node.value
            key, node = next((pair for pair in pairs if pair[0].value == step), (None, None))
            if key is None:
                raise Uneditable(f"{step} is not written where it is used")
            after = key.end_mark.index
        if node.start_mark.index < after:
            raise Uneditable(f"{step} is an alias of another value")
    return key, node


def _block(text: str, path: Path) -> tuple[Any, Any]:
    """As `_find`, of something that has members in block style."""
    key, node = _find(text, path)
    if not isinstance(node.value, list) or not node.value:
        raise Uneditable(f"{path[-1]} is written in a way that cannot be changed in place")
    _refuse_flow(node)
    return key, node


def _refuse_flow(node: Any) -> None:
    if node.flow_style:
        raise Uneditable("it is written in flow style, on one line: write it as a block first")


def _span(text: str, node: Any, key: Any = None) -> tuple[int, int]:
    """Where a value is written. Comments and blank lines after a block are not part of it."""
    start, end = node.start_mark.index, node.end_mark.index
    if key is not None and start == end:  # nothing is written: the parser reports the next token's place
        start = end = text.find(":", key.end_mark.index, end + 1) + 1 or key.end_mark.index
    elif isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        end = _span(text, last[1], last[0])[1] if isinstance(last, tuple) else _span(text, last)[1]
    return start, end


def _scalars(node: Any, path: Path, after: int) -> Iterator[Scalar]:
    if node is None or node.start_mark.index < after:
        return  # an alias: its value is shown where it is written
    after = node.start_mark.index
    if isinstance(node.value, list):
        for index, child in enumerate(node.value):
            if isinstance(child, tuple):
                yield from _scalars(child[1], (*path, str(child[0].value)), child[0].end_mark.index)
            else:
                yield from _scalars(child, (*path, index), after)
    elif node.end_mark.index > after:
        yield Scalar(path, after, node.end_mark.index, node.value)


# --- Adding and changing ---


def _new_entry(text: str, path: Path, name: Key, entry: Mapping[str, Any]) -> list[Splice]:
    root, top = str(path[0]), _tree(text)
    if top is not None:
        _refuse_flow(top)
    if top is None or root not in (key.value for key, _ in top.value):
        end = _DOCUMENT_END.search(text, 0 if top is None else _span(text, top)[1])
        return [_new_lines(text, end.start() if end else len(text), f"{root}:", *_lines(name, entry, "  "))]
    key, node = _find(text, path)
    if not node.value or isinstance(node.value, str):  # nothing, `null`, `[]` or `{}`: a block in its place
        end_of_value = _span(text, node, key)[1]
        lines = _new_lines(text, line_end(text, end_of_value), *_lines(name, entry, "  "))
        return [Splice(_after_colon(text, key), end_of_value, ""), lines]
    _refuse_flow(node)
    indent = text[line_start(text, node.start_mark.index) : node.start_mark.index]
    if indent.strip():
        raise Uneditable("the first entry does not begin a line")
    return [_new_lines(text, _block_end(text, _span(text, node)[1]), *_lines(name, entry, indent))]


def _new_field(text: str, path: Path, field: Key, value: Any) -> list[Splice]:
    """In place of the old value, or on a new line at the end of the entry."""
    pairs = _block(text, path)[1].value
    for key, node in pairs:
        if key.value == field:
            return [_new_value(text, key, node, value)]
    first, (key, last) = pairs[0][0], pairs[-1]
    indent = " " * (first.start_mark.index - line_start(text, first.start_mark.index))
    end = _block_end(text, _span(text, last, key)[1])
    return [_new_lines(text, end, f"{indent}{_quote(str(field))}: {_flow(value)}")]


def _new_value(text: str, key: Any, node: Any, value: Any) -> Splice:
    """One that takes lines of its own gives them up."""
    if node.start_mark.index < key.end_mark.index:
        raise Uneditable(f"{key.value} is an alias of another value")
    start, end = _span(text, node, key)
    colon = _after_colon(text, key)
    if "\n" not in text[colon:end]:
        return Splice(start, end, (" " if start == colon else "") + _flow(value))
    if "#" in text[colon:start]:
        raise Uneditable("there is a comment between the key and its value")
    return Splice(colon, end, f" {_flow(value)}{newline_of(text) if text[end - 1] == chr(10) else ''}")


def _after_colon(text: str, key: Any) -> int:
    return text.index(":", key.end_mark.index) + 1


def _block_end(text: str, end: int) -> int:
    """After the last line of something that ends at `end`."""
    return end if end > 0 and text[end - 1] == "\n" else line_end(text, end)


def _new_lines(text: str, at: int, *lines: str) -> Splice:
    newline = newline_of(text)
    before = "" if at == 0 or text[at - 1] == "\n" else newline
    return Splice(at, at, before + "".join(line + newline for line in lines))


def _lines(name: Key, entry: Mapping[str, Any], indent: str) -> list[str]:
    lines = [f"  {_quote(key)}: {_flow(value)}" for key, value in entry.items()]
    lines = [f"- {lines[0][2:]}", *lines[1:]] if isinstance(name, int) else [f"{_quote(name)}:", *lines]
    return [indent + line for line in lines]


def _flow(value: Any) -> str:
    """A value on one line, in a form that every YAML reader takes alike."""
    match value:
        case str():
            return _quote(value)
        case list() | tuple():
            return f"[{', '.join(map(_flow, value))}]"
        case dict():
            return f"{{{', '.join(f'{_quote(key)}: {_flow(member)}' for key, member in value.items())}}}"
        case None | bool() | int() | float():
            return json.dumps(value)
    raise Uneditable(f"YAML has no {type(value).__name__}")


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _NOT_PLAIN.fullmatch(text):
        return text
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


# --- Removing ---


def _without(text: str, path: Path, key: Key) -> list[Splice]:
    parent, node = _block(text, path)
    removed = (
        [_without_item(text, node.value[key])] if isinstance(key, int) else _without_pair(text, node, key)
    )
    if len(node.value) == 1 and len(path) == 1:
        at = _after_colon(text, parent)
        removed.append(Splice(at, at, " []" if isinstance(key, int) else " {}"))
    return removed


def _without_pair(text: str, mapping: Any, name: str) -> list[Splice]:
    pairs = mapping.value
    at = next((number for number, (key, _) in enumerate(pairs) if key.value == name), None)
    if at is None:
        raise Uneditable(f"{name} is not written where it is used")
    key, value = pairs[at]
    first, end = key.start_mark.index, _span(text, value, key)[1]
    start = line_start(text, first)
    if not text[start:first].strip():
        return [Splice(start, _block_end(text, end), "")]
    if at + 1 == len(pairs):
        raise Uneditable("the only line of an entry cannot be removed")
    following = pairs[at + 1][0].start_mark.index
    if text[end:following].strip():
        raise Uneditable("there is a comment between the first two lines of an entry")
    return [Splice(first, following, "")]


def _without_item(text: str, item: Any) -> Splice:
    first, end = item.start_mark.index, _span(text, item)[1]
    dash = text.rfind("-", 0, first)
    start = line_start(text, dash)
    if text[start:dash].strip() or text[dash + 1 : first].strip():
        raise Uneditable("an entry of the list does not begin a line")
    return Splice(start, _block_end(text, end), "")

"""Servers in a YAML file, changed in place: a list of mappings (Continue) or a mapping of mappings (Goose).

Entries are edited in block style, by the places that the parser reports; only the lines of one entry are written or
removed. A list or an entry in flow style (`[…]`, `{…}`) is refused unless it is empty. After each edit the text is read
again: if it does not say exactly what was meant, the edit is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from perdure.registry.clients.text_edit import (
    Scalar,
    Splice,
    Uneditable,
    line_end,
    line_start,
    newline_of,
    spliced,
)

NAME: Final = "name"
# Words that no YAML reader of any age takes for anything but themselves.
_PLAIN: Final = re.compile(r"[A-Za-z_./][A-Za-z0-9_./@+-]*")
_NOT_PLAIN: Final = re.compile(
    r"y|n|yes|no|on|off|true|false|null|nan|inf|\.nan|\.inf|[.0-9_]*|\.[0-9].*|.*[:#].*|[-.]{3}.*",
    re.IGNORECASE,
)
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_DOCUMENT_END: Final = re.compile(r"^\.\.\.(?=\s|$)", re.MULTILINE)


class YamlText:
    """`root` is the key above the servers; `is_list` where each names itself in a `name` of its own."""

    def __init__(self, root: str, *, is_list: bool) -> None:
        self.root = root
        self.is_list = is_list

    def servers(self, text: str) -> dict[str, Any]:
        """Of several with one name, the first; an item without a name is nobody's."""
        held = self._held(self._meant(text))
        if isinstance(held, dict):
            return {str(name): value for name, value in held.items()}
        named: dict[str, Any] = {}
        for item in held:
            if (name := _name_of(item)) is not None:
                named.setdefault(name, {key: value for key, value in item.items() if key != NAME})
        return named

    def scalars(self, text: str, start: int = 0, end: int | None = None) -> list[Scalar]:
        """With the name of an entry in the path, where the file has its number."""
        held = self._held(self._meant(text))
        names: dict[str | int, str | None] = (
            dict(enumerate(map(_name_of, held))) if isinstance(held, list) else {}
        )
        return [
            one._replace(path=(self.root, names.get(one.path[1]) or one.path[1], *one.path[2:]))
            if len(one.path) > 1 and one.path[0] == self.root
            else one
            for one in _scalars(_tree(text), (), 0)
        ]

    def with_entries(self, text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
        for name, fields in entries.items():
            text = self._with_entry(text, name, fields)
        return text

    def without_entries(self, text: str, names: Collection[str]) -> str:
        for name in names:
            text = self._without_entry(text, name)
        return text

    def _with_entry(self, text: str, name: str, fields: Mapping[str, Any]) -> str:
        meant = self._meant(text)
        held = self._held(meant)
        entry = {NAME: name, **fields} if self.is_list else dict(fields)
        if isinstance(held, list):
            held.append(entry)
        else:
            held[name] = entry
        return _checked(spliced(text, self._addition(text, name, entry)), meant)

    def with_field(self, text: str, name: str, field: str, value: Any) -> str:
        meant = self._meant(text)
        self._of(meant, name)[field] = value
        pairs = self._pairs(text, name)
        at = next((n for n, (key, _) in enumerate(pairs) if key.value == field), None)
        if at is not None:
            return _checked(spliced(text, [_new_value(text, *pairs[at], value)]), meant)
        first, (key, last) = pairs[0][0], pairs[-1]
        indent = " " * (first.start_mark.index - line_start(text, first.start_mark.index))
        line = f"{indent}{quoted(field)}: {written(value)}"
        return _checked(
            spliced(text, [_new_lines(text, _block_end(text, _span(text, last, key)[1]), line)]), meant
        )

    def without_field(self, text: str, name: str, field: str) -> str:
        meant = self._meant(text)
        del self._of(meant, name)[field]
        return _checked(spliced(text, [_without_pair(text, self._pairs(text, name), field)]), meant)

    def _without_entry(self, text: str, name: str) -> str:
        meant = self._meant(text)
        held = self._held(meant)
        self._of(meant, name)
        key, node = self._root_pair(text)
        _refuse_flow(node)
        if isinstance(held, list):
            index = next(at for at, item in enumerate(held) if _name_of(item) == name)
            del held[index]
            splices = [_without_item(text, node.value[index])]
        else:
            del held[name]
            splices = [_without_pair(text, node.value, name)]
        if not held:
            at = text.index(":", key.end_mark.index) + 1
            splices.append(Splice(at, at, " []" if self.is_list else " {}"))
        return _checked(spliced(text, splices), meant)

    # --- reading --------------------------------------------------------------------------------------------------

    def _meant(self, text: str) -> dict[str, Any]:
        """What the text says, with the servers as the caller's own copy."""
        data = load(text)
        if not isinstance(data, dict | None):
            raise Uneditable("the file is not a mapping")
        held = copy.deepcopy((data or {}).get(self.root))
        return {**(data or {}), self.root: ([] if self.is_list else {}) if held is None else held}

    def _held(self, data: dict[str, Any]) -> Any:
        held = data[self.root]
        if not isinstance(held, list if self.is_list else dict):
            raise Uneditable(f"{self.root} is not a {'list' if self.is_list else 'mapping'}")
        return held

    def _of(self, meant: dict[str, Any], name: str) -> dict[str, Any]:
        held = self._held(meant)
        if isinstance(held, dict):
            entry = held.get(name)
        else:
            entry = next((item for item in held if _name_of(item) == name), None)
        if not isinstance(entry, dict):
            raise Uneditable(f"{name} is not a mapping")
        return entry

    def _root_pair(self, text: str) -> tuple[Any, Any]:
        top = _tree(text)
        pairs: list[tuple[Any, Any]] = [] if top is None else top.value
        pair = next((pair for pair in pairs if pair[0].value == self.root), None)
        if pair is None:
            raise Uneditable(f"{self.root} is not written where it is used")
        if pair[1].start_mark.index < pair[0].end_mark.index:
            raise Uneditable(f"{self.root} is an alias of another value")
        return pair

    def _pairs(self, text: str, name: str) -> list[tuple[Any, Any]]:
        """The lines of an entry that is a block of its own."""
        _, node = self._root_pair(text)
        if isinstance(node.value, str):
            raise Uneditable(f"{name} is not written where it is used")
        if self.is_list:
            names = map(_name_of, self._held(self._meant(text)))
            entry = node.value[list(names).index(name)]
        else:
            entry = next((value for key, value in node.value if key.value == name), None)
        if entry is None or not isinstance(entry.value, list) or not entry.value:
            raise Uneditable(f"{name} is written in a way that cannot be changed in place")
        _refuse_flow(entry)
        return list(entry.value)

    # --- writing --------------------------------------------------------------------------------------------------

    def _addition(self, text: str, name: str, entry: dict[str, Any]) -> list[Splice]:
        top = _tree(text)
        if top is not None:
            _refuse_flow(top)
        if top is None or self.root not in (key.value for key, _ in top.value):
            end = _DOCUMENT_END.search(text, 0 if top is None else _span(text, top)[1])
            at = end.start() if end else len(text)
            return [_new_lines(text, at, f"{self.root}:", *self._block(name, entry, "  "))]
        key, node = self._root_pair(text)
        if not node.value or isinstance(
            node.value, str
        ):  # nothing, `null`, `[]` or `{}`: a block in its place
            _, end_of_value = _span(text, node, key)
            colon = text.index(":", key.end_mark.index) + 1
            lines = _new_lines(text, line_end(text, end_of_value), *self._block(name, entry, "  "))
            return [Splice(colon, end_of_value, ""), lines]
        _refuse_flow(node)
        start = line_start(text, node.start_mark.index)
        indent = text[start : node.start_mark.index]
        if indent.strip():
            raise Uneditable("the first entry does not begin a line")
        return [_new_lines(text, _block_end(text, _span(text, node)[1]), *self._block(name, entry, indent))]

    def _block(self, name: str, entry: dict[str, Any], indent: str) -> list[str]:
        lines = [f"  {quoted(key)}: {written(value)}" for key, value in entry.items()]
        lines = [f"- {lines[0][2:]}", *lines[1:]] if self.is_list else [f"{quoted(name)}:", *lines]
        return [indent + line for line in lines]


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
            return f"{{{', '.join(f'{quoted(key)}: {written(one)}' for key, one in value.items())}}}"
    raise Uneditable(f"YAML has no {type(value).__name__}")


def quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not _NOT_PLAIN.fullmatch(text):
        return text
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


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
def _tree(text: str) -> Any:
    """The nodes of a text that `load` has read; None for an empty one. An alias is the node it stands for."""
    from ruamel.yaml import YAML

    node = YAML(typ="safe", pure=True).compose(text)
    return None if node is None or isinstance(node.value, str) else node


def _span(text: str, node: Any, key: Any = None) -> tuple[int, int]:
    """Where a value is written. Comments and blank lines behind a block are not part of it."""
    start, end = node.start_mark.index, node.end_mark.index
    if key is not None and start == end:  # nothing is written: the parser reports the next token's place
        start = end = text.find(":", key.end_mark.index, end + 1) + 1 or key.end_mark.index
    elif isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        end = _span(text, last[1], last[0])[1] if isinstance(last, tuple) else _span(text, last)[1]
    return start, end


def _scalars(node: Any, path: tuple[str | int, ...], after: int) -> Iterator[Scalar]:
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


def _refuse_flow(node: Any) -> None:
    if node.flow_style:
        raise Uneditable("it is written in flow style, on one line: write it as a block first")


def _block_end(text: str, end: int) -> int:
    """Behind the last line of something that ends at `end`."""
    return end if end > 0 and text[end - 1] == "\n" else line_end(text, end)


def _new_lines(text: str, at: int, *lines: str) -> Splice:
    newline = newline_of(text)
    before = "" if at == 0 or text[at - 1] == "\n" else newline
    return Splice(at, at, before + "".join(line + newline for line in lines))


def _new_value(text: str, key: Any, node: Any, value: Any) -> Splice:
    """In the place of the old value; one that takes lines of its own gives them up."""
    if node.start_mark.index < key.end_mark.index:
        raise Uneditable(f"{key.value} is an alias of another value")
    start, end = _span(text, node, key)
    colon = text.index(":", key.end_mark.index) + 1
    if "\n" not in text[colon:end]:
        return Splice(start, end, (" " if start == colon else "") + written(value))
    if "#" in text[colon:start]:
        raise Uneditable("a comment stands between the key and its value")
    return Splice(colon, end, f" {written(value)}{newline_of(text) if text[end - 1] == chr(10) else ''}")


def _without_pair(text: str, pairs: list[tuple[Any, Any]], name: str) -> Splice:
    at = next((n for n, (key, _) in enumerate(pairs) if key.value == name), None)
    if at is None:
        raise Uneditable(f"{name} is not written where it is used")
    key, value = pairs[at]
    first, end = key.start_mark.index, _span(text, value, key)[1]
    start = line_start(text, first)
    if not text[start:first].strip():
        return Splice(start, _block_end(text, end), "")
    if at + 1 == len(pairs):
        raise Uneditable("the only line of an entry cannot be taken out of it")
    following = pairs[at + 1][0].start_mark.index
    if text[end:following].strip():
        raise Uneditable("a comment stands between the first two lines of an entry")
    return Splice(first, following, "")


def _without_item(text: str, item: Any) -> Splice:
    first, end = item.start_mark.index, _span(text, item)[1]
    dash = text.rfind("-", 0, first)
    start = line_start(text, dash)
    if text[start:dash].strip() or text[dash + 1 : first].strip():
        raise Uneditable("an entry of the list does not begin a line")
    return Splice(start, _block_end(text, end), "")


def _checked(text: str, meant: Any) -> str:
    if load(text) != meant:
        raise Uneditable("the way this list is written cannot be changed in place")
    return text


def _name_of(item: Any) -> str | None:
    """What an item of a list calls itself."""
    name = item.get(NAME) if isinstance(item, dict) else None
    return name if isinstance(name, str) else None

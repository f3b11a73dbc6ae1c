"""Servers in a TOML file (Codex): tables below one key, changed in place, with everything else kept as it is.

An entry may be written as sections (`[mcp_servers.x]`, `[mcp_servers.x.env]`), as dotted keys or as inline tables,
and in several of these at once. After each change the text is read again: if it does not say exactly what was meant,
the change is refused.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from perdure.registry.clients.text_edit import (
    Scalar,
    Splice,
    Uneditable,
    line_end,
    line_start,
    newline_of,
    spliced,
    without_member,
)

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
Path = tuple[str, ...]


class TomlText:
    """`root` is the key of the table that holds the servers."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def servers(self, text: str) -> dict[str, Any]:
        found: Any = read(text)
        for key in self.root:
            found = found.get(key, {})
            if not isinstance(found, dict):
                raise Uneditable(f"{'.'.join(self.root)} is not a table")
        return dict(found)

    def scalars(self, text: str, start: int = 0, end: int | None = None) -> list[Scalar]:
        read(text)
        return list(scalars(text))

    def with_entry(self, text: str, name: str, fields: Mapping[str, Any]) -> str:
        """A new entry behind those that are there."""
        meant = _copied(read(text), self.root)
        _table(meant, self.root)[name] = dict(fields)
        return _checked(spliced(text, [_added(text, (*self.root, name), fields)]), meant)

    def with_field(self, text: str, name: str, field: str, value: Any) -> str:
        """A field of an entry that is there, in its place if it has one."""
        meant = _copied(read(text), (*self.root, name))
        _table(meant, (*self.root, name))[field] = value
        path = (*self.root, name, field)
        place = _value_at(text, path)
        if place is not None:
            return _checked(spliced(text, [Splice(place.start, place.end, rendered(value))]), meant)
        bare = spliced(text, _removal(text, path))
        return _checked(spliced(bare, [_new_field(bare, (*self.root, name), field, value)]), meant)

    def without_field(self, text: str, name: str, field: str) -> str:
        meant = _copied(read(text), (*self.root, name))
        del _table(meant, (*self.root, name))[field]
        return _checked(spliced(text, _removal(text, (*self.root, name, field))), meant)

    def without_entry(self, text: str, name: str) -> str:
        meant = _copied(read(text), self.root)
        del _table(meant, self.root)[name]
        return _checked(spliced(text, _removal(text, (*self.root, name))), meant, self.root)


@lru_cache(maxsize=16)
def read(text: str) -> dict[str, Any]:
    """What a text says; kept, so nobody changes it.

    Raises Uneditable with the place, and without the line itself, which may hold anything.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (.*)\)$", str(error))
        raise Uneditable(f"not valid TOML ({place[1] if place else 'unknown place'})") from None
    except (ValueError, RecursionError):
        raise Uneditable("nested too deeply, or a number has too many digits") from None


def _copied(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same, and what is on the way to a table is the caller's own."""
    found = dict(data)
    inner = found
    for key in path:
        if not isinstance(inner.get(key), dict):
            break
        inner[key] = dict(inner[key])
        inner = inner[key]
    return found


def rendered(value: Any) -> str:
    """A value on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(rendered(one) for one in value)}]"
        case dict():
            inside = ", ".join(f"{_key(key)} = {rendered(one)}" for key, one in value.items())
            return f"{{ {inside} }}" if inside else "{}"
    raise Uneditable(f"TOML has no {type(value).__name__}")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _table(data: dict[str, Any], path: Path) -> dict[str, Any]:
    for key in path:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise Uneditable(f"{key} is not a table")
    return data


def _checked(text: str, meant: dict[str, Any], may_vanish: Path = ()) -> str:
    """The new text, if it says what was meant. The last entry may take the table around it along."""
    told = read(text)
    if told != meant:
        for depth in range(len(may_vanish), 0, -1):
            parent = _table(copy.deepcopy(meant), may_vanish[:depth])
            if parent:
                break
            _table(meant, may_vanish[: depth - 1]).pop(may_vanish[depth - 1], None)
            if told == meant:
                return text
        raise Uneditable("the way these tables are written cannot be changed in place")
    return text


# --- adding -----------------------------------------------------------------------------------------------------


def _added(text: str, path: Path, fields: Mapping[str, Any]) -> Splice:
    found = sections(text)
    inline = _inline_parent(found, path[:-1])
    if inline is not None:
        return _new_member(inline, path[-1], dict(fields))
    newline = newline_of(text)
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {rendered(value)}" for key, value in fields.items()]
    at = _end_of_last(text, found, path[:-1])
    before = "" if at == 0 else newline if text[at - 1] == "\n" else newline * 2
    return Splice(at, at, before + newline.join(lines) + newline)


def _last_place(section: Section) -> int:
    return section.pairs[-1].value.end if section.pairs else section.end


def _end_of_last(text: str, found: list[Section], root: Path) -> int:
    """Behind the last section with something of the root in it; the end of the text where there is none.

    Always the end of a section: a header in the middle of one would take the pairs behind it along.
    """
    for section in reversed(found):
        below = section.path[: len(root)] == root
        if below or any((*section.path, *pair.key)[: len(root)] == root for pair in section.pairs):
            return line_end(text, _last_place(section))
    return len(text)


def _new_field(text: str, entry: Path, field: str, value: Any) -> Splice:
    """In the entry's own section, or beside the dotted keys or in the inline table it is written as."""
    found = sections(text)
    inline = _inline_parent(found, entry)
    if inline is not None:
        return _new_member(inline, field, value)
    newline = newline_of(text)
    for section in found:
        if section.path == entry and not section.is_array:
            at = line_end(text, _last_place(section))
            return _new_line(text, at, f"{_key(field)} = {rendered(value)}{newline}")
    for section in found:
        depth = len(section.path)
        for pair in reversed(section.pairs):
            if (*section.path, *pair.key)[: len(entry)] == entry:
                key = ".".join(map(_key, (*entry[depth:], field)))
                at = line_end(text, pair.value.end)
                return _new_line(text, at, f"{key} = {rendered(value)}{newline}")
    first = next(one for one in found if one.path[: len(entry)] == entry)
    at = line_start(text, first.start)
    header = f"[{'.'.join(map(_key, entry))}]"
    return Splice(at, at, f"{header}{newline}{_key(field)} = {rendered(value)}{newline}")


def _new_line(text: str, at: int, line: str) -> Splice:
    return Splice(at, at, line if at == 0 or text[at - 1] == "\n" else newline_of(text) + line)


def _new_member(inline: Value, key: str, value: Any) -> Splice:
    assert inline.pairs is not None
    written = f"{_key(key)} = {rendered(value)}"
    if inline.pairs:
        at = inline.pairs[-1].value.end
        return Splice(at, at, f", {written}")
    return Splice(inline.start, inline.end, f"{{ {written} }}")


# --- finding and removing -----------------------------------------------------------------------------------------


def _every_pair(found: list[Section]) -> Iterator[tuple[Path, Pair, Value | None]]:
    """Every pair with its whole path, and the inline table around it."""
    for section in found:
        for pair in section.pairs:
            yield from _inside((*section.path, *pair.key), pair, None)


def _inside(path: Path, pair: Pair, around: Value | None) -> Iterator[tuple[Path, Pair, Value | None]]:
    yield path, pair, around
    for inner in pair.value.pairs or ():
        yield from _inside((*path, *inner.key), inner, pair.value)


def _inline_parent(found: list[Section], path: Path) -> Value | None:
    for at, pair, _ in _every_pair(found):
        if at == path and pair.value.pairs is not None:
            return pair.value
    return None


def _value_at(text: str, path: Path) -> Value | None:
    return next(
        (pair.value for at, pair, _ in _every_pair(sections(text)) if at == path),
        None,
    )


def _removal(text: str, path: Path) -> list[Splice]:
    """Everything that is written of a path: sections, lines, members of inline tables."""
    found = sections(text)
    splices = []
    for section in found:
        if section.path[: len(path)] == path:
            last = _last_place(section)
            start = line_start(text, section.start)
            if (blank := _blank_line_before(text, start)) is not None:
                start = blank
            splices.append(Splice(start, line_end(text, last), ""))
            continue
        depth = len(path)
        for at, pair, around in _every_pair([section]):
            if at[:depth] != path or (around is not None and any(_holds(one, pair) for one in splices)):
                continue
            if around is None:
                end = line_end(text, pair.value.end)
                splices.append(Splice(line_start(text, pair.start), end, ""))
            elif around.pairs is not None:
                spans = [(one.start, one.value.end) for one in around.pairs]
                splices.append(without_member(spans, around.pairs.index(pair)))
    return splices


def _holds(splice: Splice, pair: Pair) -> bool:
    return splice.start <= pair.start < splice.end


def _blank_line_before(text: str, at: int) -> int | None:
    """The start of the empty line before a line, which parted it from what stands above."""
    if at == 0:
        return None
    start = line_start(text, at - 1)
    return start if start > 0 and not text[start:at].strip() else None


# --- Where everything stands in a TOML text. The text is valid: `tomllib` has read it before ---


_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")' + r"|'''.*?'{3,5}(?!')" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE: Final = re.compile(r"[^,\]}#\r\n]*[^,\]}#\r\n \t]")


class Value(msgspec.Struct, frozen=True):
    """`pairs` of an inline table, `items` of an array; neither for a scalar."""

    start: int
    end: int
    pairs: tuple[Pair, ...] | None = None
    items: tuple[Value, ...] | None = None


class Pair(msgspec.Struct, frozen=True):
    """A key as it was written, with the dots in it, and its value."""

    key: tuple[str, ...]
    start: int
    value: Value


class Section(msgspec.Struct, frozen=True):
    """A header and the pairs below it. The first one has no header: it is the top of the file."""

    path: tuple[str, ...]
    start: int
    end: int
    is_array: bool
    pairs: tuple[Pair, ...]


@lru_cache(maxsize=16)
def sections(text: str) -> list[Section]:
    """Kept for a few texts: one change looks at the same text more than once."""
    return _Scan(text).all()


def scalars(text: str) -> Iterator[Scalar]:
    for section in sections(text):
        for pair in section.pairs:
            yield from _scalars(text, (*section.path, *pair.key), pair.value)


def _scalars(text: str, path: tuple[str | int, ...], value: Value) -> Iterator[Scalar]:
    if value.pairs is not None:
        for pair in value.pairs:
            yield from _scalars(text, (*path, *pair.key), pair.value)
    elif value.items is not None:
        for index, item in enumerate(value.items):
            yield from _scalars(text, (*path, index), item)
    else:
        written = text[value.start : value.end]
        yield Scalar(path, value.start, value.end, _string(written) if written[0] in "\"'" else "")


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def all(self) -> list[Section]:
        found = []
        path: tuple[str, ...] = ()
        start = end = 0
        is_array = False
        while True:
            pairs = self._pairs()
            found.append(Section(path, start, end, is_array, pairs))
            if self.at >= len(self.text):
                return found
            start = self.at
            is_array = self.text.startswith("[[", self.at)
            width = 2 if is_array else 1
            self.at += width
            path = self._key()
            self.at += width
            end = self.at

    def _pairs(self) -> tuple[Pair, ...]:
        found = []
        self._skip(_BLANK)
        while self.at < len(self.text) and self.text[self.at] != "[":
            found.append(self._pair())
            self._skip(_BLANK)
        return tuple(found)

    def _pair(self) -> Pair:
        start = self.at
        key = self._key()
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        return Pair(key, start, self._value())

    def _key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self._skip(_SPACE)
            parts.append(_name(self._take(_PART)))
            self._skip(_SPACE)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def _value(self) -> Value:
        start = self.at
        first = self.text[start]
        if first == "[":
            return self._array(start)
        if first == "{":
            return self._inline(start)
        self._take(_STRING if first in "\"'" else _BARE)
        return Value(start, self.at)

    def _array(self, start: int) -> Value:
        items = []
        self.at += 1
        self._skip(_BLANK)
        while self.text[self.at] != "]":
            items.append(self._value())
            self._past_comma()
        self.at += 1
        return Value(start, self.at, items=tuple(items))

    def _inline(self, start: int) -> Value:
        pairs = []
        self.at += 1
        self._skip(_BLANK)
        while self.text[self.at] != "}":
            pairs.append(self._pair())
            self._past_comma()
        self.at += 1
        return Value(start, self.at, pairs=tuple(pairs))

    def _past_comma(self) -> None:
        self._skip(_BLANK)
        if self.text[self.at] == ",":
            self.at += 1
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise ValueError(f"not understood at character {self.at}")
        self.at = found.end()
        return found[0]


def _name(written: str) -> str:
    return _string(written) if written[0] in "\"'" else written


def _string(written: str) -> str:
    if "\\" not in written and written[:3] not in ('"""', "'''"):
        return written[1:-1]  # it says what it is
    value: str = tomllib.loads(f"k = {written}")["k"]
    return value

"""Servers in a TOML file (Codex): tables below one key, edited by tomlkit, which keeps everything else as it is.

After each edit the text is read again by another parser: if it does not say exactly what was meant, the edit is refused.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from perdure.registry.clients.text_edit import Scalar, Uneditable, newline_of, shared_prefix

Path = tuple[str, ...]
_TRIVIA: Final = re.compile(r"(?:^[ \t]*(?:#[^\n]*)?\r?\n)*\Z", re.MULTILINE)
_BLANK_LINE: Final = re.compile(r"(?<=\n)\r?\n\Z")
_PLACEHOLDER: Final = re.compile('"\ue000([0-9]+)\ue001"')


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
        """With a placeholder in the place of each scalar, the text between two of them tells where each one is."""
        document = _parsed(text)
        paths: list[tuple[tuple[str | int, ...], Any]] = []
        spans: list[Scalar] = []
        with _edits():
            _replace_scalars(document, (), paths)
            rebuilt, done, marked = "", 0, tomlkit.dumps(document)
        for mark in _PLACEHOLDER.finditer(marked):
            path, item = paths[int(mark[1])]
            raw = str(item).lower() if isinstance(item, bool) else item.as_string()
            at = len(rebuilt) + mark.start() - done
            spans.append(Scalar(path, at, at + len(raw), str(item) if isinstance(item, str) else ""))
            rebuilt += marked[done : mark.start()] + raw
            done = mark.end()
        if rebuilt + marked[done:] != text:
            raise Uneditable("not understood")
        return spans

    def with_entries(self, text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
        for name, fields in entries.items():
            text = self._with_entry(text, name, fields)
        return text

    def _with_entry(self, text: str, name: str, fields: Mapping[str, Any]) -> str:
        """A new section at the end, or a member of the inline table that holds the servers."""
        meant = copy.deepcopy(read(text))
        _table(meant, self.root)[name] = dict(fields)
        document = _parsed(text)
        if isinstance(_inner(document, self.root), InlineTable):
            return self._edited(text, (name,), dict(fields))
        section = tomlkit.table()
        for key, value in fields.items():
            section[key] = _item(value)
        newline = newline_of(text)
        header = ".".join(tomlkit.key(key).as_string() for key in (*self.root, name))
        before = "" if not text else newline if text.endswith("\n") else newline * 2
        added = f"{text}{before}[{header}]\n{section.as_string()}"
        added = text + added[len(text) :].replace("\r\n", "\n").replace("\n", newline)
        with _edits():
            if (
                tomlkit.dumps(tomlkit.parse(added)) != added
            ):  # tables of one root that are apart, oddly written
                _inner(document, self.root).append(name, section)
                added = tomlkit.dumps(document)
        return _checked(added, meant)

    def with_field(self, text: str, name: str, field: str, value: Any) -> str:
        """A field of an entry that is there, in its place if it has one."""
        return self._edited(text, (name, field), value)

    def without_field(self, text: str, name: str, field: str) -> str:
        return self._removed(text, (name, field))

    def without_entries(self, text: str, names: Collection[str]) -> str:
        for name in names:
            text = self._removed(text, (name,))
        return text

    def _edited(self, text: str, path: Path, value: Any) -> str:
        *above, key = (*self.root, *path)
        meant = copy.deepcopy(read(text))
        _table(meant, above)[key] = value
        document = _parsed(text)
        with _edits():
            table = _inner(document, above)
            if isinstance(value, dict) and key in table:
                del table[key]  # a section of its own would stay where it is
            table[key] = _item(value)
            text = tomlkit.dumps(document)
        return _checked(text, meant)

    def _removed(self, text: str, path: Path) -> str:
        *above, key = (*self.root, *path)
        meant = copy.deepcopy(read(text))
        del _table(meant, above)[key]
        document = _parsed(text)
        with _edits():
            del _inner(document, above)[key]
            text = _with_comments(text, tomlkit.dumps(document))
        return _checked(text, meant, self.root)


@contextmanager
def _edits() -> Iterator[None]:
    """tomlkit fails in many ways on tables that are apart or dotted: each is a refusal."""
    try:
        yield
    except (TOMLKitError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Uneditable("the way these tables are written cannot be changed in place") from None


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


def _parsed(text: str) -> tomlkit.TOMLDocument:
    read(text)
    try:
        document = tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError):
        raise Uneditable("not understood") from None
    if tomlkit.dumps(document) != text:
        raise Uneditable("the way this file is written cannot be kept")
    return document


def _inner(document: Any, path: Any) -> Any:
    for key in path:
        document = document.get(key, {})
    return document


def _table(data: dict[str, Any], path: Any) -> dict[str, Any]:
    for key in path:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise Uneditable(f"{key} is not a table")
    return data


def _item(value: Any) -> Any:
    """On one line."""
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, one in value.items():
            table[key] = _item(one)
        return table
    try:
        return tomlkit.item(value)
    except (TOMLKitError, ValueError):
        raise Uneditable(f"TOML has no {type(value).__name__}") from None


def _checked(text: str, meant: dict[str, Any], may_vanish: Path = ()) -> str:
    """The new text, if it says what was meant. The last entry may take the table around it along."""
    said = read(text)
    if may_vanish and said != meant and not _inner(meant, may_vanish):
        meant = {key: value for key, value in meant.items() if key != may_vanish[0]}
    if said != meant:
        raise Uneditable("the way these tables are written cannot be changed in place")
    return text


def _with_comments(before: str, after: str) -> str:
    """Without a section and the blank line above it. tomlkit counts the comments in front of the next table to this
    one; they stay."""
    length = len(before) - len(after)
    start = before.rfind("\n", 0, shared_prefix(before, after)) + 1
    gone = before[start : start + length]
    if before[:start] + before[start + length :] != after:
        return after
    kept = _TRIVIA.search(gone)
    head = before[:start]
    if gone.startswith("[") and (blank := _BLANK_LINE.search(head)):
        head = head[: blank.start()]
    return head + (kept[0] if kept else "") + before[start + length :]


def _replace_scalars(
    item: Any, path: tuple[str | int, ...], found: list[tuple[tuple[str | int, ...], Any]]
) -> None:
    keys: Iterator[Any] = iter(range(len(item))) if isinstance(item, list) else iter(list(item))
    for key in keys:
        value = item[key]
        if isinstance(value, dict | list):
            _replace_scalars(value, (*path, key), found)
        else:
            item[key] = f"\ue000{len(found)}\ue001"
            found.append(((*path, key), value))

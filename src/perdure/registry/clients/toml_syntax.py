"""TOML, edited by tomlkit, which keeps the rest of the file as it is. What is meant is read by tomllib."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from perdure.registry.clients.config_text import Key, Path, Scalar, Uneditable, common_prefix, newline_of

_TRIVIA: Final = re.compile(r"(?:^[ \t]*(?:#[^\n]*)?\r?\n)*\Z", re.MULTILINE)
_BLANK_LINE: Final = re.compile(r"(?<=\n)\r?\n\Z")
_PLACEHOLDER: Final = re.compile('"\ue000([0-9]+)\ue001"')


class TomlSyntax:
    """A new table directly below a key of the file becomes a section; a deeper one is written inline."""

    def load(self, text: str) -> dict[str, Any]:
        return _load(text)

    def put(self, text: str, path: Path, members: Mapping[Key, Any]) -> str:
        for key, value in members.items():
            is_section = len(path) == 1 and isinstance(value, dict)
            if is_section and not isinstance(_table(_parse(text), path), InlineTable):
                text = _with_section(text, path, str(key), value)
                continue
            document = _parse(text)
            with _refused_edits():
                table = _table(document, path)
                if isinstance(value, dict) and key in table:
                    del table[key]  # a section of its own would stay where it is
                table[key] = _item(value)
                text = tomlkit.dumps(document)
        return text

    def remove(self, text: str, path: Path, keys: Collection[Key]) -> str:
        for key in keys:
            document = _parse(text)
            with _refused_edits():
                del _table(document, path)[key]
                text = _with_comments(text, tomlkit.dumps(document))
        return text

    def scalars(self, text: str) -> list[Scalar]:
        """tomlkit gives no places: each scalar is replaced by a placeholder, and its place is found in the new text."""
        document = _parse(text)
        paths: list[tuple[Path, Any]] = []
        spans: list[Scalar] = []
        with _refused_edits():
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


@contextmanager
def _refused_edits() -> Iterator[None]:
    """tomlkit fails in many ways on tables that are apart or dotted: each is a refusal."""
    try:
        yield
    except (TOMLKitError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Uneditable("the way these tables are written cannot be changed in place") from None


@lru_cache(maxsize=16)
def _load(text: str) -> dict[str, Any]:
    """The error has the place without the line, which may hold anything."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at (.*)\)$", str(error))
        raise Uneditable(f"not valid TOML ({place[1] if place else 'unknown place'})") from None
    except (ValueError, RecursionError):
        raise Uneditable("nested too deeply, or a number has too many digits") from None


def _parse(text: str) -> tomlkit.TOMLDocument:
    _load(text)
    try:
        document = tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError):
        raise Uneditable("not understood") from None
    if tomlkit.dumps(document) != text:
        raise Uneditable("the way this file is written cannot be kept")
    return document


def _table(document: Any, path: Path) -> Any:
    for key in path:
        document = document.get(key, {})
    return document


def _with_section(text: str, path: Path, name: str, fields: Mapping[str, Any]) -> str:
    """A new section at the end."""
    section = tomlkit.table()
    for key, value in fields.items():
        section[key] = _item(value)
    newline = newline_of(text)
    header = ".".join(tomlkit.key(str(key)).as_string() for key in (*path, name))
    before = "" if not text else newline if text.endswith("\n") else newline * 2
    added = f"[{header}]\n{section.as_string()}".replace("\r\n", "\n").replace("\n", newline)
    with _refused_edits():
        if tomlkit.dumps(tomlkit.parse(text + before + added)) == text + before + added:
            return text + before + added
        document = _parse(text)  # tables of one root that are apart, oddly written
        _table(document, path).append(name, section)
        return tomlkit.dumps(document)


def _item(value: Any) -> Any:
    """On one line."""
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, member in value.items():
            table[key] = _item(member)
        return table
    try:
        return tomlkit.item(value)
    except (TOMLKitError, ValueError):
        raise Uneditable(f"TOML has no {type(value).__name__}") from None


def _with_comments(before: str, after: str) -> str:
    """Without a section and the blank line above it. tomlkit takes the comments in front of the next table for a part
    of this one; they stay."""
    length = len(before) - len(after)
    start = before.rfind("\n", 0, common_prefix(before, after)) + 1
    removed = before[start : start + length]
    if before[:start] + before[start + length :] != after:
        return after
    comments = _TRIVIA.search(removed)
    head = before[:start]
    if removed.startswith("[") and (blank := _BLANK_LINE.search(head)):
        head = head[: blank.start()]
    return head + (comments[0] if comments else "") + before[start + length :]


def _replace_scalars(item: Any, path: Path, scalars: list[tuple[Path, Any]]) -> None:
    for key in range(len(item)) if isinstance(item, list) else list(item):
        value = item[key]
        if isinstance(value, dict | list):
            _replace_scalars(value, (*path, key), scalars)
        else:
            item[key] = f"\ue000{len(scalars)}\ue001"
            scalars.append(((*path, key), value))

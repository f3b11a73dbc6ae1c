"""Find the line of a key in a TOML text, for error messages: `tomllib` keeps no positions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def find_key_line(text: str, path: Sequence[str]) -> int:
    """Return the line, from one, of the longest prefix of the key's path that the text has; 1 if it has none."""
    best_line, best_depth = 1, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.match(line)) is not None:
            table = key_path = _split_key(header[1])
        elif (key := _KEY.match(line)) is not None:
            key_path = table + _split_key(key[1])
        else:
            continue
        depth = len(key_path)
        if depth > best_depth and key_path == tuple(path[:depth]):
            best_line, best_depth = number, depth
    return best_line


def _split_key(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))

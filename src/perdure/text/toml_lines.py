"""On which line of a TOML text a key stands: for an error message, since the parser keeps no places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART: Final = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, path: Sequence[str]) -> int:
    """The line, from 1, of the longest beginning of the path that is written down; 1 where nothing of it is."""
    best, depth = 1, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.match(line)) is not None:
            table = _parts(header[1])
            written = table
        elif (key := _KEY.match(line)) is not None:
            written = table + _parts(key[1])
        else:
            continue
        shared = _shared(written, path)
        if shared > depth and shared == len(written):
            best, depth = number, shared
    return best


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _shared(written: Sequence[str], path: Sequence[str]) -> int:
    count = 0
    for one, other in zip(written, path, strict=False):
        if one != other:
            break
        count += 1
    return count

"""Searching a catalog's copy: every word as the beginning of a word, the name before the description.

What the index ranks is put in order once more: a server that is called what was asked for comes first, one whose
name has all the words next, one that is deprecated last. Where nothing has all the words, what has any of them is
found, and at the end names that contain the words anywhere.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.registry.official.store import CatalogStore, Row

CANDIDATES: Final = 400
MAX_WORDS: Final = 16
_WORD: Final = re.compile(r"[^\W_]+")
_SAYS_NOTHING: Final = frozenset({"mcp", "server", "servers", "io", "github", "com"})


def search(store: CatalogStore, asked: str, limit: int) -> list[Row]:
    words = _WORD.findall(asked.lower())[:MAX_WORDS]
    if not words:
        return []
    pool = max(CANDIDATES, limit * 4)
    found = store.matching(" ".join(f'"{word}"*' for word in words), pool)
    if not found and len(words) > 1:
        telling = [word for word in words if word not in _SAYS_NOTHING] or words
        found = store.matching(" OR ".join(f'"{word}"*' for word in telling), pool)
    ranked = sorted(found, key=lambda row: _standing(row, words, asked.strip().lower()))
    if len(ranked) < limit:
        known = {row.name for row in ranked}
        ranked += [row for row in store.containing(words, pool) if row.name not in known]
    return ranked[:limit]


def _standing(row: Row, words: list[str], asked: str) -> tuple[float, int, str]:
    """Smaller is better, as it is with the index's own rank."""
    name_words = _WORD.findall(row.name.lower())
    last_words = _WORD.findall(row.name.lower().rpartition("/")[2])
    telling = [word for word in last_words if word not in _SAYS_NOTHING] or last_words
    standing = row.rank
    if asked in (row.name.lower(), row.short.lower()):
        standing -= 100
    if telling == words or row.short.lower() == "-".join(words):
        standing -= 40
    elif set(words) <= set(last_words):
        standing -= 20
    elif set(words) <= set(name_words):
        standing -= 12
    elif all(any(one.startswith(word) for one in name_words) for word in words):
        standing -= 6
    if row.status == "deprecated":
        standing += 60
    return standing, len(row.name), row.name

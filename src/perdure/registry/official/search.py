"""Searching a catalog's copy: every word as the beginning of a word, the name before the description.

What the index ranks is put in order once more: a server that is called what was asked for comes first, one whose
name has all the words next, one that is deprecated last. Where nothing has all the words, what has any of them is
found, and at the end names that contain the words anywhere.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.registry.official.store import CatalogStore, Row

CANDIDATES: Final = 200
MAX_WORDS: Final = 16
_WORD: Final = re.compile(r"[^\W_]+")
# In most names; asked for beside other words, they only say which of several comes first.
_SAYS_NOTHING: Final = frozenset({"mcp", "server", "servers", "io", "com"})


def search(store: CatalogStore, asked: str, limit: int) -> list[Row]:
    text = asked.strip().lower()
    words = _WORD.findall(text.removeprefix("io.github."))[:MAX_WORDS]
    if not words:
        return []
    pool = max(CANDIDATES, limit * 2)
    telling = [word for word in words if word not in _SAYS_NOTHING] or words
    found = store.matching(" ".join(f'"{word}"*' for word in telling), pool)
    if not found and len(telling) > 1:
        found = store.matching(" OR ".join(f'"{word}"*' for word in telling), pool)
    ranked = sorted(found, key=lambda row: _standing(row, words, text))
    if len(ranked) < limit:
        known = {row.name for row in ranked}
        ranked += [row for row in store.containing(words, pool) if row.name not in known]
    return ranked[:limit]


def _standing(row: Row, words: list[str], asked: str) -> tuple[float, int, str]:
    """Smaller is better, as it is with the index's own rank."""
    name = row.name.lower()
    owner, _, last = name.rpartition("/")
    last_words = _WORD.findall(last)
    standing = row.rank
    if asked in (name, row.short.lower()):
        standing -= 100
    if words == [word for word in last_words if word not in _SAYS_NOTHING] or words == last_words:
        standing -= 40
    elif set(words) <= set(last_words):
        standing -= 20
    elif set(words) <= {*last_words, *_WORD.findall(owner)}:
        standing -= 12
    elif all(word in name for word in words):
        standing -= 6
    if row.status == "deprecated":
        standing += 60
    return standing, len(name), name

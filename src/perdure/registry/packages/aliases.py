"""Short names for full ones. `com.stripe/mcp` is `stripe` here, and the full name stays in its provenance.

Of the servers in the official registry one in six shares its last word with another, so a short name is checked
against what is there and made longer step by step.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

# Names that say nothing of what the server is for.
GENERIC: Final = frozenset(
    {"mcp", "mcp-server", "server", "mcp-servers", "mcpserver", "mcp_server", "api", "remote"}
)
# Tools appear as NAME__tool, and clients allow 64 characters for both.
LONGEST: Final = 40


def short_name(full: str) -> str:
    """The last word, or who it is from where the last word says nothing."""
    owner, _, last = full.rpartition("/")
    return _fit(_owner(owner) if last.lower() in GENERIC and owner else last)


def alias(full: str, taken: Collection[str]) -> str:
    """A name that is not taken: the shortest that is free."""
    lower = {name.lower() for name in taken}
    return next(name for name in _candidates(full) if name.lower() not in lower)


def _candidates(full: str) -> Iterator[str]:
    owner, _, last = full.rpartition("/")
    yield short_name(full)
    if owner:
        yield _fit(f"{_owner(owner)}-{last}")
    yield _fit(full)
    number = 2
    while True:
        yield f"{_fit(full)[: LONGEST - 5].rstrip('-')}-{number}"
        number += 1


def _owner(namespace: str) -> str:
    """`io.github.someone` is someone; `com.stripe` is stripe."""
    return namespace.rpartition(".")[2] or namespace


def _fit(text: str) -> str:
    found = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", text)).strip("-_")
    return found[:LONGEST].strip("-_") or "server"

"""Short names of servers: `com.stripe/mcp` becomes `stripe`; the full name stays in the provenance.

One in six servers of the official registry shares its last word with another, so a short name that is taken is made longer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

# Last words that do not describe the server.
GENERIC: Final = frozenset(
    {"mcp", "mcp-server", "server", "mcp-servers", "mcpserver", "mcp_server", "api", "remote"}
)
# Tools appear as NAME__tool, and clients allow 64 characters for both.
LONGEST: Final = 40


def short_name(full: str) -> str:
    """The last word, or the owner if the last word is generic."""
    owner, _, last = full.rpartition("/")
    return _fit(_owner(owner) if last.lower() in GENERIC and owner else last)


def alias(full: str, taken: Collection[str]) -> str:
    """The shortest name that is free."""
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
    """`acme` of `io.github.acme`, `stripe` of `com.stripe`."""
    return namespace.rpartition(".")[2] or namespace


def _fit(text: str) -> str:
    fitted = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", text)).strip("-_")
    return fitted[:LONGEST].strip("-_") or "server"

"""How much of a match may be shown: the vendor's mark and four characters more, and of short ones nothing."""

from __future__ import annotations

from typing import Final

FURTHER: Final = 4
LEAST_HIDDEN: Final = 12
# Of these even the first characters tell too much.
CLOSED_KINDS: Final = frozenset({"pem_block", "pii", "password", "connection_string"})


def masked(secret: str, kind: str, shown: int) -> str:
    """The first `shown` characters are the vendor's mark; of what follows a few at most."""
    hidden = len(secret) - shown
    further = FURTHER if kind not in CLOSED_KINDS and hidden >= LEAST_HIDDEN + FURTHER else 0
    return f"{secret[: shown + further]}…"

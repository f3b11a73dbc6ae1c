"""Which commands may be started: the registry's own list, or a short default. An empty list allows nothing."""

from __future__ import annotations

import os
from typing import Final

from perdure.registry.errors import CommandNotAllowed

DEFAULT: Final = frozenset({"npx", "uvx", "python", "python3", "node", "docker"})


def is_allowed(command: str, allowed: frozenset[str] | None) -> bool:
    """By its last name, or by the whole path where the list holds that (MUST 12)."""
    listed = DEFAULT if allowed is None else allowed
    return os.path.basename(command) in listed or command in listed


def narrowed(allowed: frozenset[str] | None) -> frozenset[str]:
    """A list that is not trusted can only leave out some of the usual commands."""
    return DEFAULT if allowed is None else DEFAULT & allowed


def check_allowed(command: str, allowed: frozenset[str] | None, *, entry: str) -> None:
    if not is_allowed(command, allowed):
        name = os.path.basename(command)
        raise CommandNotAllowed(
            f"{entry}: the command {name} is not in the allowed list",
            entry=entry,
            hint=f"list {name} under `## Allowed commands` to allow it",
        )

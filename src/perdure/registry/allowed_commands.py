"""The commands that may be started: the registry's own list, or a short default. An empty list allows nothing."""

from __future__ import annotations

import os
from json import dumps
from typing import Final

from perdure.registry.errors import CommandNotAllowed

DEFAULT: Final = frozenset({"npx", "uvx", "python", "python3", "node", "docker"})


def is_allowed(command: str, allowed: frozenset[str] | None) -> bool:
    """By its base name, or by the whole path if the list has that (MUST 12)."""
    listed = DEFAULT if allowed is None else allowed
    return os.path.basename(command) in listed or command in listed


def narrow(allowed: frozenset[str] | None) -> frozenset[str]:
    """A list that is not trusted can only remove commands from the default."""
    return DEFAULT if allowed is None else DEFAULT & allowed


def check_allowed(
    command: str, allowed: frozenset[str] | None, *, entry: str, path: str = "the registry's file"
) -> None:
    if not is_allowed(command, allowed):
        name = os.path.basename(command)
        raise CommandNotAllowed(
            f"{entry}: the command {name} is not in the allowed list, so it would never be started",
            entry=entry,
            hint=_how_to_allow(command, allowed, path),
        )


def _how_to_allow(command: str, allowed: frozenset[str] | None, path: str) -> str:
    first, *rest = command.split()
    if rest and is_allowed(first, allowed):
        return f"give the command and its arguments as separate words: -- {command}"
    name = os.path.basename(command)
    # A list replaces the default one, so the first list names the default commands again.
    names = [name] if allowed is not None else [*sorted(DEFAULT), name]
    if path.endswith((".json", ".jsonc")):
        return f"add to {path}: {dumps({'perdure': {'allowedCommands': names}})}"
    return f"add to {path}, below `## Allowed commands`, one on a line: {' '.join(names)}"

"""Where the registry is. Only names are looked at, so that a host without a registry imports nothing else of it."""

from __future__ import annotations

import os
from collections.abc import Mapping

FILE_NAMES = ("mcp.md", "mcp.json")


def locate(given: str | None, workspace: str | None, environ: Mapping[str, str]) -> str:
    """The location of the registry: the given one, else a file of the workspace, else the user's.

    If there is none, the user's `mcp.md`, where one would be created.
    """
    named = given or environ.get("PERDURE_REGISTRY")
    if named and "://" in named:
        return named
    if named:
        return os.path.abspath(os.path.expanduser(named))
    user = user_folder(environ)
    project = in_folder(workspace) if workspace is not None else None
    return project or in_folder(user) or os.path.join(user, FILE_NAMES[0])


def user_folder(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "perdure")


def in_folder(folder: str) -> str | None:
    """The registry of a folder; None if it has none."""
    paths = (os.path.join(folder, name) for name in FILE_NAMES)
    return next((path for path in paths if os.path.lexists(path)), None)

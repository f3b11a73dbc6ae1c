"""Which workspace a command is about, and where its stores and its registry are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.storage.user_dirs import data_dir
from perdure.storage.workspace_store import StorePlace, find, is_known

if TYPE_CHECKING:
    from perdure.host.settings import Settings


def find_workspace(folder: str) -> str:
    """The nearest folder, from this one upward, in which Perdure has written; else the root of the git repository; else
    the folder itself. A repository that is the home folder does not count: it holds settings, not a project.
    """
    above = list(_upward(os.path.realpath(folder)))
    for path in above:
        if is_known(path):
            return path
    home = os.path.realpath(os.path.expanduser("~"))
    for path in above:
        if path != home and os.path.lexists(os.path.join(path, ".git")):
            return path
    return above[0]


def find_project(named: str | None, project: str | None, cwd: str) -> str:
    """The workspace of a client that runs a hook: the one that was named, else the client's project, else the one around
    the folder that it works in."""
    place = named or os.environ.get("PERDURE_WORKSPACE") or project
    return os.path.realpath(place) if place else find_workspace(cwd)


def _upward(path: str) -> Iterator[str]:
    yield path
    while (parent := os.path.dirname(path)) != path:
        path = parent
        yield path


def from_here(path: str, workspace: str) -> str:
    """A path as typed: relative to the current folder where that is in the workspace, else to the workspace."""
    here = os.path.realpath(os.getcwd())
    is_inside = here == workspace or here.startswith(workspace.rstrip(os.sep) + os.sep)
    return os.path.join(here, path) if is_inside else path


def store_place(settings: Settings) -> StorePlace:
    """The store of the first workspace, which holds the journal of all of them."""
    return find(settings.workspaces[0], settings.store)


def state_file(state: str | None) -> str | None:
    """The state store's file; None where the store is not a file."""
    if state is None:
        return os.path.join(data_dir(), "state.db")
    if state == "memory:" or ("://" in state and not state.startswith("sqlite://")):
        return None
    return os.path.abspath(os.path.expanduser(state.removeprefix("sqlite://")))


def registry_location(settings: Settings) -> str | None:
    """The registry that a host here would read; None where there is none."""
    from perdure.host.workspace_trust import registry_place

    place = registry_place(settings, os.environ)
    return place if "://" in place or os.path.lexists(place) else None

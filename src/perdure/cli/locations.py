"""Where the stores and the registry of a workspace are."""

from __future__ import annotations

import os

from perdure.host.settings import Settings
from perdure.host.workspace_trust import registry_place
from perdure.storage.user_dirs import data_dir
from perdure.storage.workspace_store import StorePlace, find


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
    place = registry_place(settings, os.environ)
    return place if "://" in place or os.path.lexists(place) else None

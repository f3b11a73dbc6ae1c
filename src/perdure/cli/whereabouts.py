"""Where a reading command looks: workspace, state store, registry.

The same answer as the settings give a host. The settings themselves are loaded only where a file of them is there,
since that takes longer than all else that such a command does.
"""

from __future__ import annotations

import os
import sys

from perdure.storage.places import data_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SETTINGS = "perdure.toml"


class Whereabouts:
    __slots__ = ("has_settings", "registry", "state", "workspaces")

    def __init__(
        self,
        workspaces: tuple[str, ...],
        state: str | None,
        registry: str | None,
        *,
        has_settings: bool = False,
    ) -> None:
        self.workspaces = workspaces
        self.state = state
        self.registry = registry
        self.has_settings = has_settings

    @property
    def workspace(self) -> str:
        return self.workspaces[0]

    @property
    def journal(self) -> str:
        return os.path.join(self.workspace, ".perdure", "journal.db")

    @property
    def state_file(self) -> str | None:
        """The state store's file; None where it is no file."""
        if self.state is None:
            return os.path.join(data_dir(), "state.db")
        if self.state == "memory:" or ("://" in self.state and not self.state.startswith("sqlite://")):
            return None
        return os.path.abspath(os.path.expanduser(self.state.removeprefix("sqlite://")))


def add_workspace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace",
        action="append",
        metavar="DIR",
        help="the workspace; repeatable (PERDURE_WORKSPACE, else here)",
    )
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace", action="append", metavar="DIR", help="the workspace (PERDURE_WORKSPACE, else here)"
    )
    parser.add_argument(
        "--state", metavar="URL|PATH", help="the state store (PERDURE_STATE, CHECKPOINT_DB_PATH)"
    )
    parser.add_argument("--registry", metavar="FILE", help="the server registry (PERDURE_REGISTRY)")


def whereabouts(options: argparse.Namespace, command: str) -> Whereabouts:
    """Exits with 2 and the reason where the settings cannot be meant."""
    variable = os.environ.get("PERDURE_WORKSPACE") or os.environ.get("RW_WORKSPACE") or ""
    named = options.workspace or [part for part in variable.split(os.pathsep) if part] or ["."]
    if variable.startswith("[") or _has_settings(named[0]):
        from perdure.cli.options import settle

        found = settle(options, command)
        return Whereabouts(found.workspaces, found.state, found.registry, has_settings=True)
    workspaces = tuple(os.path.realpath(path) for path in named)
    for path in workspaces:
        if not os.path.isdir(path):
            print(f"perdure {command}: workspace {path} is not a directory", file=sys.stderr)
            raise SystemExit(2)
    state = (
        getattr(options, "state", None)
        or os.environ.get("PERDURE_STATE")
        or os.environ.get("CHECKPOINT_DB_PATH")
    )
    return Whereabouts(
        workspaces,
        state or None,
        getattr(options, "registry", None) or os.environ.get("PERDURE_REGISTRY") or None,
    )


def _has_settings(workspace: str) -> bool:
    from perdure.registry.locating import user_folder

    paths = (os.path.join(workspace, SETTINGS), os.path.join(user_folder(os.environ), SETTINGS))
    return any(os.path.exists(path) for path in paths)


def registry_place(found: Whereabouts) -> str | None:
    """The registry that a host here would read; None where there is none."""
    from perdure.registry.locating import locate

    place = locate(found.registry, found.workspace, os.environ)
    return place if "://" in place or os.path.lexists(place) else None

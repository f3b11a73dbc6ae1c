"""Which surfaces a worker serves, and on what: the only place that wires a surface to a backend."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from perdure.model.keep import Keep
from perdure.model.tools import DEFAULT_VIEW, View
from perdure.surfaces.port import Surface

if TYPE_CHECKING:
    from perdure.surfaces.write.service import WriteService

Durability = Literal["journal", "strict"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `perdure worker` was told. Workspaces are absolute; relative paths start at the first."""

    workspaces: tuple[str, ...]
    surfaces: tuple[str, ...] = ("write", "state")
    tools: tuple[str, ...] = ()
    state: str | None = None
    policy: str | None = None
    registry: str | None = None
    durability: Durability = "journal"
    keep: Keep = Keep()
    view: View = DEFAULT_VIEW
    log_level: str = "warning"


SURFACE_NAMES: Final = ("write", "state")


def open_write(settings: Settings) -> WriteService:
    """The workspace of the write surface, recovered and ready. Raises ToolError for a policy that cannot be meant."""
    from zlib import crc32

    from perdure.storage.places import private_dir
    from perdure.storage.sqlite.journal import SqliteJournal
    from perdure.surfaces.write import policy_files
    from perdure.surfaces.write.service import WriteService

    found = policy_files.load(settings.policy, settings.workspaces)
    anchor = f"{crc32(settings.workspaces[0].encode('utf-8', 'surrogateescape')):08x}"

    def open_journal(folder: str) -> SqliteJournal:
        return SqliteJournal(folder, os.path.join(private_dir("anchors"), anchor))

    return WriteService(
        settings.workspaces,
        open_journal,
        strict=settings.durability == "strict",
        keep=settings.keep,
        policy=found.policy,
        policy_rules=found.own,
        scratch_get=found.policy.scratch.get and not os.environ.get("RW_SCRATCH_DISABLE_GET"),
    )


def _write(settings: Settings) -> Surface:
    from perdure.surfaces.write.surface import WriteSurface

    return WriteSurface(lambda: open_write(settings))


# Each builder imports its surface itself: one that is not asked for costs nothing at startup.
_BUILDERS: Final[dict[str, Callable[[Settings], Surface]]] = {"write": _write}


def surfaces(settings: Settings) -> tuple[Surface, ...]:
    """The surfaces asked for, in the order asked for."""
    if unknown := [name for name in settings.surfaces if name not in SURFACE_NAMES]:
        raise ValueError(f"no surface {', '.join(unknown)}; there are {', '.join(SURFACE_NAMES)}")
    found = tuple(_BUILDERS[name](settings) for name in settings.surfaces if name in _BUILDERS)
    if settings.tools:
        known = {
            name for one in found for tool in one.tools() for name in (tool.spec.name, *tool.spec.aliases)
        }
        if unknown := [name for name in settings.tools if name not in known]:
            raise ValueError(f"no tool {', '.join(unknown)}")
    return found

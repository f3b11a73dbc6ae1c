"""Which surfaces a worker serves, and on what: the only place that wires a surface to a backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from perdure.protocol.tools import DEFAULT_VIEW, View
from perdure.storage.process_lock import LOCK_S
from perdure.storage.state_limits import StateLimits
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.retention_limits import Keep
from perdure.workspace.timeline.settings import TimelineSettings

if TYPE_CHECKING:
    from perdure.storage.state import StateBackend
    from perdure.surfaces.port import Surface
    from perdure.surfaces.state.service import StateService
    from perdure.worker.hook_listener import HookHandler, HookListener
    from perdure.workspace.workspace import Workspace

Durability = Literal["journal", "strict"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `perdure worker` was told. Workspaces are absolute; relative paths start at the first."""

    workspaces: tuple[str, ...]
    surfaces: tuple[str, ...] = ("write", "state")
    tools: tuple[str, ...] = ()
    state: str | None = None
    policy: str | None = None
    workspace_policy: str | None = None
    user_policy: str | None = None
    registry: str | None = None
    durability: Durability = "journal"
    store: Literal["data", "workspace"] = "data"
    keep: Keep = Keep()
    timeline: TimelineSettings = TimelineSettings()
    reservations: ReservationSettings = ReservationSettings()
    state_limits: StateLimits = StateLimits()
    view: View = DEFAULT_VIEW
    log_level: str = "warning"


SURFACE_NAMES: Final = ("write", "state")


def _keep_compiled_rules() -> None:
    """The risk check compiles its rules once for all workers."""
    from perdure.risk import engine
    from perdure.storage.disk_cache import Shelved

    engine.cache = Shelved("gate")


def open_write(settings: Settings, *, is_read_only: bool = False, lock_s: float = LOCK_S) -> Workspace:
    """The workspace of the write surface, recovered and ready. Raises ToolError for a policy that cannot be meant.

    With `is_read_only` nothing is created or recovered. `lock_s` is how long a commit waits for another process."""
    from perdure.registry.location import user_folder
    from perdure.storage.trust import TrustStore
    from perdure.storage.user_dirs import private_dir
    from perdure.worker.diagnostics import log_to_events
    from perdure.workspace import policy_file
    from perdure.workspace.workspace import Workspace, WorkspaceSettings

    if not is_read_only:
        with suppress(OSError):  # a log that cannot be written never stops a call
            log_to_events(private_dir("log"))
        _keep_compiled_rules()
    rules = policy_file.folder_rules((TrustStore().folder, user_folder(os.environ)), settings.workspaces)
    found = policy_file.load(
        settings.policy,
        settings.workspaces,
        in_settings=settings.workspace_policy,
        user=settings.user_policy,
    )
    return Workspace.open(
        settings.workspaces,
        WorkspaceSettings(
            store=settings.store,
            strict=settings.durability == "strict",
            keep=settings.keep,
            timeline=settings.timeline,
            reservations=settings.reservations,
            policy=found.policy,
            policy_rules=(*found.own, *rules),
            scratch_get=found.policy.scratch.get and not os.environ.get("RW_SCRATCH_DISABLE_GET"),
        ),
        is_read_only=is_read_only,
        lock_s=lock_s,
        open_state=lambda: open_backend(settings.state, is_read_only=is_read_only),
    )


def _write(settings: Settings) -> Surface:
    from perdure.surfaces.write.surface import WriteSurface

    return WriteSurface(lambda: open_write(settings))


def open_state(settings: Settings, *, is_read_only: bool = False) -> StateService:
    """The shared state that `--state` names. With `is_read_only` no file is made for it."""
    from perdure.surfaces.state.service import StateService

    return StateService(open_backend(settings.state, is_read_only=is_read_only), settings.state_limits)


def open_backend(state: str | None, *, is_read_only: bool = False) -> StateBackend:
    """A PostgreSQL URL, `memory:`, or the path of a SQLite file; by default one in the user's data directory.

    With `is_read_only` a missing file reads as an empty store."""
    from perdure.storage.user_dirs import data_dir

    if state is not None and state.startswith(("postgresql://", "postgres://")):
        return _open_postgres(state)
    if state == "memory:":
        from perdure.storage.memory import MemoryState

        return MemoryState()
    from perdure.storage.errors import StateError
    from perdure.storage.sqlite.state import SqliteState

    path = (state or os.path.join(data_dir(), "state.db")).removeprefix("sqlite://")
    if "://" in path:
        raise StateError(
            "resource", "state_url", "a state store is a file, or a URL that begins postgresql://", "never"
        )
    path = os.path.abspath(os.path.expanduser(path))
    if is_read_only and not os.path.exists(path):
        return open_backend("memory:")
    return SqliteState(path, is_read_only=is_read_only)


def _open_postgres(dsn: str) -> StateBackend:
    from perdure.storage.errors import StateError

    try:
        from perdure.storage.postgres.state import PostgresState
    except ImportError:
        raise StateError(
            "resource", "postgres_missing", "PostgreSQL needs the extra perdure[postgres]", "never"
        ) from None
    return PostgresState(dsn)


def _state(settings: Settings) -> Surface:
    from perdure.surfaces.state.surface import StateSurface

    return StateSurface(lambda: open_state(settings))


# Each builder imports its surface itself: one that is not asked for costs nothing at startup.
_BUILDERS: Final[dict[str, Callable[[Settings], Surface]]] = {"write": _write, "state": _state}


def surfaces(settings: Settings) -> tuple[Surface, ...]:
    """The surfaces asked for, in the order asked for."""
    if unknown := [name for name in settings.surfaces if name not in SURFACE_NAMES]:
        raise ValueError(f"no surface {', '.join(unknown)}; there are {', '.join(SURFACE_NAMES)}")
    return tuple(_BUILDERS[name](settings) for name in settings.surfaces if name in _BUILDERS)


def hook_listener(settings: Settings, served: Sequence[Surface]) -> HookListener | None:
    """What takes the hooks of the workspace; None where the time machine is off."""
    from perdure.surfaces.write.surface import WriteSurface
    from perdure.worker.hook_listener import HookListener

    surface = next((surface for surface in served if isinstance(surface, WriteSurface)), None)
    if surface is None or not settings.timeline.enabled:
        return None
    root = settings.workspaces[0]

    def open_recorder() -> HookHandler:
        from perdure.worker.resident_recorder import ResidentRecorder

        return ResidentRecorder(surface, root)

    return HookListener(root, open_recorder)

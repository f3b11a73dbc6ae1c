"""The settings with which a command opens the workspace itself, as a worker would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.host.settings import Settings

if TYPE_CHECKING:
    from perdure.worker.compose import Settings as WorkerSettings


def write_settings(known: Settings) -> WorkerSettings:
    from perdure.worker.compose import Settings as WorkerSettings

    return WorkerSettings(
        workspaces=known.workspaces,
        surfaces=("write",),
        state=known.state,
        policy=known.policy,
        workspace_policy=known.workspace_policy,
        user_policy=known.user_policy,
        durability=known.durability,
        store=known.store,
        keep=known.keep,
        timeline=known.timeline,
        reservations=known.reservations,
        log_level=known.log_level,
    )

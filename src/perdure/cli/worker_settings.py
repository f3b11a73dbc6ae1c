"""The settings of a worker, from those of the command line: for `perdure worker`, and for commands that open the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.host.settings import Settings

if TYPE_CHECKING:
    from perdure.worker.compose import Settings as WorkerSettings


def worker_settings(settings: Settings, surfaces: tuple[str, ...] | None = None) -> WorkerSettings:
    from perdure.protocol.tools import View
    from perdure.worker.compose import Settings as WorkerSettings

    return WorkerSettings(
        workspaces=settings.workspaces,
        surfaces=settings.surfaces if surfaces is None else surfaces,
        tools=settings.tools,
        state=settings.state,
        policy=settings.policy,
        workspace_policy=settings.workspace_policy,
        user_policy=settings.user_policy,
        registry=settings.registry,
        durability=settings.durability,
        store=settings.store,
        keep=settings.keep,
        timeline=settings.timeline,
        reservations=settings.reservations,
        state_limits=settings.state_limits,
        view=View(settings.render, settings.detail),
        log_level=settings.log_level,
    )


def write_settings(settings: Settings) -> WorkerSettings:
    """For the write surface alone."""
    return worker_settings(settings, ("write",))

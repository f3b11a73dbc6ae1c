"""Putting a host together: its kernel, its shell and what records its session."""

from __future__ import annotations

import os
import time
from binascii import hexlify
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from perdure import __version__
from perdure.host import catalog_cache, presence, upgrade
from perdure.host.capsule import RESUME_ENV
from perdure.host.console import Console
from perdure.host.control import Control
from perdure.host.launch import own_command
from perdure.host.registry_mounts import RegistryMounts
from perdure.host.settings import Settings
from perdure.host.stdio import StdioHost
from perdure.host.task_records import TaskRecords
from perdure.kernel.core import Kernel
from perdure.platform.guardian import Guardian
from perdure.platform.processes import start_time
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile
from perdure.storage.event_log import EventLog
from perdure.storage.user_dirs import state_dir
from perdure.surfaces.ops import host_tools

if TYPE_CHECKING:
    from perdure.host.mount_calls import MountCalls
    from perdure.kernel.events import Effect
    from perdure.kernel.state import ChildCatalog, KnownTools, Task
    from perdure.supervise.event_loop import EventLoop
    from perdure.telemetry.exporter import Exporter
    from perdure.telemetry.tracing import Tracing


def new_kernel(
    specs: dict[str, MountSpec],
    settings: Settings,
    *,
    wrapped: bool,
    catalogs: Mapping[str, ChildCatalog] | None = None,
    tools: Mapping[str, KnownTools] | None = None,
    file_faults: Mapping[str, Sequence[Fault]] | None = None,
    untrusted: tuple[UntrustedFile, ...] = (),
    tasks: dict[str, Task] | None = None,
) -> Kernel:
    return Kernel(
        specs,
        session_id=hexlify(os.urandom(8)).decode(),
        now=time.monotonic(),
        limits=settings.limits,
        wrapped=wrapped,
        version=__version__,
        render=settings.render,
        detail=settings.detail,
        profile=settings.profile,
        catalogs=catalogs,
        tools=tools,
        file_faults=file_faults,
        untrusted=untrusted,
        places=lambda: {} if wrapped else places_of(settings.workspaces[0], settings.store),
        host_tools=host_tools,
        tasks=tasks,
        host=TaskRecords().host,
        epoch=time.time() - time.monotonic(),
        seed=int.from_bytes(os.urandom(6), "big"),
    )


def places_of(workspace: str, store: Literal["data", "workspace"]) -> dict[str, str]:
    """The workspace and where its journal and contents are. Read when asked: it costs imports that a host can do without."""
    from perdure.storage.workspace_store import find

    try:
        return {"workspace": workspace, "store": find(workspace, store).folder}
    except OSError:
        return {"workspace": workspace}


def new_host(
    kernel: Kernel,
    client_in: int,
    client_out: int,
    guardian: Guardian,
    settings: Settings,
    registry: RegistryMounts | None = None,
) -> StdioHost:
    exporter = new_exporter(settings)
    host = StdioHost(
        kernel,
        settings=settings,
        client_in=client_in,
        client_out=client_out,
        guardian=guardian,
        environ={key: value for key, value in os.environ.items() if key != RESUME_ENV},
        log=EventLog(os.path.join(state_dir(), "log", "events.jsonl")),
        save_catalog=catalog_cache.save,
        save_task=TaskRecords().save,
        registry=registry,
        upgrade=upgrade.begin,
        control=Control.open(),
        console=Console(settings.log_level, settings.log_format),
        exporter=exporter,
        tracing=_tracing(exporter, kernel) if exporter is not None else None,
    )
    host.mount_calls = new_mount_calls(
        kernel, settings, settings.workspaces[0], host.loop, lambda effect: host.runner.perform([effect])
    )
    return host


def new_mount_calls(
    kernel: Kernel, settings: Settings, workspace: str, loop: EventLoop, perform: Callable[[Effect], None]
) -> MountCalls | None:
    """Loaded only where calls of mounted servers are recorded."""
    timeline = settings.timeline
    if kernel.wrapped or not (timeline.enabled and timeline.mounts) or "write" not in settings.surfaces:
        return None
    from perdure.host.mount_calls import MountCalls

    return MountCalls(kernel, workspace, loop, perform)


def new_exporter(settings: Settings) -> Exporter | None:
    """Loaded only where telemetry is asked for."""
    if settings.otel is None:
        return None
    from perdure.telemetry.exporter import Exporter

    return Exporter(own_command("export-telemetry"), settings.otel)


def _tracing(exporter: Exporter, kernel: Kernel) -> Tracing:
    from perdure.telemetry.tracing import Tracing

    return Tracing(exporter.tell, kernel, {"network.transport": "pipe"})


def announce(kernel: Kernel, settings: Settings) -> None:
    pid = os.getpid()
    try:
        presence.announce(
            presence.Presence(
                pid,
                kernel.state.session.session_id,
                __version__,
                settings.workspaces[0],
                time.time(),
                start_time(pid),
                tuple(kernel.specs),
                workspaces=settings.workspaces,
            )
        )
    except (OSError, ValueError):  # ValueError: a path that is not UTF-8
        pass  # only our own commands look there

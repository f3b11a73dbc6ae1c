"""Putting a host together: which servers stand behind it, and on which descriptors it speaks."""

from __future__ import annotations

import os
import sys
import time
from binascii import hexlify
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from perdure import __version__
from perdure.host import catalog_cache, presence
from perdure.host.console import Console
from perdure.host.control import Control
from perdure.host.launch import mount_spec
from perdure.host.loop import Shell
from perdure.host.registry_mounts import RegistryMounts
from perdure.host.settings import Settings
from perdure.host.workspace_trust import trust_mark
from perdure.kernel.core import Kernel
from perdure.platform.guardian import Guardian
from perdure.platform.process_tree import client_process
from perdure.platform.processes import start_time
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile
from perdure.protocol.tool_groups import offered_tools
from perdure.storage.event_log import EventLog
from perdure.storage.user_dirs import state_dir
from perdure.surfaces.ops import host_tools

if TYPE_CHECKING:
    from perdure.host.mount_calls import EventLoop, MountCalls
    from perdure.kernel.events import Effect
    from perdure.kernel.state import ChildCatalog, KnownTools
    from perdure.telemetry.exporter import Exporter
    from perdure.telemetry.tracing import Tracing

BUILTIN = "perdure"


def own_command(*words: str) -> tuple[str, ...]:
    """This installation's own command. `-P` keeps the workspace off the import path."""
    return (sys.executable, "-P", "-m", "perdure", *words)


def specs_of(settings: Settings) -> dict[str, MountSpec]:
    """The built-in worker and every mount, in the order they are listed."""
    found = {BUILTIN: builtin_spec(settings)}
    for name, argv in settings.mounts.items():
        found[name] = mount_spec(settings, name, argv)
    return found


def builtin_spec(settings: Settings) -> MountSpec:
    words = ["worker"]
    for path in settings.workspaces:
        words += ["--workspace", path]
    for option, value in (
        ("--policy", settings.policy),
        ("--render", settings.render),
        ("--detail", settings.detail),
        ("--surfaces", ",".join(settings.surfaces)),
        ("--tools", ",".join(settings.tools) or None),
        ("--profile", "full"),  # what a session lists is decided here, for each session
        ("--durability", settings.durability),
        ("--log-level", settings.log_level),
        ("--log-format", settings.log_format if settings.log_format != "text" else None),
    ):
        if value is not None:
            words += [option, value]
    # By the environment: a command line is for everyone to read, and a URL may hold a password.
    env = {"PERDURE_STATE": settings.state} if settings.state is not None else {}
    return MountSpec(
        BUILTIN,
        own_command(*words),
        env=env,
        cwd=settings.workspaces[0],
        builtin=True,
        allow=offered_tools(settings.surfaces, settings.tools),
        mark=trust_mark(settings),
    )


def wrapped_spec(name: str, argv: tuple[str, ...], settings: Settings) -> dict[str, MountSpec]:
    """One server under its own names. It runs where it would have run without us."""
    spec = MountSpec(
        name,
        argv,
        cwd=os.getcwd(),
        startup_s=settings.timeouts.startup,
        call_s=settings.timeouts.call,
        idle_s=settings.timeouts.idle,
    )
    return {name: spec}


def serve_stdio(
    load_settings: Callable[[], Settings],
    specs_of: Callable[[Settings], dict[str, MountSpec]],
    *,
    wrapped: bool = False,
) -> int:
    """Be the host on this process's own standard input and output until the client is gone."""
    from perdure.host import upgrade

    capsule = upgrade.resumption()
    if capsule is not None:
        return upgrade.resume(capsule, load_settings, specs_of, wrapped=wrapped)
    settings = load_settings()
    specs = specs_of(settings)
    registry = None if wrapped else RegistryMounts(settings, os.environ, frozenset(specs))
    if registry is not None:
        specs = {**specs, **registry.specs()}
    client_in, client_out = claim_stdio()
    guardian = Guardian.start()
    kernel = new_kernel(
        specs,
        settings,
        wrapped=wrapped,
        catalogs={
            name: found for name, spec in specs.items() if (found := catalog_cache.load(spec)) is not None
        },
        tools=registry.tools_of(specs) if registry is not None else {},
        file_faults={
            "settings": settings.faults,
            "registry": registry.faults if registry is not None else (),
        },
        untrusted=registry.untrusted if registry is not None else (),
    )
    kernel.state.session.client_process = client_process() or ""
    shell = new_shell(kernel, client_in, client_out, guardian, settings, registry)
    announce(kernel, settings)
    try:
        return shell.run()
    finally:
        presence.withdraw()


def new_kernel(
    specs: dict[str, MountSpec],
    settings: Settings,
    *,
    wrapped: bool,
    catalogs: Mapping[str, ChildCatalog] | None = None,
    tools: Mapping[str, KnownTools] | None = None,
    file_faults: Mapping[str, Sequence[Fault]] | None = None,
    untrusted: tuple[UntrustedFile, ...] = (),
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
        seed=int.from_bytes(os.urandom(6), "big"),
    )


def places_of(workspace: str, store: Literal["data", "workspace"]) -> dict[str, str]:
    """The workspace and where its journal and contents are. Read when asked: it costs imports that a host can do without."""
    from perdure.storage.workspace_store import find

    try:
        return {"workspace": workspace, "store": find(workspace, store).folder}
    except OSError:
        return {"workspace": workspace}


def new_shell(
    kernel: Kernel,
    client_in: int,
    client_out: int,
    guardian: Guardian,
    settings: Settings,
    registry: RegistryMounts | None = None,
) -> Shell:
    from perdure.host import upgrade

    exporter = new_exporter(settings)
    shell = Shell(
        kernel,
        settings=settings,
        client_in=client_in,
        client_out=client_out,
        guardian=guardian,
        environ={key: value for key, value in os.environ.items() if key != upgrade.VARIABLE},
        log=EventLog(os.path.join(state_dir(), "log", "events.jsonl")),
        save_catalog=catalog_cache.save,
        registry=registry,
        upgrade=upgrade.begin,
        control=Control.open(),
        console=Console(settings.log_level, settings.log_format),
        exporter=exporter,
        tracing=_tracing(exporter, kernel) if exporter is not None else None,
    )
    shell.mount_calls = new_mount_calls(
        kernel, settings, settings.workspaces[0], shell, lambda effect: shell.perform([effect])
    )
    return shell


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


def claim_stdio() -> tuple[int, int]:
    """The client's pipe for ourselves alone: a stray print, or a child, must never write into it."""
    client_in, client_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return client_in, client_out


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

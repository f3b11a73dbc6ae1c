"""The servers behind a host: their specs, commands and environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from perdure.host.settings import Settings
from perdure.host.workspace_trust import trust_mark
from perdure.protocol.mount_names import SEPARATOR
from perdure.protocol.mounts import MountSpec
from perdure.protocol.tool_groups import offered_tools

BUILTIN = "perdure"
# What a program needs to run at all, and nothing that says who we are to others.
MINIMAL = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LOGNAME", "NODE_EXTRA_CA_CERTS", "PATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
        "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
    }
)  # fmt: skip


def minimal(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a mounted server, before what its entry or `--mount-env` names."""
    return {name: value for name, value in environ.items() if name in MINIMAL or name.startswith("LC_")}


def mount_spec(settings: Settings, name: str, argv: tuple[str, ...], *, managed: bool = False) -> MountSpec:
    """A server of `--mount`, or of `[mounts]` in a settings file (`managed`: it comes and goes with the file)."""
    return MountSpec(
        name,
        argv,
        name + SEPARATOR,
        cwd=settings.workspaces[0],
        startup_s=settings.timeouts.startup,
        call_s=settings.timeouts.call,
        idle_s=settings.timeouts.idle,
        managed=managed,
        env_names=settings.mount_env.get(name, ()),
    )


def environment(spec: MountSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Our own worker and a wrapped server get all of it; a mount the usual few, and those that were named for it."""
    if spec.env_names is None:
        return {**environ, **spec.env}
    named = {name: environ[name] for name in spec.env_names if name in environ}
    return {**minimal(environ), **named, **spec.env}


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

"""With what a child process is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from perdure.host.settings import Settings
from perdure.protocol.mount_names import SEPARATOR
from perdure.protocol.mounts import MountSpec

# What a program needs to run at all, and nothing that says who we are to others.
MINIMAL = frozenset(
    {
        "HOME", "LANG", "LANGUAGE", "LOGNAME", "NODE_EXTRA_CA_CERTS", "PATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE",
        "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
    }
)  # fmt: skip


class Launch(NamedTuple):
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


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

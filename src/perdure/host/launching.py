"""With what a child process is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
    """The environment of a server from the registry, before what its entry names."""
    return {name: value for name, value in environ.items() if name in MINIMAL or name.startswith("LC_")}

"""The identity of the running boot: it changes only when everything unsynced may be lost."""

from __future__ import annotations

import os
import sys


def boot_id() -> str:
    """Where the system has none, each process counts as another boot: then nothing unsynced is relied upon."""
    return _boot_id() or f"unknown-{os.urandom(16).hex()}"


def boot_number() -> int:
    """The first 32 bits of the identity; 0 where the system has none."""
    try:
        return int(_boot_id().replace("-", "")[:8], 16)
    except ValueError:
        return 0


def _boot_id() -> str:
    if sys.platform == "darwin":
        from perdure.platform.macos import boot_session

        return boot_session() or ""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""

"""Server catalogs kept from the last run, so that a session opens before its servers are up."""

from __future__ import annotations

import os
from zlib import crc32

from perdure.kernel.catalog import load_catalog
from perdure.kernel.state import ChildCatalog
from perdure.protocol.mounts import MountSpec
from perdure.storage.files.bounded_read import read_bounded
from perdure.storage.user_dirs import private_dir, write_private

MOST_BYTES = 64 * 1024 * 1024


def _identity(spec: MountSpec) -> bytes:
    """What is started, where and in which era: another command or directory may offer something else."""
    era = ("", "2026") if spec.modern_first else ()
    return "\0".join((spec.name, *spec.argv, "", spec.cwd, *era)).encode("utf-8", "surrogateescape") + b"\n"


def _path(identity: bytes) -> str:
    # The name only has to be short: the file begins with the whole identity, which is compared.
    return os.path.join(private_dir("catalogs"), f"{crc32(identity):08x}")


def load(spec: MountSpec) -> ChildCatalog | None:
    identity = _identity(spec)
    try:
        data = read_bounded(_path(identity), MOST_BYTES)
    except OSError:
        return None
    return load_catalog(data[len(identity) :]) if data.startswith(identity) else None


def save(spec: MountSpec, data: bytes) -> None:
    identity = _identity(spec)
    if len(data) > MOST_BYTES // 2:
        return  # reading it would hold up the next start for longer than the server itself
    try:
        write_private(_path(identity), identity + data)
    except OSError:
        pass  # only a head start for the next run

"""Server catalogs kept from the last run, so that a session opens before its servers are up."""

from __future__ import annotations

import os
from hashlib import blake2b

from perdure.host.places import private_dir, write_private
from perdure.kernel.catalog import load_catalog
from perdure.kernel.state import ChildCatalog
from perdure.model.mounts import MountSpec


def _path(spec: MountSpec, folder: str) -> str:
    """Named by what is started and where: another command or directory may offer something else."""
    identity = "\0".join((spec.name, *spec.argv, "", spec.cwd))
    return os.path.join(
        folder, blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    )


def load(spec: MountSpec) -> ChildCatalog | None:
    try:
        with open(_path(spec, private_dir("catalogs")), "rb") as file:
            return load_catalog(file.read())
    except OSError:
        return None


def save(spec: MountSpec, data: bytes) -> None:
    try:
        write_private(_path(spec, private_dir("catalogs")), data)
    except OSError:
        pass  # only a head start for the next run

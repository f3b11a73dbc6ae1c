"""`perdure registry update`: the newest version of a server from the catalog it came from."""

from __future__ import annotations

import argparse
import os

from msgspec import structs

from perdure.cli.registry.from_catalog import make_plan, now
from perdure.cli.registry.shared import add_catalog, editable_backend_of, print_result, warn
from perdure.registry.catalog.catalogs import Catalog, open_catalog
from perdure.registry.catalog.update import is_newer, merge_update
from perdure.registry.entry import Entry, Provenance
from perdure.registry.errors import RegistryError, Unsupported
from perdure.registry.packages.launch_plan import make_entry


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    add_catalog(parser)


def run(options: argparse.Namespace) -> int:
    backend = editable_backend_of(options)
    installed = backend.load(options.name)
    provenance = installed.provenance
    if provenance is None or not provenance.name:
        raise Unsupported(f"{installed.name} did not come from a catalog", entry=installed.name)
    catalog = open_catalog(options.catalog or provenance.catalog, os.environ)
    try:
        fresh = _fetch_entry(catalog, installed.name, provenance.name, "", provenance)
        is_new = fresh.provenance is not None and is_newer(installed, fresh)
        before = _installed_version(catalog, installed.name, provenance) if is_new else None
    finally:
        catalog.close()
    version = fresh.provenance.version if fresh.provenance is not None else ""
    notes: list[str] = []
    if is_new:
        entry, notes = merge_update(installed, fresh, before)
        backend.replace(entry)
    value = {
        "name": installed.name,
        "updated": is_new,
        "from": provenance.version,
        "to": version,
        "notes": notes,
    }
    summary = (
        f"updated {installed.name}  {provenance.version} → {version}"
        if is_new
        else f"{installed.name} {provenance.version} is the newest"
    )
    print_result(options, value, "\n".join([summary, *(f"  {note}" for note in notes)]))
    warn(catalog.notice)
    return 0


def _fetch_entry(catalog: Catalog, name: str, full: str, version: str, provenance: Provenance) -> Entry:
    offered = catalog.lookup(full, version)
    if isinstance(offered, Entry):
        offered_provenance = offered.provenance or Provenance()
        here = Provenance(
            catalog=catalog.location,
            name=full,
            version=offered_provenance.version,
            package=offered_provenance.package,
            installed_at=now(),
        )
        return structs.replace(offered, name=name, provenance=here)
    return make_entry(
        make_plan(offered, provenance.package.partition(":")[0]), name, {}, catalog.location, now()
    )


def _installed_version(catalog: Catalog, name: str, provenance: Provenance) -> Entry | None:
    """The installed version as the catalog has it; None if it is gone, or there are no versions."""
    try:
        return (
            _fetch_entry(catalog, name, provenance.name, provenance.version, provenance)
            if provenance.version
            else None
        )
    except RegistryError as error:
        if error.retryable:
            raise
        return None

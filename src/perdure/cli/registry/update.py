"""`perdure registry update`: the newest version of a server from the catalog it came from."""

from __future__ import annotations

import argparse
import os

from msgspec import structs

from perdure.cli.registry.from_catalog import now, planned
from perdure.cli.registry.shared import add_catalog, editable_backend_of, noticed, printed
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
    here = backend.load(options.name)
    came = here.provenance
    if came is None or not came.name:
        raise Unsupported(f"{here.name} did not come from a catalog", entry=here.name)
    catalog = open_catalog(options.catalog or came.catalog, os.environ)
    try:
        fresh = _offered(catalog, here.name, came.name, "", came)
        is_new = fresh.provenance is not None and is_newer(here, fresh)
        before = _as_it_was(catalog, here.name, came) if is_new else None
    finally:
        catalog.close()
    version = fresh.provenance.version if fresh.provenance is not None else ""
    notes: list[str] = []
    if is_new:
        entry, notes = merge_update(here, fresh, before)
        backend.replace(entry)
    value = {"name": here.name, "updated": is_new, "from": came.version, "to": version, "notes": notes}
    done = (
        f"updated {here.name}  {came.version} → {version}"
        if is_new
        else f"{here.name} {came.version} is the newest"
    )
    printed(options, value, "\n".join([done, *(f"  {note}" for note in notes)]))
    noticed(catalog.notice)
    return 0


def _offered(catalog: Catalog, name: str, full: str, version: str, came: Provenance) -> Entry:
    offered = catalog.lookup(full, version)
    if isinstance(offered, Entry):
        theirs = offered.provenance or Provenance()
        here = Provenance(
            catalog=catalog.location,
            name=full,
            version=theirs.version,
            package=theirs.package,
            installed_at=now(),
        )
        return structs.replace(offered, name=name, provenance=here)
    return make_entry(planned(offered, came.package.partition(":")[0]), name, {}, catalog.location, now())


def _as_it_was(catalog: Catalog, name: str, came: Provenance) -> Entry | None:
    """The present version as the catalog has it; None where it is gone, or there are no versions."""
    try:
        return _offered(catalog, name, came.name, came.version, came) if came.version else None
    except RegistryError as error:
        if error.retryable:
            raise
        return None

"""`perdure registry outdated`: which servers their catalogs have in a newer version, or no longer."""

from __future__ import annotations

import argparse
import os

import msgspec

from perdure.cli.registry.shared import add_catalog, backend_of, noticed, printed, table
from perdure.registry.catalog import semver
from perdure.registry.catalog.catalogs import Catalog, open_catalog
from perdure.registry.catalog.update import is_newer
from perdure.registry.entry import Entry, Provenance
from perdure.registry.errors import AuthRequired, NotInCatalog, RegistryError, RegistryUnavailable


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    current: str
    latest: str
    status: str  # outdated, deprecated, gone, unknown
    catalog: str
    message: str = ""


def add(parser: argparse.ArgumentParser) -> None:
    add_catalog(parser)


def run(options: argparse.Namespace) -> int:
    """Exit 4 where a catalog could not be asked: then nobody knows whether that is all."""
    opened: dict[str, Catalog] = {}
    found: list[Finding] = []
    checked = 0
    try:
        for entry in backend_of(options).load_all():
            if entry.provenance is not None and entry.provenance.name:
                checked += 1
                found += _finding(
                    entry, entry.provenance, options.catalog or entry.provenance.catalog, opened
                )
    finally:
        for catalog in opened.values():
            catalog.close()
    rows = [
        ["NAME", "CURRENT", "LATEST", "STATUS"],
        *([one.name, one.current, one.latest, one.status] for one in found),
    ]
    usual = (
        f"{checked} servers from catalogs, all in their newest version."
        if checked
        else "No server came from a catalog."
    )
    printed(
        options, {"outdated": msgspec.to_builtins(found), "checked": checked}, table(rows) if found else usual
    )
    for catalog in opened.values():
        noticed(catalog.notice)
    for one in found:
        if one.status == "unknown":
            noticed(f"{one.name}: {one.message}")
    return 4 if any(one.status == "unknown" for one in found) else 0


def _finding(entry: Entry, came: Provenance, url: str, opened: dict[str, Catalog]) -> list[Finding]:
    try:
        if url not in opened:
            opened[url] = open_catalog(url, os.environ)
        offered = opened[url].lookup(came.name)
    except NotInCatalog:
        return [Finding(entry.name, came.version, "-", "gone", came.catalog)]
    except (RegistryUnavailable, AuthRequired) as error:
        return [Finding(entry.name, came.version, "-", "unknown", came.catalog, error.message)]
    except RegistryError as error:
        return [Finding(entry.name, came.version, "-", "gone", came.catalog, error.message)]
    if isinstance(offered, Entry):
        latest = (offered.provenance or Provenance()).version
        new = is_newer(entry, offered)
        return [Finding(entry.name, came.version, latest, "outdated", came.catalog)] if new else []
    status = offered.status if offered.status != "active" else "outdated"
    if not semver.is_newer(offered.version, came.version) and offered.status == "active":
        return []
    return [Finding(entry.name, came.version, offered.version, status, came.catalog, offered.status_message)]

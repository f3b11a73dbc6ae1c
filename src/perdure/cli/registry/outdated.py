"""`perdure registry outdated`: which servers their catalogs have in a newer version, or no longer."""

from __future__ import annotations

import argparse
import os

import msgspec

from perdure.cli.registry.shared import add_catalog, backend_of, print_result, table, warn
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
    """Exit 4 if a catalog could not be reached: then the list may be incomplete."""
    catalogs: dict[str, Catalog] = {}
    findings: list[Finding] = []
    checked = 0
    try:
        for entry in backend_of(options).load_all():
            if entry.provenance is not None and entry.provenance.name:
                checked += 1
                findings += _finding(
                    entry, entry.provenance, options.catalog or entry.provenance.catalog, catalogs
                )
    finally:
        for catalog in catalogs.values():
            catalog.close()
    rows = [
        ["NAME", "CURRENT", "LATEST", "STATUS"],
        *([finding.name, finding.current, finding.latest, finding.status] for finding in findings),
    ]
    summary = (
        f"{checked} servers from catalogs, all in their newest version."
        if checked
        else "No server came from a catalog."
    )
    print_result(
        options,
        {"outdated": msgspec.to_builtins(findings), "checked": checked},
        table(rows) if findings else summary,
    )
    for catalog in catalogs.values():
        warn(catalog.notice)
    for finding in findings:
        if finding.status == "unknown":
            warn(f"{finding.name}: {finding.message}")
    return 4 if any(finding.status == "unknown" for finding in findings) else 0


def _finding(entry: Entry, provenance: Provenance, url: str, catalogs: dict[str, Catalog]) -> list[Finding]:
    try:
        if url not in catalogs:
            catalogs[url] = open_catalog(url, os.environ)
        offered = catalogs[url].lookup(provenance.name)
    except NotInCatalog:
        return [Finding(entry.name, provenance.version, "-", "gone", provenance.catalog)]
    except (RegistryUnavailable, AuthRequired) as error:
        return [Finding(entry.name, provenance.version, "-", "unknown", provenance.catalog, error.message)]
    except RegistryError as error:
        return [Finding(entry.name, provenance.version, "-", "gone", provenance.catalog, error.message)]
    if isinstance(offered, Entry):
        latest = (offered.provenance or Provenance()).version
        has_update = is_newer(entry, offered)
        return (
            [Finding(entry.name, provenance.version, latest, "outdated", provenance.catalog)]
            if has_update
            else []
        )
    status = offered.status if offered.status != "active" else "outdated"
    if not semver.is_newer(offered.version, provenance.version) and offered.status == "active":
        return []
    return [
        Finding(
            entry.name,
            provenance.version,
            offered.version,
            status,
            provenance.catalog,
            offered.status_message,
        )
    ]

"""`perdure registry search`: servers that exist, in a catalog; nothing is installed."""

from __future__ import annotations

import argparse
import os
import shutil

from perdure.cli.output import Progress
from perdure.cli.registry.shared import add_catalog, print_result, table, warn
from perdure.registry.catalog.catalogs import Listing, open_catalog

DEFAULT = 20
MOST = 1000


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", help="words of the name or the description")
    add_catalog(parser)
    parser.add_argument(
        "--limit", type=_limit, default=DEFAULT, metavar="N", help=f"how many to show (default: {DEFAULT})"
    )


def run(options: argparse.Namespace) -> int:
    catalog = open_catalog(options.catalog or "", os.environ)
    try:
        with Progress() as progress:
            progress.stage(f"searching {catalog.location} …")
            results = catalog.search(" ".join(options.words), options.limit)
    finally:
        catalog.close()
    rows = [["NAME", "VERSION", "RUNS AS", "DESCRIPTION"], *(_row(listing) for listing in results.servers)]
    value = {
        "servers": [_to_json(listing) for listing in results.servers],
        "catalog": catalog.location,
        "age_s": round(results.age_s, 1),
        "stale": results.is_stale,
        **({"notice": results.notice} if results.notice else {}),
    }
    nothing = f"No server in {catalog.location} matches: {' '.join(options.words)}"
    print_result(options, value, _narrow(table(rows)) if results.servers else nothing)
    warn(results.notice)
    return 0


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"a number from 1 to {MOST}")
    return int(text)


def _to_json(listing: Listing) -> dict[str, object]:
    return {
        "name": listing.name,
        "version": listing.version,
        "title": listing.title or None,
        "description": listing.description,
        "status": listing.status,
        "kinds": listing.kinds,
        "repository": listing.repository or None,
        "website": listing.website or None,
    }


def _row(listing: Listing) -> list[str]:
    mark = "" if listing.status == "active" else f"({listing.status}) "
    return [listing.name, listing.version or "-", ",".join(listing.kinds) or "-", mark + listing.description]


def _narrow(text: str) -> str:
    """Lines are cut to the width of a terminal; a pipe gets everything."""
    import sys

    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in text.splitlines())

"""`perdure registry search`: servers that exist, in a catalog; nothing is installed."""

from __future__ import annotations

import argparse
import os
import shutil

from perdure.cli.progress import Progress
from perdure.cli.registry.shared import add_catalog, noticed, printed, table
from perdure.registry.catalog.catalogs import Listing, open_catalog

USUAL = 20
MOST = 1000


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", help="words of the name or the description")
    add_catalog(parser)
    parser.add_argument(
        "--limit", type=_limit, default=USUAL, metavar="N", help=f"how many to show (default: {USUAL})"
    )


def run(options: argparse.Namespace) -> int:
    catalog = open_catalog(options.catalog or "", os.environ)
    try:
        with Progress() as progress:
            progress.stage(f"searching {catalog.location} …")
            found = catalog.search(" ".join(options.words), options.limit)
    finally:
        catalog.close()
    rows = [["NAME", "VERSION", "RUNS AS", "DESCRIPTION"], *(_row(one) for one in found.servers)]
    value = {
        "servers": [_shown(one) for one in found.servers],
        "catalog": catalog.location,
        "age_s": round(found.age_s, 1),
        "stale": found.is_stale,
        **({"notice": found.notice} if found.notice else {}),
    }
    nothing = f"No server in {catalog.location} matches: {' '.join(options.words)}"
    printed(options, value, _narrow(table(rows)) if found.servers else nothing)
    noticed(found.notice)
    return 0


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"a number from 1 to {MOST}")
    return int(text)


def _shown(one: Listing) -> dict[str, object]:
    return {
        "name": one.name,
        "version": one.version,
        "title": one.title or None,
        "description": one.description,
        "status": one.status,
        "kinds": one.kinds,
        "repository": one.repository or None,
        "website": one.website or None,
    }


def _row(one: Listing) -> list[str]:
    mark = "" if one.status == "active" else f"({one.status}) "
    return [one.name, one.version or "-", ",".join(one.kinds) or "-", mark + one.description]


def _narrow(text: str) -> str:
    """A terminal's lines are not broken; into a pipe everything goes."""
    import sys

    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in text.splitlines())

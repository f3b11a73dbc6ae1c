"""`perdure gc`: removes what the settings no longer keep. What can still be undone stays."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from typing import Any

from perdure.cli.disk_usage import StoreUsage, is_gone_for_good, store_usages
from perdure.cli.locations import store_place
from perdure.cli.options import add_locations, settle
from perdure.cli.output import Progress, Screen, clean, count, home, print_json, size
from perdure.cli.parser import new_parser
from perdure.cli.worker_settings import write_settings
from perdure.host.settings import Settings
from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError
from perdure.storage.sqlite import read_only
from perdure.storage.workspace_store import JOURNAL, anchor_path

DAY_US = 86_400 * 1_000_000


def parser() -> argparse.ArgumentParser:
    made = new_parser(
        "gc",
        "Remove contents, answers and drafts that `[keep]` in perdure.toml no longer keeps, in the stores of all "
        "workspaces. A running host does the same every hour. What can be undone stays: the newest thousand changes, "
        "and the last one of every file.",
    )
    add_locations(made)
    made.add_argument(
        "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
    )
    made.add_argument(
        "--orphans",
        action="store_true",
        help="also remove the stores of workspaces whose folder is gone and whose last change is older than `keep.days`",
    )
    made.add_argument("--json", action="store_true", help="print the whole result as JSON")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    settings = settle(options, "gc")
    usages = store_usages(store_place(settings))
    with Progress() as progress:
        results = []
        for number, usage in enumerate(usages, 1):
            progress.stage(
                f"store {number} of {len(usages)}: {home(clean(usage.workspace or usage.store))} …"
            )
            results.append(_collect(usage, settings, options))
    is_well = all("error" not in one for one in results)
    if options.json:
        print_json(
            {"ok": is_well, "dry_run": options.dry_run, "bytes": _total(results), "workspaces": results}
        )
    else:
        _print(results, options, Screen())
    return 0 if is_well else 1


def _collect(usage: StoreUsage, settings: Settings, options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"workspace": usage.workspace, "store": usage.store, "rows": 0, "bytes": 0}
    if usage.is_orphan:
        is_old = (usage.newest or 0) < time.time() * 1_000_000 - settings.keep.days * DAY_US
        may_go = is_old and is_gone_for_good(usage)
        result |= {"orphan": True, "removable": may_go}
        if may_go and options.orphans:
            result |= {"bytes": usage.bytes, "removed": not options.dry_run}
            if not options.dry_run:
                _remove_store(usage)
        return result
    if not os.path.isdir(usage.workspace):
        return result
    try:
        return result | _retire(usage, options)
    except OSError as error:
        return result | {"error": error.strerror or type(error).__name__}
    except (ToolError, StorageError) as error:
        return result | {"error": str(tool_error(error).envelope.context["message"])}


def _retire(usage: StoreUsage, options: argparse.Namespace) -> dict[str, Any]:
    """By the worker's own retention, with the settings of that workspace."""
    from perdure.worker.compose import open_write

    known = settle(argparse.Namespace(workspace=[usage.workspace]), "gc")
    service = open_write(write_settings(known))
    try:
        if options.dry_run:
            rows, freed = service.retention.preview()
            return {"rows": rows, "bytes": freed}
        before = _kept_bytes(usage)
        rows = service.retention.once()
        return {"rows": rows, "bytes": before - _kept_bytes(usage)}
    finally:
        service.close()


def _kept_bytes(usage: StoreUsage) -> int:
    return int(read_only.journal_usage(os.path.join(usage.store, JOURNAL)).get("contents_bytes", 0))


def _remove_store(usage: StoreUsage) -> None:
    shutil.rmtree(usage.store)
    try:
        os.unlink(anchor_path(os.path.basename(usage.store)))
    except FileNotFoundError:
        pass


def _total(results: list[dict[str, Any]]) -> int:
    return sum(one["bytes"] for one in results)


def _print(results: list[dict[str, Any]], options: argparse.Namespace, screen: Screen) -> None:
    if not results:
        screen.line("Nothing to remove: Perdure keeps no store on this machine.")
        return
    verb = "would free" if options.dry_run else "freed"
    for one in results:
        place = home(clean(one["workspace"] or one["store"]))
        if "error" in one:
            screen.line(f"{place}: {clean(one['error'])}", "yellow")
        elif one["bytes"]:
            screen.line(f"{verb} {size(one['bytes'])} in {place}")
    if total := _total(results):
        screen.line(f"{verb} {size(total)} in {count(len(results), 'store')}")
    else:
        screen.line(
            f"Nothing to remove in {count(len(results), 'store')}: the settings keep everything there is."
        )
    waiting = [one for one in results if one.get("removable") and not options.orphans]
    if waiting:
        screen.line(
            f"{count(len(waiting), 'store is', 'stores are')} of folders that are gone: perdure gc --orphans removes them"
        )

"""`perdure du`: how much room Perdure takes on this machine, and for what."""

from __future__ import annotations

import argparse

from perdure.cli.disk_usage import StoreUsage, fields, others, store_usages
from perdure.cli.locations import store_place
from perdure.cli.options import add_locations, settle
from perdure.cli.output import Screen, clean, column, count, home, print_json, print_table, size
from perdure.cli.parser import new_parser


def parser() -> argparse.ArgumentParser:
    made = new_parser(
        "du",
        "How much room Perdure takes: the store of each workspace (journal, contents, drafts, scratch, time machine), "
        "shared state, logs, caches. `perdure gc` removes what the settings no longer keep.",
    )
    add_locations(made)
    made.add_argument("--json", action="store_true", help="print everything as JSON")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    usages = store_usages(store_place(settle(options, "du")))
    rest = others()
    total = sum(usage.bytes for usage in usages) + sum(rest.values())
    if options.json:
        print_json({"ok": True, "bytes": total, "workspaces": [fields(one) for one in usages], **rest})
        return 0
    screen = Screen()
    if not total:
        screen.line("Perdure keeps nothing on this machine yet. The first write through it makes a store.")
        return 0
    rows = [(size(one.bytes), _name(one), _detail(one)) for one in usages]
    rows += [(size(number), name, "") for name, number in rest.items() if number]
    rows.append((size(total), "in all", ""))
    columns = [
        column("size", (row[0] for row in rows), right=True),
        column("what", (row[1] for row in rows)),
        column("", (row[2] for row in rows)),
    ]
    print_table(columns, screen)
    return 0


def _name(usage: StoreUsage) -> str:
    if not usage.workspace:
        return f"{home(clean(usage.store))} (of an unknown workspace)"
    return home(clean(usage.workspace)) + (" (the folder is gone)" if usage.is_orphan else "")


def _detail(usage: StoreUsage) -> str:
    parts = [f"journal {size(usage.journal_bytes)}"]
    parts += [f"contents {size(usage.contents_bytes)}"] if usage.contents_bytes else []
    parts += [f"{count(usage.drafts, 'draft')} {size(usage.draft_bytes)}"] if usage.drafts else []
    parts += [f"scratch {size(usage.scratch_bytes)}"] if usage.scratch else []
    if usage.tracked:
        parts.append(f"time machine {count(usage.tracked, 'file')} {size(usage.tracked_bytes)}")
    parts += [f"{size(usage.free_bytes)} free for the next writes"] if usage.free_bytes else []
    return ", ".join(parts)

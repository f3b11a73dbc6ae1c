"""`perdure status`: hosts, journal, shared state and registry on one screen."""

from __future__ import annotations

import argparse
import os
from json import dumps
from typing import Any

import msgspec

from perdure import __version__
from perdure.cli.changes.journal_table import show as show_rows
from perdure.cli.host_client import HostStatus, query_hosts
from perdure.cli.host_rows import HostRow, sessions_of
from perdure.cli.locations import registry_location, store_place
from perdure.cli.options import add_locations, settle
from perdure.cli.output import Screen, clean, count, duration, home, truncate, truncate_left
from perdure.cli.parser import new_parser
from perdure.cli.store_inspector import state_summary, today_us
from perdure.host import presence
from perdure.host.settings import Settings
from perdure.host.workspace_trust import untrusted_files
from perdure.protocol.pending_trust import command_for
from perdure.storage.sqlite import read_only

LABEL = 10
WAIT = "state_wait"
MOST_SESSIONS = 5


def parser() -> argparse.ArgumentParser:
    made = new_parser(
        "status",
        "Running hosts, the workspace's journal, the shared state and the registry, on one screen. "
        "Nothing is changed. Exit code 1 where a store is there and cannot be read.",
    )
    add_locations(made)
    made.add_argument("--json", action="store_true", help="print everything as JSON")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    settings = settle(options, "status")
    report = gather(settings)
    if options.json:
        print(dumps(report))
    else:
        show(report, settings, Screen())
    return 0 if report["ok"] else 1


def gather(settings: Settings) -> dict[str, Any]:
    """What `--json` prints."""
    hosts = query_hosts(presence.running())
    store = store_place(settings)
    report: dict[str, Any] = {
        "version": __version__,
        "workspace": settings.workspaces[0],
        "store": store.folder,
        "store_reason": store.reason or None,
        "hosts": [host.fields() for host in hosts],
        "journal": read_only.journal_summary(store.journal, today_us()),
        "state": {**state_summary(settings.state), "waiters": _count_waiters(hosts)},
        "registry": {"path": registry_location(settings)},
        "untrusted": [
            {**msgspec.to_builtins(file), "todo": command_for(file.path)}
            for file in untrusted_files(settings, os.environ)
        ],
    }
    is_readable = all("error" not in report[store] for store in ("journal", "state"))
    return {"ok": is_readable, **report}


def _count_waiters(hosts: list[HostStatus]) -> int:
    """Calls that wait for a change of state, in hosts that answered."""
    reports = [host.report for host in hosts if host.report is not None]
    return sum(1 for report in reports for call in report.get("calls", ()) if call["name"] == WAIT)


def show(report: dict[str, Any], settings: Settings, screen: Screen) -> None:
    screen.line(f"perdure {report['version']}  {home(clean(report['workspace']))}", "bold")
    _show_hosts(report["hosts"], settings, screen)
    _show_journal(report["journal"], screen)
    _show_store(report, screen)
    _show_state(report["state"], screen)
    place = report["registry"]["path"]
    _section(screen, "registry", home(clean(place)) if place else "none found")
    for file in report["untrusted"]:
        _show_untrusted(file, screen)


def _show_untrusted(file: dict[str, Any], screen: Screen) -> None:
    why = "changed since it was trusted" if file["changed"] else "is not trusted"
    _section(screen, "untrusted", f"{home(clean(file['path']))} {why}", "yellow")
    for start in file["starts"]:
        runs = start.get("command") or start.get("url", "")
        screen.line(f"  {clean(start['name'])} would run {truncate(clean(runs), screen.width - 30)}", "dim")
    if file["settings"]:
        screen.line(
            f"  {truncate(clean(', '.join(file['settings'])), screen.width - 20)} do not count", "dim"
        )
    screen.out.write(screen.styled(f"  {clean(file['todo'])}", "yellow") + "\n")  # to be copied: never cut


def _section(screen: Screen, name: str, text: str, style: str = "") -> None:
    screen.out.write(screen.styled(f"{name:<{LABEL}}", "bold"))
    screen.out.write(screen.styled(truncate(text, screen.width - LABEL), style) + "\n")


def _show_hosts(hosts: list[dict[str, Any]], settings: Settings, screen: Screen) -> None:
    if not hosts:
        _section(screen, "hosts", "none running")
        return
    _section(screen, "hosts", f"{len(hosts)} running")
    screen.line("  pid      client            up       calls/s  p50      p99      busy", "dim")
    for host in hosts:
        row = HostRow(host)
        screen.line(
            f"  {row.pid:<8} {truncate(row.client, 17):<17} {row.up:<8} {row.calls:<8} {row.p50:<8} "
            f"{row.p99:<8} {row.in_flight}"
        )
        if os.path.realpath(host["workspace"]) not in settings.workspaces:
            screen.line(f"           {truncate_left(home(row.workspace), screen.width - 11)}", "dim")
        if row.trouble:
            screen.line(f"           {row.trouble}", "yellow")
        _show_sessions(host, screen)


def _show_sessions(host: dict[str, Any], screen: Screen) -> None:
    """Of a serving process: where it is, and who used it last."""
    if "address" in host.get("report", {}):
        screen.line(f"           {clean(host['report']['address'])}", "dim")
    rows, more = sessions_of(host, MOST_SESSIONS)
    for row in rows:
        screen.line(
            f"    {row.name:<10} {truncate(row.client, 13):<13} {row.idle:<8} {row.calls:<8} {row.p50:<8} "
            f"{row.p99:<8} {row.in_flight:<4} {row.workspace}"
        )
    if more:
        screen.line(f"    and {more:,} more: `perdure top`, or the dashboard", "dim")


def _show_journal(journal: dict[str, Any], screen: Screen) -> None:
    if not journal["found"]:
        _section(screen, "journal", "none here: nothing was written in this workspace yet")
        return
    if "error" in journal:
        _section(screen, "journal", f"cannot be read: {journal['error']}; try `perdure doctor`", "red")
        return
    more = "+" if journal["undo_in_reach"] >= 1000 else ""
    parts = [
        count(journal["writes"], "write"),
        f"{journal['writes_today']:,} today",
        f"{journal['undo_in_reach']:,}{more} can be undone",
        count(journal["open_drafts"], "draft"),
    ]
    _section(screen, "journal", " · ".join(parts))
    if journal["last"]:
        show_rows(journal["last"][::-1], screen)


def _show_store(report: dict[str, Any], screen: Screen) -> None:
    if report["journal"]["found"]:
        screen.line(f"  {truncate_left(home(clean(report['store'])), screen.width - 2)}", "dim")
    if report["store_reason"]:
        screen.line(f"  {truncate(clean(report['store_reason']), screen.width - 2)}", "dim")


def _show_state(state: dict[str, Any], screen: Screen) -> None:
    place = home(clean(state["path"]))
    if not state["found"]:
        _section(screen, "state", f"no store yet at {place}" if place != "memory:" else "in memory only")
        return
    if "error" in state:
        _section(screen, "state", f"cannot be read: {state['error']}", "red")
        return
    parts = [count(state["keys"], "key")] if "keys" in state else [f"revision {state['revision']:,}"]
    parts += [
        count(state["namespaces"], "namespace"),
        count(len(state["leases"]), "lease") + " held",
        count(state["waiters"], "waiter"),
    ]
    _section(screen, "state", " · ".join(parts))
    screen.line(f"  {truncate_left(place, screen.width - 2)}", "dim")
    for lease in state["leases"]:
        left = lease["expires_in_s"]
        until = f"{duration(left)} left" if left is not None else "no end"
        screen.line(
            f"  lease {truncate(clean(lease['name']), 30)}  {truncate(clean(lease['owner']), 20)}  {until}",
            "dim",
        )

"""`perdure reload`: running hosts roll over to what is installed now."""

from __future__ import annotations

import argparse
import os
import sys
from json import dumps

from perdure.cli.locations import find_workspace
from perdure.cli.output import home
from perdure.cli.parser import new_parser
from perdure.host import presence
from perdure.platform import signals


def parser() -> argparse.ArgumentParser:
    found = new_parser(
        "reload",
        "Start every server anew beside the one that runs and switch over when it is ready. "
        "With --host the host itself is replaced in place; the client's session goes on.",
    )
    found.add_argument(
        "--workspace",
        metavar="DIR",
        help="hosts of this workspace (default: the one around the current folder)",
    )
    found.add_argument("--all", action="store_true", help="hosts of every workspace")
    found.add_argument("--pid", type=int, help="one host, by its process id")
    found.add_argument(
        "--host", action="store_true", help="replace the host too, keeping its process and session"
    )
    found.add_argument("--json", action="store_true", help="print the reloaded hosts as JSON")
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    hosts = presence.running()
    if options.pid is not None:
        hosts = [h for h in hosts if h.pid == options.pid]
    elif not options.all:
        named = options.workspace or os.environ.get("PERDURE_WORKSPACE")
        here = os.path.realpath(named) if named else find_workspace(".")
        hosts = [h for h in hosts if here in h.workspaces]
    told = []
    for host in hosts:
        try:
            if options.host and host.kind != "serve":
                signals.send(host.pid, signals.UPGRADE)
            signals.send(host.pid, signals.RELOAD)
        except OSError:
            continue
        told.append(host)
    if options.json:
        print(dumps({"ok": bool(told), "hosts": [host.fields() for host in told]}))
    elif told:
        for host in told:
            mounts = ", ".join(host.mounts) or "all"
            print(f"reload {host.pid}  {host.workspace}  mounts {mounts}")
            if options.host and host.kind == "serve":
                print(
                    "  it serves many sessions and is not replaced in place: start it anew, its sessions go on"
                )
    else:
        print(_none_told(options, presence.running()), file=sys.stderr)
    return 0 if told else 1


def _none_told(options: argparse.Namespace, running: list[presence.Presence]) -> str:
    if not running:
        return "perdure reload: no running host; a client starts one, and it then runs what is installed"
    others = ", ".join(f"{host.pid} ({home(host.workspace)})" for host in running)
    if options.pid is not None:
        return f"perdure reload: {options.pid} is no running host; there are {others}"
    return f"perdure reload: no running host in this workspace; --all or --pid reaches {others}"

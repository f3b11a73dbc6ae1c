"""`perdure registry approve`: accept the tools of a pinned server as they are now. For people: no tool does it."""

from __future__ import annotations

import argparse

from perdure.cli.registry.shared import backend_of, location_of, print_result
from perdure.kernel.state import KnownTools


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def run(options: argparse.Namespace) -> int:
    from perdure.host.registry_mounts import read_tools, write_tools

    backend_of(options).load(options.name)
    place = location_of(options)
    tools = read_tools(place, options.name)
    held = tools.held if tools is not None else {}
    if tools is not None and held:
        write_tools(place, options.name, KnownTools({**(tools.known or {}), **held}))
    names = sorted(held)
    text = f"approved {', '.join(names)}" if names else f"nothing of {options.name} is held back"
    print_result(options, {"name": options.name, "approved": names}, text)
    return 0

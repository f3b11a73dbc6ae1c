"""`perdure tools`: the tools that a model sees, by group, and which of them a profile lists."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any

import msgspec

from perdure.cli.parser import Parser
from perdure.protocol.tool_groups import GROUP_OF, GROUPS, PROFILES, enabled_groups


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="perdure tools",
        description="The built-in tools by group. A profile lists some groups; an agent can enable the others.",
    )
    found.add_argument(
        "--profile",
        choices=PROFILES,
        help="the profile to show (default: the one in the settings, else full)",
    )
    found.add_argument("--json", action="store_true", help="print the list as JSON")
    return found


def main(argv: list[str]) -> int:
    from perdure.cli.options import settle

    options = parser().parse_args(argv)
    profile = options.profile or settle(options, "tools").profile
    report = describe(profile)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    else:
        print("\n".join(_lines(report)))
    return 0


def describe(profile: str) -> dict[str, Any]:
    """Groups as the tool `tools` names them, each tool of them, and the size of the list that a client loads."""
    enabled = enabled_groups(profile, {})
    definitions = {one["name"]: one for one in _definitions()}
    listed = {"tools": [one for name, one in definitions.items() if GROUP_OF[name] in enabled]}
    return {
        "profile": profile,
        "listed": len(listed["tools"]),
        "bytes": len(msgspec.json.encode(listed)),
        "groups": [
            {
                "name": group.name,
                "enabled": group.name in enabled,
                "tools": list(group.tools),
                "about": group.about,
            }
            for group in GROUPS
        ],
        "tools": [
            {
                "name": name,
                "group": group.name,
                "title": definitions[name]["title"],
                "description": definitions[name]["description"],
            }
            for group in GROUPS
            for name in group.tools
        ],
    }


def _definitions() -> list[dict[str, Any]]:
    from perdure.protocol.tools import public_definition
    from perdure.surfaces.ops import host_tools
    from perdure.worker.compose import Settings, surfaces

    found: list[dict[str, Any]] = [msgspec.json.decode(entry.definition) for entry in host_tools.entries()]
    served = surfaces(Settings(workspaces=(os.getcwd(),)))
    return found + [public_definition(tool.spec) for surface in served for tool in surface.tools()]


def _lines(report: dict[str, Any]) -> list[str]:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    longest = max(len(tool["name"]) for tool in report["tools"])
    lines = [
        f"Profile {report['profile']} lists {report['listed']} tools, {report['bytes']:,} bytes "
        f"(about {report['bytes'] / 4:,.0f} tokens). Other profiles: --profile core, standard, full."
    ]
    for group in report["groups"]:
        state = "listed" if group["enabled"] else "not listed"
        lines += ["", f"{group['name']} ({state}): {group['about']}"]
        for tool in report["tools"]:
            if tool["group"] == group["name"]:
                line = f"  {tool['name']:<{longest}}  {tool['description']}"
                lines.append(line if len(line) <= width else line[: width - 1] + "…")
    return lines

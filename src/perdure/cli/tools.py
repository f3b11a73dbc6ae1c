"""`perdure tools`: the tools that a model sees, built in and of mounted servers, and the arguments of one of them."""

from __future__ import annotations

import argparse
import os
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.cli.options import add_locations, settle
from perdure.cli.output import Screen, clean, count, print_json
from perdure.cli.parser import new_parser
from perdure.protocol.mount_names import SEPARATOR
from perdure.protocol.tool_groups import GROUP_OF, GROUPS, PROFILES, enabled_groups

if TYPE_CHECKING:
    from perdure.host.settings import Settings

MORE_S: Final = 5.0
UNAVAILABLE: Final = 4
USAGE: Final = 2
# How a result is rendered; perdure call has --json for it.
PRESENTATION: Final = ("render", "detail")


def parser() -> argparse.ArgumentParser:
    made = new_parser(
        "tools",
        "The built-in tools by group, and those of the servers that are mounted here, which are started for it. A profile "
        "lists some groups; an agent can enable the others. With TOOL: its description and arguments, for perdure call.",
    )
    made.add_argument("tool", nargs="?", metavar="TOOL", help="show only this tool, with its arguments")
    made.add_argument(
        "--profile",
        choices=PROFILES,
        help="the profile to show (default: the one in the settings, else full)",
    )
    made.add_argument("--json", action="store_true", help="print the list as JSON")
    add_locations(made)
    return made


def main(argv: list[str]) -> int:
    from perdure.cli.host_session import SessionFailed

    options = parser().parse_args(argv)
    settings = settle(options, "tools")
    screen = Screen()
    try:
        if options.tool is not None:
            return _show_one(options, settings, screen)
        report = describe(options.profile or settings.profile)
        report["mounts"] = _mounted(options, settings)
    except SessionFailed as error:
        parser().exit(UNAVAILABLE, f"perdure tools: the mounted servers could not be asked: {error}\n")
    if options.json:
        print_json(report)
    else:
        _print(report, screen)
    return 0


# --- built in -------------------------------------------------------------------------------------------------


def describe(profile: str) -> dict[str, Any]:
    """Groups as the tool `tools` names them, each tool of them, and the size of the list that a client loads."""
    enabled = enabled_groups(profile, {})
    definitions = {tool["name"]: tool for tool in _definitions()}
    listed = {"tools": [tool for name, tool in definitions.items() if GROUP_OF[name] in enabled]}
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

    of_host: list[dict[str, Any]] = [msgspec.json.decode(entry.definition) for entry in host_tools.entries()]
    of_worker = surfaces(Settings(workspaces=(os.getcwd(),)))
    return of_host + [public_definition(tool.spec) for surface in of_worker for tool in surface.tools()]


# --- mounted --------------------------------------------------------------------------------------------------


def _mounted(options: argparse.Namespace, settings: Settings) -> list[dict[str, Any]]:
    """Each mounted server with its tools, or with what keeps it from having any. Starts them."""
    from perdure.cli.call import CLIENT, host_options
    from perdure.cli.host_session import open_session
    from perdure.cli.locations import registry_location
    from perdure.host.launch import BUILTIN

    if not (settings.mounts or registry_location(settings)):
        return []
    with open_session(CLIENT, host_options(options, settings), state=options.state) as session:
        limit = settings.timeouts.startup + MORE_S
        rows = [row for row in session.mounts(limit, await_retries=False) if row["name"] != BUILTIN]
        definitions = session.tools(limit)
    return [
        {
            "name": row["name"],
            "state": row["state"],
            "problem": _problem(row),
            "tools": [tool for tool in definitions if tool["name"].startswith(row["name"] + SEPARATOR)],
        }
        for row in rows
    ]


def _problem(row: dict[str, Any]) -> str:
    """Why a server has no tools; empty where it runs."""
    if row["state"] == "ready":
        return ""
    if row["state"] == "untrusted":
        return str(row["untrusted"])
    if row["state"] == "disabled":
        return f"disabled; perdure registry enable {row['name']}"
    return f"does not start: {(row.get('last_fault') or {}).get('detail') or row['state']}"


# --- printing -------------------------------------------------------------------------------------------------


def _print(report: dict[str, Any], screen: Screen) -> None:
    names = [tool["name"] for tool in report["tools"]]
    names += [tool["name"] for mount in report["mounts"] for tool in mount["tools"]]
    width = max(map(len, names))
    screen.line(
        f"Profile {report['profile']} lists {count(report['listed'], 'tool')}, {report['bytes']:,} bytes "
        f"(about {report['bytes'] / 4:,.0f} tokens)."
    )
    screen.line(
        f"--profile {', '.join(PROFILES)} shows another one; perdure tools TOOL the arguments of a tool.",
        "dim",
    )
    for group in report["groups"]:
        state = "listed" if group["enabled"] else "not listed"
        screen.line()
        screen.line(f"{group['name']} ({state}): {group['about']}", "bold")
        for tool in report["tools"]:
            if tool["group"] == group["name"]:
                screen.line(f"  {tool['name']:<{width}}  {tool['description']}")
    for mount in report["mounts"]:
        screen.line()
        screen.line(f"{clean(mount['name'])} (mounted): {count(len(mount['tools']), 'tool')}", "bold")
        if mount["problem"]:
            screen.line(f"  {clean(mount['problem'])}", "yellow")
        for tool in mount["tools"]:
            screen.line(f"  {clean(tool['name']):<{width}}  {clean(tool.get('description') or '')}")


def _show_one(options: argparse.Namespace, settings: Settings, screen: Screen) -> int:
    from difflib import get_close_matches

    definitions = {tool["name"]: tool for tool in _definitions()}
    if options.tool not in definitions:
        for mount in _mounted(options, settings):
            definitions |= {tool["name"]: tool for tool in mount["tools"]}
    if (tool := definitions.get(options.tool)) is None:
        near = get_close_matches(options.tool, definitions, 1)
        hint = f"did you mean {near[0]}?" if near else "`perdure tools` lists them"
        parser().exit(USAGE, f"perdure tools: no tool {clean(options.tool)}; {hint}\n")
    if options.json:
        print_json(tool)
        return 0
    schema = tool.get("inputSchema") or {}
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    screen.line(clean(tool["name"]), "bold")
    for line in wrap(clean(tool.get("description") or ""), min(screen.width, 120) - 2):
        screen.line(f"  {line}")
    rows = [
        (clean(name) + ("*" if name in required else ""), _type(argument), _about(argument))
        for name, argument in properties.items()
        if name not in PRESENTATION
    ]
    widths = [max((len(row[number]) for row in rows), default=0) for number in (0, 1)]
    for name, kind, about in rows:
        screen.line(f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  {about}".rstrip())
    example = " ".join(f"{name}{_assignment(properties.get(name))}…" for name in required)
    screen.line(f"perdure call {clean(tool['name'])} {clean(example)}".rstrip(), "dim")
    return 0


def _assignment(argument: Any) -> str:
    """`=` for a text, `:=` for JSON."""
    return "=" if _type(argument) in ("string", "any") or "enum" in argument else ":="


def _type(argument: Any) -> str:
    """`integer`, `create|overwrite`, `string|null`: what an argument takes, from its JSON Schema."""
    if not isinstance(argument, dict):
        return "any"
    if "enum" in argument:
        return "|".join(clean(value) for value in argument["enum"])
    kinds = argument.get("type") or [_type(part) for part in argument.get("anyOf", ())]
    return "|".join(map(clean, kinds)) if isinstance(kinds, list) else clean(kinds)


def _about(argument: Any) -> str:
    if not isinstance(argument, dict):
        return ""
    default = f"(default: {clean(argument['default'])})" if argument.get("default") not in (None, "") else ""
    return f"{clean(argument.get('description') or '')} {default}".strip()

"""Writes the generated parts of the documentation: `python docs/generate.py`. A test compares them."""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import itertools
import os
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import msgspec

from perdure.protocol.envelope import ErrorKind

ROOT = Path(__file__).resolve().parent.parent
# The unit of a limit, by the end of its name.
UNITS = {"_bytes": "bytes", "_s": "seconds", "_days": "days", "_rate": "per second", "_per_minute": "per minute"}


def pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def commands() -> str:
    """Every command's own help, as it prints it."""
    with patch.dict(os.environ, COLUMNS="100"):
        return _commands()


def _commands() -> str:
    from importlib import import_module

    from perdure.cli.main import COMMANDS, usage

    parts = ["# Commands", "", "Generated from the commands' own `--help`.", "", "```", usage(), "```"]
    for name, (module, _) in COMMANDS.items():
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            import_module(module).main(["--help"])
        parts += ["", f"## perdure {name}", "", "```", out.getvalue().rstrip(), "```"]
        parts += registry_commands() if name == "registry" else own_commands(import_module(module).parser())
    return "\n".join(parts) + "\n"


def own_commands(parser: argparse.ArgumentParser) -> list[str]:
    """The help of commands within a command."""
    parts = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                parts += ["", f"### {one.prog}", "", "```", one.format_help().rstrip(), "```"]
    return parts


def registry_commands() -> list[str]:
    from perdure.cli import registry

    parts = []
    for name in registry.COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            registry.main([name, "--help"])
        parts += ["", f"### perdure registry {name}", "", "```", out.getvalue().rstrip(), "```"]
    return parts


def host_tools() -> list[dict[str, Any]]:
    from perdure.surfaces.ops.host_tools import entries

    return [msgspec.json.decode(entry.definition) for entry in entries()]


def worker_tools() -> list[dict[str, Any]]:
    """What the built-in worker lists, without what it says to the host alone."""
    from perdure.protocol.tools import public_definition
    from perdure.worker.compose import Settings, surfaces

    served = surfaces(Settings(workspaces=("/",)))
    return [public_definition(tool.spec) for surface in served for tool in surface.tools()]


def _variants(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]


def _kind(schema: dict[str, Any]) -> str:
    kinds = [", ".join(map(str, one.get("enum", []))) or one.get("type", "") for one in _variants(schema)]
    return " or ".join(kinds)


def _default(name: str, schema: dict[str, Any], tool: dict[str, Any]) -> str:
    if name in tool["inputSchema"].get("required", []):
        return "required"
    return "" if schema.get("default") is None else f"`{msgspec.json.encode(schema['default']).decode()}`"


def _meaning(schema: dict[str, Any]) -> str:
    return str(
        schema.get("description")
        or next((v["description"] for v in _variants(schema) if "description" in v), "")
    )


def tools() -> str:
    from perdure.protocol.instructions import instructions
    from perdure.protocol.tool_groups import GROUP_OF, GROUPS, PROFILES, enabled_groups

    listed = [*host_tools(), *worker_tools()]
    parts = [
        "# Tools",
        "",
        "Generated from the tools' declarations. Every tool also takes `render` and `detail`. What the server tells",
        "a model when a session with all tools opens:",
        "",
        *(f"> {line}" if line else ">" for line in instructions(GROUP_OF).replace("\n", "\n\n").split("\n")),
        "",
        "## Groups and profiles",
        "",
        "A profile says which groups a session lists when it opens (`--profile`, `profile` in `perdure.toml`). The tool",
        "`tools` enables and disables groups for its session. A tool that is not listed can be called by its name.",
        "",
        "| group | tools | " + " | ".join(f"`{profile}`" for profile in PROFILES) + " |",
        "|---|---|" + "---|" * len(PROFILES),
        *(
            f"| `{group.name}`: {group.about} | {', '.join(f'`{name}`' for name in group.tools)} | "
            + " | ".join("yes" if group.name in enabled_groups(profile, {}) else "" for profile in PROFILES)
            + " |"
            for group in GROUPS
        ),
        f"| size of `tools/list` in bytes | | {' | '.join(_sizes(listed))} |",
    ]
    for tool in listed:
        parts += ["", f"## {tool['name']}", "", f"{tool['title']}. {tool['description']}", ""]
        rows = [
            f"| `{name}` | {_kind(schema)} | {_default(name, schema, tool)} | {_meaning(schema)} |"
            for name, schema in tool["inputSchema"]["properties"].items()
            if name not in ("render", "detail")
        ]
        parts += (
            ["| argument | type | default | |", "|---|---|---|---|", *rows] if rows else ["No arguments."]
        )
    return "\n".join(parts) + "\n"


def _sizes(listed: list[dict[str, Any]]) -> list[str]:
    from perdure.protocol.tool_groups import GROUP_OF, PROFILES, enabled_groups

    found = []
    for profile in PROFILES:
        groups = enabled_groups(profile, {})
        body = {"tools": [tool for tool in listed if GROUP_OF[tool["name"]] in groups]}
        found.append(f"{len(msgspec.json.encode(body)):,}")
    return found


def limits() -> str:
    from perdure.host.serve_options import ServeLimits
    from perdure.protocol.mounts import Limits

    def unit(name: str) -> str:
        return next((word for suffix, word in UNITS.items() if name.endswith(suffix)), "")

    def table(of: Any) -> list[str]:
        meanings = field_texts(of)
        rows = [
            f"| `{field.name}` | {field.default:,} {unit(field.name)} | {meanings[field.name]} |".replace("  |", " |")
            for field in msgspec.structs.fields(of)
        ]
        return ["", "| limit | default | meaning |", "|---|---|---|", *rows]

    head = [
        "# Limits",
        "",
        "Generated from the code. Every limit of the host can be set in `[limits]` of `perdure.toml`. A value without a",
        "unit is a count. A request over a limit is refused with an [error](errors.md); queued work is kept.",
    ]
    text = "Set these in `[serve.limits]`. The limits above apply to each session as well."
    more = ["", "## Of `perdure serve`", "", text]
    return "\n".join([*head, *table(Limits), *more, *table(ServeLimits)]) + "\n"


def field_texts(of: type) -> dict[str, str]:
    """The text below each field of a class."""
    (body,) = ast.parse(inspect.getsource(of)).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: cleandoc(text.value.value)
        for field, text in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _schema(of: Any) -> dict[str, Any]:
    """Descriptions come from docstrings, which keep their indentation in some versions of Python and not in others."""
    found: dict[str, Any] = _unindented(msgspec.json.schema(of))
    return found


def _unindented(node: Any) -> Any:
    if isinstance(node, list):
        return [_unindented(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: cleandoc(value) if key == "description" and isinstance(value, str) else _unindented(value)
        for key, value in node.items()
    }


def handoff_schema() -> str:
    from perdure.surfaces.write.handoff.document import Handoff

    return pretty({"$id": "perdure://schema/handoff", **_schema(Handoff)})


def settings_schema() -> str:
    from perdure.host.settings_file import FileSettings

    return pretty({"$id": "perdure://schema/settings", **_schema(FileSettings)})


def policy_schema() -> str:
    from perdure.workspace.policy import Policy

    return pretty({"$id": "perdure://schema/policy", **_schema(Policy)})


def error_schema() -> str:
    from perdure.protocol.envelope import schema_text

    return schema_text()


def reasons() -> str:
    """Every failure that the code can answer with, read from where it is raised."""
    from perdure.protocol import faults
    from perdure.surfaces.write.surface import UNDO_CONFLICTS

    refused = sorted(found_refusals())
    rows = [f"| `{reason}` | `{kind}` | {message} |" for reason, kind, message in refused]
    numbers = sorted(
        (value, name.lower().replace("_", " "))
        for name, value in vars(faults).items()
        if isinstance(value, int) and value < -31000
    )
    host = [f"| {number} | {name} |" for number, name in reversed(numbers)]
    known = sorted(found_faults())
    return "\n".join(
        [
            "# Reasons and faults",
            "",
            "Generated from the code. [Errors](errors.md) says what each kind means for the caller.",
            "",
            "## Reasons",
            "",
            "`context.reason` of a failed tool call; … stands for a value.",
            "",
            "| reason | error | message |",
            "|---|---|---|",
            *rows,
            "",
            "## Conflicts",
            "",
            "`reason` of each of the `conflicts` of `undo` and `rewind`; the reasons above can stand there, too.",
            "",
            "| reason | the file |",
            "|---|---|",
            *(f"| `{reason}` | {words} |" for reason, words in UNDO_CONFLICTS.items()),
            "",
            "## Host errors",
            "",
            "JSON-RPC errors of the host, with `data` as in [the laws](../explanation/laws.md).",
            "",
            "| code | |",
            "|---|---|",
            *host,
            "",
            "## Faults",
            "",
            "`class` and `code` of `data`, of `last_fault` in `health`, and in the event log.",
            "",
            "| class | code |",
            "|---|---|",
            *(f"| {kind} | `{code}` |" for kind, code in known),
            "",
        ]
    )


def _calls(name: str) -> Iterator[ast.Call]:
    for path in sorted((ROOT / "src" / "perdure").rglob("*.py")):
        text = path.read_text()
        if f"{name}(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield node


def found_refusals() -> set[tuple[str, str, str]]:
    """Each call of `refuse` whose reason stands there: reason, error, message."""
    found = set()
    for call in _calls("refuse"):
        if len(call.args) < 3 or (kind := _said(call.args[0])) not in get_args(ErrorKind):
            continue
        one = call.args[1]
        for reason in map(_said, [one.body, one.orelse] if isinstance(one, ast.IfExp) else [one]):
            if reason.replace("_", "").isalnum():
                found.add((reason, kind, _said(call.args[2])))
    return found


def found_faults() -> set[tuple[str, str]]:
    found = set()
    for call in _calls("Fault"):
        given = [_said(one) for one in call.args[:2]]
        if len(given) == 2 and "…" not in given[0] + given[1]:
            found.add((given[0], given[1]))
    return found


def _said(node: ast.expr) -> str:
    """A text as it stands there, with … for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("|", "\\|")
    if isinstance(node, ast.JoinedStr):
        return "".join(_said(part) for part in node.values)
    return "…"


def generated() -> dict[str, str]:
    """Every generated file and what must stand in it."""
    return {
        "docs/reference/commands.md": commands(),
        "docs/reference/tools.md": tools(),
        "docs/reference/limits.md": limits(),
        "docs/reference/reasons.md": reasons(),
        "spec/tools.json": pretty([*host_tools(), *worker_tools()]),
        "spec/settings.schema.json": settings_schema(),
        "spec/handoff.schema.json": handoff_schema(),
        "spec/policy.schema.json": policy_schema(),
        "spec/error.schema.json": error_schema(),
    }


if __name__ == "__main__":
    for name, text in generated().items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text)
    sys.exit(0)

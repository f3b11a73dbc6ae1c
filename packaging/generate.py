"""Writes the generated parts of the packages: `python packaging/generate.py`. A test compares them.

Hooks, commands and the launcher come from the same source as `perdure install` and the prompts of the server. The version
comes from `pyproject.toml`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from perdure.hooks.clients import client_module
from perdure.worker.prompts import PROMPTS

ROOT = Path(__file__).resolve().parent.parent
CLAUDE = "packaging/claude-plugin"
GEMINI = "packaging/gemini-extension"
VERSIONED = (
    f"{CLAUDE}/.claude-plugin/plugin.json",
    f"{GEMINI}/gemini-extension.json",
    "packaging/mcpb/manifest.json",
    "packaging/mcpb/pyproject.toml",
    "packaging/server.json",
)
_VERSION = re.compile(r'("version": "|^version = "|perdure==)[^"]*', re.M)


def version() -> str:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def pretty(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def hooks(client: str, folder: str) -> str:
    """`folder` is the client's variable for the folder of the package."""
    command = f'sh "{folder}/launch.sh" hook journal --client {client}'
    entries = client_module(client).entries(command)
    return pretty({"hooks": {event: [entry] for event, entry in entries.items()}})


def claude_command(name: str) -> str:
    prompt = PROMPTS[name]
    text = prompt.text.replace("{" + prompt.argument + "}", "$ARGUMENTS")
    hint = json.dumps(f"[{prompt.argument}]")
    default = f"\n\nWithout an argument: {prompt.default}." if "$ARGUMENTS" in text else ""
    return (
        f"---\ndescription: {json.dumps(prompt.description)}\nargument-hint: {hint}\n---\n\n{text}{default}\n"
    )


def gemini_command(name: str) -> str:
    prompt = PROMPTS[name]
    text = prompt.text.replace("{" + prompt.argument + "}", "{{args}}")
    prompt_text = f"{text}\nWithout an argument: {prompt.default}."
    return f'description = {json.dumps(prompt.description)}\nprompt = """\n{prompt_text}\n"""\n'


def body(path: str) -> str:
    """A Markdown file without its front matter."""
    return (ROOT / path).read_text().split("---\n", 2)[2].lstrip("\n")


def gemini_timeline() -> str:
    text = body(f"{CLAUDE}/commands/timeline.md").replace("$ARGUMENTS", "{{args}}")
    return f'description = "Show what agents changed in this project"\nprompt = """\n{text}"""\n'


def versioned(path: str) -> str:
    """The file with the version of this project."""
    return _VERSION.sub(rf"\g<1>{version()}", (ROOT / path).read_text())


def generated() -> dict[str, str]:
    """Every generated file and what must stand in it."""
    launcher = (ROOT / "packaging/launch.sh").read_text()
    return {
        f"{CLAUDE}/launch.sh": launcher,
        f"{CLAUDE}/hooks/hooks.json": hooks("claude-code", "${CLAUDE_PLUGIN_ROOT}"),
        f"{CLAUDE}/commands/undo.md": claude_command("undo"),
        f"{CLAUDE}/commands/handoff.md": claude_command("handoff"),
        f"{GEMINI}/launch.sh": launcher,
        f"{GEMINI}/hooks/hooks.json": hooks("gemini", "${extensionPath}"),
        f"{GEMINI}/commands/perdure/undo.toml": gemini_command("undo"),
        f"{GEMINI}/commands/perdure/handoff.toml": gemini_command("handoff"),
        f"{GEMINI}/commands/perdure/timeline.toml": gemini_timeline(),
        f"{GEMINI}/PERDURE.md": body(f"{CLAUDE}/skills/perdure/SKILL.md"),
        **{path: versioned(path) for path in VERSIONED},
    }


if __name__ == "__main__":
    for name, text in generated().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
    sys.exit(0)

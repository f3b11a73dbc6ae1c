"""The commands of the tutorial and of the PostgreSQL how-to, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import perdure, told

from testbed import Bed, Client

pytestmark = pytest.mark.thorough

DOCS = Path(__file__).resolve().parents[2] / "docs"


def commands_of(document: str, section: str) -> list[str]:
    """The lines of every code block in a section, without what explains them."""
    text = (DOCS / document).read_text()
    found = re.search(rf"^## {re.escape(section)}.*?\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    assert found is not None, f"{document} has no section {section}"
    blocks = re.findall(r"^```\n(.*?)^```", found[1], re.S | re.M)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert lines, f"section {section} has no command"
    return [re.split(r"\s{2,}#", line)[0].rstrip() for line in lines]


def run(bed: Bed, line: str, **environ: str) -> str:
    """One line in a shell in which `perdure` is this one."""
    folder = bed.root / "bin"
    folder.mkdir(exist_ok=True)
    script = folder / "perdure"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m perdure "$@"\n')
    script.chmod(0o755)
    env = {**bed.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(bed.root), **environ}
    done = subprocess.run(
        ["sh", "-c", line],
        env=env,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (line, done)
    return done.stdout


@pytest.fixture
def agent(bed: Bed) -> Client:
    """Whoever the tutorial asks to write something."""
    return bed.run()


def use_shell(bed: Bed, command: str) -> None:
    """As Claude Code does, with the hooks in its settings file."""
    hooks = json.loads((bed.root / ".claude" / "settings.json").read_text())["hooks"]
    for event in ("PreToolUse", "PostToolUse"):
        payload = {
            "session_id": "s1",
            "cwd": str(bed.workspace),
            "hook_event_name": event,
            "tool_name": "Bash",
            "tool_input": {"command": command},
            "tool_use_id": "toolu_1",
        }
        if event == "PostToolUse":
            subprocess.run(["sh", "-c", command], cwd=bed.workspace, check=True)
        subprocess.run(
            ["sh", "-c", hooks[event][0]["hooks"][0]["command"]],
            env={**bed.environ, "HOME": str(bed.root), "CLAUDE_PROJECT_DIR": str(bed.workspace)},
            cwd=bed.workspace,
            input=json.dumps(payload).encode(),
            check=True,
        )


def test_the_tutorial_can_be_followed_from_its_first_line_to_its_last(bed: Bed, agent: Client) -> None:
    tutorial = "tutorial/ten-minutes.md"
    assert commands_of(tutorial, "1. See it happen") == ["make demo"]
    story = run(bed, "perdure demo")  # what `make demo` runs when all is set up
    for part in (
        "kill -9",
        "It may or may not have taken effect",
        "ben's line is still there",
        "[REDACTED",
        "Every promise",
    ):
        assert part in story

    for line in commands_of(tutorial, "2. Add it to your client"):
        run(bed, line)
    assert "perdure" in json.loads((bed.root / ".cursor" / "mcp.json").read_text())["mcpServers"]

    agent.use("safe_write", {"path": "notes.md", "content": "one\ntwo\nthree\n"})
    journal, history, status = (run(bed, line) for line in commands_of(tutorial, "3. Let the agent write"))
    assert "notes.md" in journal
    assert "create" in history
    assert "1 running" in status

    look, kill = commands_of(tutorial, "4. Kill the worker")
    pid = re.search(r"^\s*perdure\s+ready .*pid (\d+)", run(bed, look), re.M)
    assert pid is not None
    run(bed, re.sub(r"\d{4}$", pid[1], kill))
    agent.use("edit", {"path": "notes.md", "edits": [{"old": "three", "new": "three\nfour"}]})
    assert "1 restart" in run(bed, look)

    preview, undo = commands_of(tutorial, "5. Undo")
    assert "would undo" in run(bed, preview)
    assert (bed.workspace / "notes.md").read_text().endswith("four\n")
    run(bed, undo)
    assert (bed.workspace / "notes.md").read_text() == "one\ntwo\nthree\n"

    install, timeline, undo, look = commands_of(tutorial, "6. Bring back what a command removed")
    run(bed, install)
    (bed.workspace / "src").mkdir()
    (bed.workspace / "src" / "app.py").write_text("print()\n")
    use_shell(bed, "rm -rf src")
    assert not (bed.workspace / "src").exists()
    assert "rm -rf src" in run(bed, timeline)
    run(bed, undo)
    assert run(bed, look) == "app.py\n"

    put, get = commands_of(tutorial, "7. Two agents, one state")
    run(bed, put)
    assert "step" in run(bed, get)
    stale = agent.use_data(
        "set_state", {"key": "plan", "value": "2", "expected_version": 9, "render": "json"}
    )
    assert stale["status"] == "conflict"


def test_the_postgresql_how_to_works_on_a_real_server(bed: Bed) -> None:
    postgres = pytest.importorskip("harness.state.postgres", reason="psycopg is not installed")
    page = "how-to/use-postgresql.md"
    with postgres.running_postgres() as server:
        url = server.new_database()
        # given state from before, on SQLite, where the page looks for it
        kept = bed.root / ".local" / "share" / "perdure" / "state.db"
        kept.parent.mkdir(parents=True)
        perdure(bed, "state", "set", "old", "1", "--state", str(kept))

        said = [run(bed, line, PERDURE_STATE=url) for line in commands_of(page, "3. Try it")]
        assert "step" in said[1]
        assert "step" in said[2]
        assert "postgresql://" in said[3]
        assert "the state store is at revision" in said[4]

        for line in commands_of(page, "4. Copy your existing state"):
            run(bed, line, PERDURE_STATE=url)
        assert told(bed, "state", "get", "old", PERDURE_STATE=url)["value"] == 1

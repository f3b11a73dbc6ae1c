"""Client applications themselves read what we write into their configuration, and we read what they write there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import node
import pytest
import scripted_model

from testbed import Bed

pytestmark = pytest.mark.node

LIST_S = 120


@dataclass(frozen=True)
class Application:
    """`adding` is how it adds a server of its own named `own`, which runs `echo hi`."""

    client: str
    package: str
    version: str
    program: str
    listing: tuple[str, ...]
    adding: tuple[str, ...]
    file: str


APPLICATIONS = (
    Application(
        "claude-code",
        "@anthropic-ai/claude-code",
        "2.1.197",
        "cli-wrapper.cjs",
        ("mcp", "list"),
        ("mcp", "add", "-s", "user", "own", "--", "echo", "hi"),
        ".claude.json",
    ),
    Application(
        "gemini",
        "@google/gemini-cli",
        "0.61.0",
        "bundle/gemini.js",
        ("mcp", "list"),
        ("mcp", "add", "-s", "user", "own", "echo", "hi"),
        ".gemini/settings.json",
    ),
)


@pytest.fixture(params=APPLICATIONS, ids=lambda one: one.client)
def application(request: pytest.FixtureRequest) -> Application:
    return installed(request.param)


def installed(one: Application) -> Application:
    try:
        node.installed(node.CACHE / f"client-{one.client}", {one.package: one.version})
    except (node.Unavailable, subprocess.TimeoutExpired) as error:
        pytest.skip(str(error))
    return one


def test_a_client_connects_to_what_we_installed_and_keeps_what_it_added(
    bed: Bed, application: Application
) -> None:
    # given a client that has never run here, and ours put into its configuration
    perdure(bed, "install", application.client, "--apply")
    # when it lists its servers, which starts each of them
    listed = said(bed, application, *application.listing)
    # then ours is connected
    assert re.search(r"perdure: .*\bConnected", listed), listed

    # given a server that the client itself adds to the same file
    said(bed, application, *application.adding)
    # when its configuration is imported, and ours taken out again
    perdure(bed, "registry", "import", application.client)
    perdure(bed, "uninstall", application.client, "--apply")
    # then its server is in our registry, and still in its file, and nothing of ours is
    assert "own" in perdure(bed, "registry", "list")
    left = (bed.root / application.file).read_text()
    assert '"own"' in left
    assert "perdure" not in left
    assert "own: echo hi" in said(bed, application, *application.listing)


def test_an_agent_in_a_real_client_loses_nothing_with_its_worker(bed: Bed) -> None:
    # given an agent that writes a file, looks who wrote it, and finds that process killed when it goes on
    ended: list[int] = []

    def after_the_kill(health: str) -> scripted_model.Use:
        mounts = json.loads(health)["mounts"]
        ended.append(next(mount["pid"] for mount in mounts if mount["name"] == "perdure"))
        os.kill(ended[0], signal.SIGKILL)
        change = {"old": "first", "new": "second"}
        return "mcp__perdure__edit", {"path": "plan.txt", "edits": [change]}

    native = str(bed.workspace / "native.txt")
    model = scripted_model.Model(
        ("mcp__perdure__safe_write", {"path": "plan.txt", "content": "the first plan\n"}),
        ("mcp__perdure__health", {"render": "json", "detail": "full"}),
        after_the_kill,
        ("Write", {"file_path": native, "content": "by the client's own tool\n"}),
        ("mcp__perdure__journal_tail", {}),
    )
    # when it runs in the client, whose own writes are to be journaled
    said_by_agent(bed, model, hook="journal")
    # then every call did what it should, and the journal knows of the client's own write as well
    assert [text for text, is_error in model.results if is_error] == []
    assert len(model.results) == 5
    assert ended
    assert (bed.workspace / "plan.txt").read_text() == "the second plan\n"
    assert [op for op in ("write", "edit", "native") if f"| {op} |" not in model.results[-1][0]] == []


def test_a_client_that_is_steered_uses_our_tools_instead_of_its_own(bed: Bed) -> None:
    # given a client whose own write tools are to be refused
    native = bed.workspace / "native.txt"
    model = scripted_model.Model(
        ("Write", {"file_path": str(native), "content": "by the client's own tool\n"})
    )
    # when its agent uses one
    said_by_agent(bed, model, hook="steer")
    # then nothing is written, and it is told what to use
    ((text, is_error),) = model.results
    assert is_error
    assert "safe_write" in text
    assert not native.exists()


def said_by_agent(bed: Bed, model: scripted_model.Model, *, hook: str) -> str:
    """One question to Claude Code, with Perdure among its servers and a hook for its own write tools."""
    application = installed(APPLICATIONS[0])
    perdure(bed, "install", application.client, "--apply")
    (bed.workspace / ".claude").mkdir()
    (bed.workspace / ".claude" / "settings.json").write_text(perdure(bed, "hook", "settings", hook))
    tools = (
        "mcp__perdure__safe_write,mcp__perdure__edit,mcp__perdure__health,mcp__perdure__journal_tail,Write"
    )
    with scripted_model.served(model) as address:
        bed.environ |= {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": "sk-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        return said(bed, application, "-p", "go on", "--allowedTools", tools)


def perdure(bed: Bed, *words: str) -> str:
    command = [sys.executable, "-P", "-m", "perdure", *words]
    done = subprocess.run(
        command, cwd=bed.workspace, env=bed.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def said(bed: Bed, application: Application, *words: str) -> str:
    """What the client prints. It is told that the folder may be trusted, and finds ours where `perdure` is."""
    folder: Path = node.CACHE / f"client-{application.client}" / "node_modules" / application.package
    env = {
        **bed.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    command = [shutil.which("node") or "node", str(folder / application.program), *words]
    done = subprocess.run(
        command,
        cwd=bed.workspace,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr

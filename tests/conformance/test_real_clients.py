"""Client applications themselves read what we write into their configuration, and we read what they write there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import node
import pytest

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
    one: Application = request.param
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
        command, cwd=bed.workspace, env=env, capture_output=True, text=True, timeout=LIST_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr

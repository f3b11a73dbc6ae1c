"""Claude Code, Codex and Gemini CLI themselves, with the hooks that `perdure install CLIENT --hooks` writes: what their
tools change is recorded with tool, call, turn and agent."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from time import sleep
from typing import Any, TypeVar

import node
import pytest
import scripted_model
from scripted_agents import GenerateContentModel, MessagesModel, ResponsesModel, Step, served

from perdure.storage.journal import Journal
from perdure.storage.timeline import ChangeFilter, ChangeSummary
from perdure.testing.http_client import ServeProcess
from perdure.worker.compose import Settings, open_write
from testbed import Bed

pytestmark = [pytest.mark.node, pytest.mark.thorough]

CLAUDE = ("claude-code", "@anthropic-ai/claude-code", "2.1.197", "cli-wrapper.cjs")
CODEX = ("codex", "@openai/codex", "0.169.0", "bin/codex.js")
GEMINI = ("gemini", "@google/gemini-cli", "0.61.0", "bundle/gemini.js")
TOOLS = "Bash,Write,Edit,Agent"
Found = TypeVar("Found")
PROMPT = "never-kept-words"


def program(client: tuple[str, str, str, str]) -> list[str]:
    name, package, version, script = client
    folder = node.CACHE / f"client-{name}"
    try:
        node.installed(folder, {package: version})
    except (node.Unavailable, subprocess.TimeoutExpired) as error:
        pytest.skip(str(error))
    return [shutil.which("node") or "node", str(folder / "node_modules" / package / script)]


def run(bed: Bed, command: Sequence[str], stdin: str = "") -> str:
    done = subprocess.run(
        command, cwd=bed.workspace, env=bed.environ, input=stdin, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def perdure(bed: Bed, *words: str) -> str:
    return run(bed, [sys.executable, "-P", "-m", "perdure", *words])


def read_journal(bed: Bed, look: Callable[[Journal], Found]) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "PERDURE_HOME"):
            patch.setenv(name, bed.environ[name])
        service = open_write(Settings(workspaces=(str(bed.workspace),)), is_read_only=True)
        try:
            return look(service.journal)
        finally:
            service.close()


def changes(bed: Bed) -> list[ChangeSummary]:
    """Oldest first."""
    return read_journal(bed, lambda journal: journal.changes(ChangeFilter(), 100)[::-1])


def calls(bed: Bed) -> list[tuple[Any, ...]]:
    return [
        (
            change.call.tool,
            change.call.call_id,
            change.call.turn,
            change.call.agent is not None,
            change.call.status,
        )
        for change in changes(bed)
        if change.call is not None
    ]


def ask_claude(bed: Bed, *prompts: str, tools: str = TOOLS) -> None:
    """Several prompts in one session. Each is sent when the answer to the one before is there."""
    words = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    process = subprocess.Popen(
        [*program(CLAUDE), *words, "--allowedTools", tools],
        cwd=bed.workspace,
        env=bed.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = Timer(120, process.kill)
    watchdog.start()
    with process:
        for prompt in prompts:
            message = {"role": "user", "content": f"{prompt} {PROMPT}"}
            process.stdin.write(json.dumps({"type": "user", "message": message}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if json.loads(line).get("type") == "result":
                    break
        process.stdin.close()
        process.stdout.read()
    watchdog.cancel()
    assert process.returncode == 0


def subagent(prompt: str) -> scripted_model.Use:
    about = {"description": "a subagent", "subagent_type": "general-purpose", "run_in_background": False}
    return "Agent", {**about, "prompt": prompt}


@pytest.fixture
def claude(bed: Bed) -> Bed:
    program(CLAUDE)
    bed.environ |= {
        "ANTHROPIC_API_KEY": "sk-none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "PATH": os.environ["PATH"],
    }
    perdure(bed, "install", "claude-code", "--hooks", "--apply")
    return bed


def test_what_claude_code_changes_has_its_call_its_turn_and_its_agent(claude: Bed) -> None:
    bed = claude
    written = str(bed.workspace / "w.txt")
    scripts: dict[str, list[scripted_model.Use]] = {
        "script-one": [
            ("Bash", {"command": "sed -i s/one/two/ a.txt", "description": "edit"}),
            ("Bash", {"command": "rm .env; false", "description": "remove"}),
            ("Read", {"file_path": str(bed.workspace / "a.txt")}),
        ],
        "script-two": [
            ("Write", {"file_path": written, "content": "w\n"}),
            subagent("script-errand"),
        ],
        "script-errand": [("Bash", {"command": "mkdir sub && echo x > sub/s.txt", "description": "make"})],
        "script-three": [("Bash", {"command": "mv a.txt b.txt", "description": "rename"})],
    }
    (bed.workspace / "a.txt").write_text("one\n")
    (bed.workspace / ".env").write_text("KEY=1\n")
    with scripted_model.served(MessagesModel(scripts)) as address:
        bed.environ["ANTHROPIC_BASE_URL"] = address
        ask_claude(bed, "script-one", "script-two", "script-three")

    assert calls(bed) == [
        ("Bash", "call-script-one-0", 1, False, "done"),
        ("Bash", "call-script-one-1", 1, False, "done"),
        ("Write", "call-script-two-0", 2, False, "done"),
        ("Bash", "call-script-errand-0", 2, True, "done"),
        ("Bash", "call-script-three-0", 3, False, "done"),
    ]
    assert {change.client for change in changes(bed)} <= {"claude-code", "another program"}
    # and no word of a prompt is kept by us
    ours = [path for path in Path(bed.environ["PERDURE_HOME"]).rglob("*") if path.is_file()]
    assert ours
    assert [path for path in ours if PROMPT.encode() in path.read_bytes()] == []
    # and the call in the middle can be taken back
    removed = next(
        change for change in changes(bed) if change.call and change.call.call_id == "call-script-one-1"
    )
    perdure(bed, "undo", str(removed.id))
    assert (bed.workspace / ".env").read_text() == "KEY=1\n"


def test_a_call_that_was_not_permitted_is_the_author_of_nothing(claude: Bed) -> None:
    bed = claude

    def after_the_refusal() -> scripted_model.Use:
        """The client does not wait for the hook at the end of a batch; a model takes longer than it."""
        while read_journal(bed, lambda journal: journal.open_calls()):
            sleep(0.05)
        return "Bash", {"command": "sh make.sh", "description": "names no file that it makes"}

    refused: scripted_model.Use = ("Bash", {"command": "touch refused.txt", "description": "not permitted"})
    (bed.workspace / "make.sh").write_text("echo x > made.txt\n")
    with scripted_model.served(MessagesModel({"script-one": [refused, after_the_refusal]})) as address:
        bed.environ["ANTHROPIC_BASE_URL"] = address
        ask_claude(bed, "script-one", tools="Bash(sh make.sh)")
    assert not (bed.workspace / "refused.txt").exists()
    assert calls(bed) == [("Bash", "call-script-one-1", 1, False, "done")]


def test_subagents_at_the_same_time_are_told_apart(claude: Bed) -> None:
    bed, names = claude, ("script-left", "script-right")
    # Each waits for the other between its two changes, so that their calls overlap.
    scripts: dict[str, list[Step]] = {"script-one": [subagent(name) for name in names]}
    for name, other in zip(names, reversed(names), strict=True):
        met = f"touch {bed.root}/{name}; while [ ! -e {bed.root}/{other} ]; do sleep 0.05; done"
        command = f"echo 1 > {name}.txt; {met}; echo 2 >> {name}.txt"
        scripts[name] = [("Bash", {"command": command, "description": "change"})]
    with scripted_model.served(MessagesModel(scripts, {"script-one": 2})) as address:
        bed.environ["ANTHROPIC_BASE_URL"] = address
        ask_claude(bed, "script-one")
    found = [change.call for change in changes(bed) if change.call is not None]
    assert {call.call_id for call in found} == {"call-script-left-0", "call-script-right-0"}
    assert len({call.agent for call in found} - {None}) == 2
    for change in changes(bed):
        assert change.call is not None
        rows = read_journal(bed, lambda journal, txn=change.txn: journal.transaction(txn or ""))
        written = str(change.call.call_id).removeprefix("call-").removesuffix("-0")
        assert {row.path for row in rows} == {f"{written}.txt"}


def test_a_call_of_our_own_tool_in_claude_code_is_one_change(claude: Bed) -> None:
    bed = claude
    perdure(bed, "install", "claude-code", "--apply")
    scripts: dict[str, list[Step]] = {
        "script-one": [
            (scripted_model.WAIT, {}),
            ("mcp__perdure__safe_write", {"path": "a.txt", "content": "x\n"}),
            ("mcp__perdure__edit", {"path": "a.txt", "edits": [{"old": "x", "new": "y"}]}),
        ]
    }
    with scripted_model.served(MessagesModel(scripts)) as address:
        bed.environ["ANTHROPIC_BASE_URL"] = address
        ask_claude(bed, "script-one", tools="mcp__perdure__safe_write,mcp__perdure__edit")
    assert (bed.workspace / "a.txt").read_text() == "y\n"
    assert calls(bed) == [
        ("mcp__perdure__safe_write", "call-script-one-1", 1, False, "done"),
        ("mcp__perdure__edit", "call-script-one-2", 1, False, "done"),
    ]
    assert len(changes(bed)) == 2


def test_a_call_to_a_mounted_server_in_claude_code_is_one_change(claude: Bed) -> None:
    """The hook through `sh -c` and the host are tied by the process of the client."""
    bed = claude
    perdure(bed, "install", "claude-code", "--apply")
    writer = Path(__file__).parents[1] / "integration" / "servers" / "file_writer.py"
    settings = f'[timeline]\nmounts = true\n[mounts]\nfiles = "{sys.executable} -S {writer}"\n'
    bed.settings(settings)
    tool = "mcp__perdure__files__write_file"
    scripts: dict[str, list[Step]] = {
        "script-one": [
            (scripted_model.WAIT, {}),
            (tool, {"path": "a.txt", "content": "x\n"}),
            (tool, {"path": "b.txt", "content": "x\n"}),
        ]
    }
    with scripted_model.served(MessagesModel(scripts)) as address:
        bed.environ["ANTHROPIC_BASE_URL"] = address
        ask_claude(bed, "script-one", tools=tool)
    assert calls(bed) == [
        (tool, "call-script-one-1", 1, False, "done"),
        (tool, "call-script-one-2", 1, False, "done"),
    ]
    assert [change.files for change in changes(bed)] == [1, 1]


def test_claude_code_posts_its_hooks_to_the_server(bed: Bed) -> None:
    program(CLAUDE)
    bed.environ |= {
        "ANTHROPIC_API_KEY": "sk-none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "PATH": os.environ["PATH"],
    }
    scripts: dict[str, list[scripted_model.Use]] = {
        "script-one": [("Bash", {"command": "echo one > a.txt", "description": "write"})],
        "script-two": [
            ("Bash", {"command": "echo two > b.txt; false", "description": "fail"}),
            ("Bash", {"command": "rm a.txt", "description": "remove"}),
        ],
    }
    server = ServeProcess(bed.root, env=bed.environ)
    try:
        perdure(bed, "install", "claude-code", "--hooks", "--shared", "--apply")
        with scripted_model.served(MessagesModel(scripts)) as address:
            bed.environ["ANTHROPIC_BASE_URL"] = address
            ask_claude(bed, "script-one", "script-two")
    finally:
        assert server.stop() == 0
    assert calls(bed) == [
        ("Bash", "call-script-one-0", 1, False, "done"),
        ("Bash", "call-script-two-0", 2, False, "done"),
        ("Bash", "call-script-two-1", 2, False, "done"),
    ]


def test_the_settings_of_claude_code_are_what_they_were(bed: Bed) -> None:
    file = Path(bed.environ["HOME"]) / ".claude" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{\n  "model": "opus"\n}\n')
    perdure(bed, "install", "claude-code", "--hooks", "--apply")
    perdure(bed, "uninstall", "claude-code", "--apply")
    assert file.read_text() == '{\n  "model": "opus"\n}\n'


def test_what_codex_changes_has_its_call_its_turn_and_its_agent(bed: Bed) -> None:
    command, flag = program(CODEX), bed.root / "flag"
    patch = "*** Begin Patch\n*** Add File: p.txt\n+hello\n*** End Patch\n"
    scripts: dict[str, list[tuple[str, Any]]] = {
        "script-one": [
            ("exec_command", {"cmd": "sed -i s/one/two/ a.txt"}),
            ("exec_command", {"cmd": "rm .env; false"}),
            ("apply_patch", patch),
        ],
        "script-two": [
            ("multi_agent_v1/spawn_agent", {"message": "script-errand"}),
            ("exec_command", {"cmd": f"while [ ! -e {flag} ]; do sleep 0.1; done"}),
        ],
        "script-errand": [
            ("exec_command", {"cmd": "echo x > s.txt"}),
            ("exec_command", {"cmd": f"touch {flag}"}),
        ],
    }
    (bed.workspace / "a.txt").write_text("one\n")
    (bed.workspace / ".env").write_text("KEY=1\n")
    home = Path(bed.environ["HOME"]) / ".codex"
    home.mkdir(parents=True)
    bed.environ |= {"LOCAL_KEY": "none", "PATH": os.environ["PATH"]}
    perdure(bed, "install", "codex", "--hooks", "--apply")
    # A person trusts the hooks once, in the client; here they are run without asking.
    options = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"]
    with served(ResponsesModel(scripts)) as address:
        (home / "config.toml").write_text(
            'model = "gpt-5.5"\nmodel_provider = "local"\n[model_providers.local]\nname = "local"\n'
            f'base_url = "{address}/v1"\nwire_api = "responses"\nenv_key = "LOCAL_KEY"\n'
        )
        run(bed, [*command, "exec", *options, "--skip-git-repo-check", f"script-one {PROMPT}"])
        session = next(change.session for change in changes(bed) if change.client == "codex")
        run(bed, [*command, "exec", *options, "--skip-git-repo-check", "resume", session, "script-two"])

    found = calls(bed)
    assert found[:3] == [
        ("Bash", "call-script-one-0", 1, False, "done"),
        ("Bash", "call-script-one-1", 1, False, "done"),
        ("apply_patch", "call-script-one-2", 1, False, "done"),
    ]
    # Both the agent, which waits, and its subagent had a call open; the subagent's names the file.
    assert [call[:4] for call in found[3:]] == [("Bash", "call-script-errand-0", 2, True)]
    assert re.fullmatch(r"[0-9a-f-]{36}", session)


def test_what_gemini_changes_has_its_call_and_its_turn(bed: Bed) -> None:
    command = program(GEMINI)
    scripts: dict[str, list[Step]] = {
        "script-one": [
            ("run_shell_command", {"command": "sed -i s/one/two/ a.txt", "description": "edit"}),
            ("run_shell_command", {"command": "rm .env; false", "description": "remove"}),
            ("read_file", {"file_path": str(bed.workspace / "a.txt")}),
            ("write_file", {"file_path": str(bed.workspace / "w.txt"), "content": "w\n"}),
        ]
    }
    (bed.workspace / "a.txt").write_text("one\n")
    (bed.workspace / ".env").write_text("KEY=1\n")
    settings = Path(bed.environ["HOME"]) / ".gemini" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}\n')
    perdure(bed, "install", "gemini", "--hooks", "--apply")
    with served(GenerateContentModel(scripts)) as address:
        bed.environ |= {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": address,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "PATH": os.environ["PATH"],
        }
        run(bed, [*command, "-p", f"script-one {PROMPT}", "--yolo"])
    found = calls(bed)
    assert [(tool, turn, status) for tool, _, turn, _, status in found] == [
        ("run_shell_command", 1, "done"),
        ("run_shell_command", 1, "done"),
        ("write_file", 1, "done"),
    ]
    assert len({call_id for _, call_id, *_ in found}) == 3

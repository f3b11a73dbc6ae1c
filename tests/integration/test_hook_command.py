"""`perdure hook` with the JSON that clients give their hooks: what their tools change is recorded, or steered."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import SCRIPT, perdure, told

from perdure.cli import hook_journal
from perdure.hooks import relay
from perdure.storage.timeline import ChangeFilter, ChangeSummary
from perdure.storage.workspace_store import find
from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline import recorder
from testbed import Bed

SESSION = "0f4a2c1e-9b1d-4a57-8a64-3b0f9a3c77d1"
MARK = "the text of a prompt that is never kept"


def event(bed: Bed, name: str, **more: Any) -> dict[str, Any]:
    """As Claude Code writes it: absolute paths, and what the tool answered only after it ran."""
    return {
        "session_id": SESSION,
        "transcript_path": "/home/somebody/.claude/projects/x/transcript.jsonl",
        "cwd": str(bed.workspace),
        "permission_mode": "default",
        "hook_event_name": name,
        **more,
    }


def write_event(bed: Bed, name: str, tool: str, path: str) -> dict[str, Any]:
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    given = {key: str(bed.workspace / path), "content": "not looked at"}
    return event(bed, name, tool_name=tool, tool_input=given, tool_use_id="toolu_01ABC")


def bash_event(bed: Bed, name: str, command: str, call: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return event(bed, name, tool_name="Bash", tool_input={"command": command}, tool_use_id=call, **more)


def hook(bed: Bed, mode: str, payload: object, *words: str) -> subprocess.CompletedProcess[str]:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return perdure(bed, "hook", mode, *words, stdin=text)


def journal(bed: Bed, payload: object, *words: str) -> None:
    """A hook that has nothing to say."""
    done = hook(bed, "journal", payload, *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def run_bash(bed: Bed, command: str, call: str = "toolu_1", end: str = "PostToolUse", **more: Any) -> None:
    """A call of the client's shell, with the hooks before and after it."""
    journal(bed, bash_event(bed, "PreToolUse", command, call, **more))
    subprocess.run(["sh", "-c", command], cwd=bed.workspace, check=False)
    journal(bed, bash_event(bed, end, command, call, **more))


def changes(bed: Bed) -> list[ChangeSummary]:
    """Oldest first."""
    settings = Settings(workspaces=(str(bed.workspace),))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "PERDURE_HOME"):
            if name in bed.environ:
                patch.setenv(name, bed.environ[name])
        service = open_write(settings, is_read_only=True)
        try:
            return service.journal.changes(ChangeFilter(), 100)[::-1]
        finally:
            service.close()


def calls(bed: Bed) -> list[tuple[Any, ...]]:
    return [
        (change.call.tool, change.call.call_id, change.call.turn, change.call.agent, change.call.status)
        for change in changes(bed)
        if change.call is not None
    ]


def log_of(bed: Bed) -> str:
    return "".join(path.read_text() for path in bed.root.rglob("events.jsonl"))


# --- journal --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_what_a_shell_changes_is_recorded_with_its_call(bed: Bed) -> None:
    # given files that nobody journaled
    (bed.workspace / ".env").write_text("KEY=1\n")
    (bed.workspace / "a.txt").write_text("first\n")
    # when a person asks, and the agent and its subagent use the shell
    journal(bed, event(bed, "SessionStart", source="startup"))
    journal(bed, event(bed, "UserPromptSubmit", prompt=MARK))
    run_bash(bed, "sed -i s/first/second/ a.txt", "toolu_1")
    run_bash(bed, "rm .env; false", "toolu_2", "PostToolUseFailure", error="Exit code 1")
    journal(bed, event(bed, "UserPromptSubmit", prompt="<task-notification>\n<task-id>a7</task-id>"))
    run_bash(bed, "echo x > new.txt", "toolu_3", agent_id="a7", agent_type="general-purpose")
    journal(bed, event(bed, "Stop"))
    journal(bed, event(bed, "SessionEnd", reason="other"))
    # then each change has its call, its turn and its agent
    assert calls(bed) == [
        ("Bash", "toolu_1", 1, None, "done"),
        ("Bash", "toolu_2", 1, None, "done"),
        ("Bash", "toolu_3", 1, "a7", "done"),
    ]
    versions = told(bed, "history", "a.txt")["versions"]
    assert (versions[0]["op"], versions[0]["client"], versions[0]["session"]) == (
        "native",
        "claude-code",
        SESSION,
    )
    # and no word of a prompt is kept anywhere
    kept = [path for path in bed.root.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    assert kept == []


def test_a_shell_command_can_be_taken_back(bed: Bed) -> None:
    file = bed.workspace / ".env"
    file.write_text("KEY=1\n")
    run_bash(bed, "rm .env")
    assert not file.exists()
    assert perdure(bed, "undo").returncode == 0
    assert file.read_text() == "KEY=1\n"


@pytest.mark.thorough
def test_a_byte_order_mark_and_odd_letters_are_no_obstacle(bed: Bed) -> None:
    (bed.workspace / "a.txt").write_text("x")
    for name in ("PreToolUse", "PostToolUse"):
        journal(bed, "\ufeff" + json.dumps(bash_event(bed, name, "rm a.txt # \ud800\0", agent_id="\ud800")))
        (bed.workspace / "a.txt").unlink(missing_ok=True)
    assert [call[0] for call in calls(bed)] == ["Bash"]


@pytest.mark.thorough
def test_a_turn_for_each_prompt(bed: Bed) -> None:
    for turn in (1, 2):
        journal(bed, event(bed, "UserPromptSubmit", prompt=MARK))
        run_bash(bed, f"echo {turn} > {turn}.txt", f"toolu_{turn}")
    assert [call[2] for call in calls(bed)] == [1, 2]


@pytest.mark.thorough
def test_a_call_that_was_not_permitted_is_over_with_its_batch(bed: Bed) -> None:
    (bed.workspace / "make.sh").write_text("echo x > made.txt\n")
    journal(bed, bash_event(bed, "PreToolUse", "touch refused.txt", "toolu_1"))
    journal(bed, event(bed, "PostToolBatch", tool_calls=[]))
    run_bash(bed, "sh make.sh", "toolu_2")
    assert calls(bed) == [("Bash", "toolu_2", None, None, "done")]


def test_a_call_of_our_own_tool_is_one_change(bed: Bed) -> None:
    journal(bed, event(bed, "UserPromptSubmit", prompt=MARK))
    given = {"path": "a.txt", "content": "x\n"}
    about = {"tool_name": "mcp__perdure__safe_write", "tool_input": given, "tool_use_id": "toolu_9"}
    journal(bed, event(bed, "PreToolUse", **about))
    client = bed.run()
    answer = client.use("safe_write", given)
    assert client.close() == 0
    journal(bed, event(bed, "PostToolUse", tool_response=answer, **about))
    assert calls(bed) == [("mcp__perdure__safe_write", "toolu_9", 1, None, "done")]
    assert len(told(bed, "history", "a.txt")["versions"]) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("render", ["porcelain", "json"])
def test_calls_of_our_own_tools_are_one_change_each_with_a_running_host(bed: Bed, render: str) -> None:
    client = bed.run()
    journal(bed, event(bed, "UserPromptSubmit", prompt=MARK))
    steps: list[tuple[str, dict[str, Any]]] = [
        ("safe_write", {"path": "a.txt", "content": "one\n"}),
        ("edit", {"path": "a.txt", "edits": [{"old": "one", "new": "two"}]}),
        ("transaction", {"ops": [{"op": "write", "path": f"{n}.txt", "content": n} for n in "bc"]}),
        ("undo", {"n": 1}),
    ]
    for number, (tool, given) in enumerate(steps):
        about = {
            "tool_name": f"mcp__perdure__{tool}",
            "tool_input": given,
            "tool_use_id": f"toolu_{number}",
            "agent_id": "a7",
        }
        journal(bed, event(bed, "PreToolUse", **about))
        answer = client.use(tool, {**given, "render": render})
        assert not answer["result"].get("isError"), answer
        journal(bed, event(bed, "PostToolUse", tool_response=answer["result"]["content"], **about))
    assert calls(bed) == [
        (f"mcp__perdure__{tool}", f"toolu_{number}", 1, "a7", "done")
        for number, (tool, _) in enumerate(steps)
    ]
    assert len(changes(bed)) == len(steps)


@pytest.mark.parametrize(
    "about",
    [
        {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": "a"}},
        {"hook_event_name": "PostToolUse", "tool_name": "mcp__perdure__history", "tool_input": {"path": "a"}},
        {"hook_event_name": "Notification"},
        {},
    ],
)
def test_what_changes_no_file_opens_no_store(bed: Bed, about: dict[str, Any]) -> None:
    before = set(bed.root.rglob("*"))
    journal(bed, {"session_id": SESSION, "cwd": str(bed.workspace), **about})
    assert set(bed.root.rglob("*")) == before


def test_a_hook_loads_only_what_its_event_needs(bed: Bed) -> None:
    def loaded(payload: dict[str, Any]) -> str:
        command = [sys.executable, "-X", "importtime", "-P", "-m", "perdure", "hook", "journal"]
        done = subprocess.run(
            command,
            input=json.dumps(payload),
            env=bed.environ,
            cwd=bed.workspace,
            capture_output=True,
            text=True,
        )
        return done.stderr

    reading = loaded(event(bed, "PreToolUse", tool_name="Read", tool_input={"file_path": "a"}))
    for module in (
        "apsw",
        "perdure.host",
        "perdure.worker",
        "perdure.workspace.workspace",
        "perdure.hooks.codex",
    ):
        assert f" {module}\n" not in reading
    shell = loaded(bash_event(bed, "PreToolUse", "ls"))
    assert " apsw\n" in shell
    for module in (
        "perdure.surfaces",
        "perdure.kernel",
        "perdure.cli.tool_command",
        "asyncio",
        "perdure.validate",
    ):
        assert f" {module}\n" not in shell


def test_the_home_folder_is_no_project(bed: Bed) -> None:
    payload = bash_event(bed, "PreToolUse", "ls")
    done = perdure(bed, "hook", "journal", stdin=json.dumps(payload), HOME=str(bed.workspace))
    assert (done.returncode, done.stderr) == (0, "")
    assert not os.path.lexists(find(str(bed.workspace), "data").journal)
    named = perdure(
        bed, "hook", "journal", "--workspace", ".", stdin=json.dumps(payload), HOME=str(bed.workspace)
    )
    assert (named.returncode, named.stderr) == (0, "")


def test_nothing_is_recorded_where_the_time_machine_is_off(bed: Bed) -> None:
    (bed.workspace / "perdure.toml").write_text("[timeline]\nenabled = false\n")
    user = Path(bed.environ["HOME"]) / ".config" / "perdure"
    user.mkdir(parents=True, exist_ok=True)
    (user / "perdure.toml").write_text("[timeline]\nenabled = false\n")
    run_bash(bed, "echo x > a.txt")
    assert not os.path.lexists(find(str(bed.workspace), "data").journal)


# --- fails open -----------------------------------------------------------------------------------------------------


def failed_open(bed: Bed, done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert (done.returncode, done.stdout) == (0, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("perdure hook journal: "), done
    assert reason in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("given", ["", "not json", "[]", "7", "[" * 100_000, '{"a": '])
def test_what_no_client_sends_is_said_and_logged(bed: Bed, given: str) -> None:
    failed_open(bed, hook(bed, "journal", given), "not the JSON object of a hook")
    assert "not the JSON object of a hook" in log_of(bed)


def test_without_a_standard_input(bed: Bed) -> None:
    done = subprocess.run(
        ["sh", "-c", shlex.join([*SCRIPT, "hook", "journal"]) + " <&-"],
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    failed_open(bed, done, "not the JSON object of a hook")


def test_a_workspace_that_is_gone(bed: Bed) -> None:
    payload = {**bash_event(bed, "PreToolUse", "ls"), "cwd": str(bed.root / "gone")}
    failed_open(bed, hook(bed, "journal", payload, "--workspace", str(bed.root / "gone")), "gone")


def test_a_store_that_cannot_be_made(bed: Bed) -> None:
    (bed.root / "file").write_text("")
    (bed.workspace / ".perdure").write_text("")  # the store is here where the user's folder cannot have it
    done = perdure(
        bed,
        "hook",
        "journal",
        stdin=json.dumps(bash_event(bed, "PreToolUse", "ls")),
        PERDURE_HOME=str(bed.root / "file" / "home"),
    )
    failed_open(bed, done, "")


@pytest.mark.thorough
def test_a_store_that_is_broken(bed: Bed) -> None:
    journal(bed, bash_event(bed, "PreToolUse", "ls"))
    for path in bed.root.rglob("journal.db*"):
        path.write_bytes(b"not a database " * 1000)
    failed_open(bed, hook(bed, "journal", bash_event(bed, "PostToolUse", "ls")), "")


@pytest.mark.thorough
def test_a_disk_that_is_full(bed: Bed) -> None:
    (bed.workspace / "a.txt").write_text("x" * 100_000)
    command = f"ulimit -f 1; exec {shlex.join([*SCRIPT, 'hook', 'journal'])}"
    done = subprocess.run(
        ["sh", "-c", command],
        input=json.dumps(bash_event(bed, "PreToolUse", "ls")),
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    failed_open(bed, done, "")
    # and the next one catches up
    run_bash(bed, "rm a.txt")
    assert calls(bed) == [("Bash", "toolu_1", None, None, "done")]


def test_a_policy_that_cannot_be_read_is_said(bed: Bed) -> None:
    (bed.workspace / "perdure.toml").write_text("[timeline\n")
    failed_open(bed, hook(bed, "journal", bash_event(bed, "PreToolUse", "ls")), "perdure.toml")


@pytest.mark.thorough
@pytest.mark.parametrize("text", ['[timeline]\nmax_file_mb = "much"\n', "unheard_of = 1\n"])
def test_a_broken_settings_file_is_said_and_the_change_recorded(bed: Bed, text: str) -> None:
    (bed.workspace / "perdure.toml").write_text(text)
    (bed.workspace / "a.txt").write_text("1\n")
    for name in ("PreToolUse", "PostToolUse"):
        failed_open(bed, hook(bed, "journal", bash_event(bed, name, "echo 2 > a.txt")), "perdure.toml")
        (bed.workspace / "a.txt").write_text("2\n")
    assert calls(bed) == [("Bash", "toolu_1", None, None, "done")]


@pytest.mark.thorough
def test_a_workspace_that_another_process_keeps_locked(bed: Bed) -> None:
    journal(bed, bash_event(bed, "PreToolUse", "ls"))
    program = (
        "import fcntl, os, sys\nfcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print(flush=True)\nsys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(bed.workspace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        failed_open(bed, hook(bed, "journal", bash_event(bed, "PostToolUse", "ls")), "")
    finally:
        holder.communicate()
    journal(bed, bash_event(bed, "PostToolUse", "ls"))


def test_waiting_for_another_observation_ends_before_the_hook_is_given_up() -> None:
    assert recorder.LOCK_S < relay.ANSWER_S < hook_journal.DEADLINE_S


@pytest.mark.thorough
def test_a_hook_that_waits_too_long_for_another_observation_says_so_and_the_next_one_catches_up(
    bed: Bed,
) -> None:
    journal(bed, bash_event(bed, "PreToolUse", "echo 2 > a.txt"))
    (bed.workspace / "a.txt").write_text("2\n")
    (lock,) = bed.root.rglob("observation.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = hook(bed, "journal", bash_event(bed, "PostToolUse", "echo 2 > a.txt"))
        failed_open(bed, done, "the next hook records what has changed")
    journal(bed, bash_event(bed, "PostToolUse", "echo 2 > a.txt"))
    assert calls(bed) == [("Bash", "toolu_1", None, None, "done")]


def test_a_client_that_never_closes_the_pipe_goes_on(bed: Bed) -> None:
    program = "import perdure.cli.hook_journal as hook; hook.DEADLINE_S = 0.2; hook.run(None, None)"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=bed.environ,
        cwd=bed.workspace,
        text=True,
    )
    with process:
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "the next hook catches up" in process.stderr.read()


@pytest.mark.parametrize("words", [("--client", "emacs"), ("--no-such-option",), ("more",)])
def test_only_a_misuse_is_an_error(bed: Bed, words: tuple[str, ...]) -> None:
    assert hook(bed, "journal", {}, *words).returncode == 2


# --- steer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "instead"), [("Write", "safe_write"), ("Edit", "edit"), ("NotebookEdit", "safe_write")]
)
def test_a_native_write_is_refused_with_the_name_of_the_tool_to_use(
    bed: Bed, tool: str, instead: str
) -> None:
    done = hook(bed, "steer", write_event(bed, "PreToolUse", tool, "src/app.py"), "--server", "pd")
    assert done.returncode == 0
    decision = json.loads(done.stdout)["hookSpecificOutput"]
    assert (decision["hookEventName"], decision["permissionDecision"]) == ("PreToolUse", "deny")
    assert f"mcp__pd__{instead}" in decision["permissionDecisionReason"]
    assert "src/app.py" in decision["permissionDecisionReason"]
    assert str(bed.workspace) not in decision["permissionDecisionReason"]


def test_what_is_not_a_write_in_the_workspace_is_not_steered(bed: Bed) -> None:
    elsewhere = write_event(bed, "PreToolUse", "Write", "a")
    elsewhere["tool_input"]["file_path"] = str(bed.root / "outside.txt")
    others = [
        elsewhere,
        {**elsewhere, "tool_name": "Bash", "tool_input": {"command": "ls"}},
        {**elsewhere, "tool_name": "Read"},
        {**elsewhere, "hook_event_name": "Stop"},
        {**elsewhere, "tool_input": None},
        {},
    ]
    for one in others:
        done = hook(bed, "steer", one)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), one
    assert list(bed.workspace.iterdir()) == []


def test_steering_blocks_nothing_that_it_cannot_read(bed: Bed) -> None:
    done = hook(bed, "steer", "not json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not the JSON object of a hook" in done.stderr


# --- settings -------------------------------------------------------------------------------------------------------


def test_the_printed_settings_run_the_hook(bed: Bed) -> None:
    hooks = json.loads(perdure(bed, "hook", "settings", "journal").stdout)["hooks"]
    command = shlex.split(hooks["PostToolUse"][0]["hooks"][0]["command"])
    (bed.workspace / "a.txt").write_text("x\n")
    ran = subprocess.run(
        command,
        input=json.dumps(bash_event(bed, "PostToolUse", "touch a.txt")),
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_printed_settings_for_steering(bed: Bed) -> None:
    hooks = json.loads(perdure(bed, "hook", "settings", "steer").stdout)["hooks"]
    (entry,) = hooks["PreToolUse"]
    assert entry["matcher"].split("|") == ["Write", "Edit", "MultiEdit", "NotebookEdit"]
    assert perdure(bed, "hook", "settings", "steer", "--client", "codex").returncode == 2

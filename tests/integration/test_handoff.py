"""A task left by one agent and taken up by another, through the whole host."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiled_rules import put_compiled_rules
from perdure.testing.raw_client import RawClient

Result = dict[str, Any]


class Agent:
    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self.workspace)]
        put_compiled_rules(folder / "home")
        environ = {**os.environ, "PERDURE_HOME": str(folder / "home")}
        self.client = RawClient([*command, "--render", "json", "--detail", "full"], env=environ)
        self.client.initialize()

    def use(self, tool: str, **arguments: Any) -> Result:
        response = self.client.call(tool, arguments, timeout=30)
        assert "result" in response, response
        found: Result = response["result"]["structuredContent"]
        return found

    def refused(self, tool: str, **arguments: Any) -> tuple[str, str]:
        found = self.use(tool, **arguments)
        assert found["ok"] is False, found
        return found["error"], found["context"]["reason"]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    found = Agent(tmp_path)
    yield found
    found.client.kill()


def envelope(**more: Any) -> Result:
    return {
        "task_id": "t-1",
        "status": "partial",
        "agent": "a",
        "summary": "half way",
        "next_steps": ["go on"],
        "last_good_state": [],
        **more,
    }


def good(path: str, content: str) -> dict[str, str]:
    return {"path": path, "sha256": hashlib.sha256(content.encode()).hexdigest()}


def test_a_handoff_after_a_kill_is_read_by_a_third_with_exact_drift(tmp_path: Path) -> None:
    first, second = Agent(tmp_path), Agent(tmp_path)
    for name in ("same", "changed", "gone"):
        first.use("safe_write", path=name, content=name)
    os.kill(first.client.process.pid, signal.SIGKILL)
    state = [good(name, name) for name in ("same", "changed", "gone")] + [good("../outside", "x")]
    written = second.use("handoff_write", envelope=envelope(last_good_state=state), body="\n\nnotes\n\n")
    assert [one["reason"] for one in written["drift_warnings"]] == ["invalid_path"]
    (second.workspace / "changed").write_text("other")
    (second.workspace / "gone").unlink()
    third = Agent(tmp_path)
    found = third.use("handoff_read")
    assert found["body"] == "\n\nnotes\n\n"
    assert [(one["path"], one["reason"]) for one in found["drift_warnings"]] == [
        ("changed", "hash_mismatch"),
        ("gone", "missing"),
        ("../outside", "invalid_path"),
    ]
    assert found["drift_warnings"][0]["actual_sha256"] == good("", "other")["sha256"]
    assert found["envelope"]["journal_head"] == "3"
    for one in (second, third):
        one.client.kill()


def test_files_outside_are_told_alike_whether_they_exist_or_not(agent: Agent) -> None:
    (agent.workspace.parent / "there").write_text("x")
    (agent.workspace / "link").symlink_to(agent.workspace.parent / "there")
    paths = [
        "../there",
        "../not-there",
        str(agent.workspace.parent / "there"),
        "link",
        "/etc/passwd",
        "/etc/none",
    ]
    state = [good(path, "x") for path in paths]
    told = agent.use("handoff_write", envelope=envelope(last_good_state=state))["drift_warnings"]
    assert [{key: one[key] for key in one if key != "path"} for one in told] == [
        {"reason": "invalid_path"}
    ] * 6


def test_steps_are_checked_and_the_ready_ones_told(agent: Agent) -> None:
    steps = [
        {"id": "a", "description": "first", "depends_on": [], "status": "done"},
        {"id": "b", "depends_on": ["a"]},
        {"id": "c", "depends_on": ["b"]},
    ]
    assert agent.use("handoff_write", envelope=envelope(steps=steps))["ready_steps"] == ["b"]
    assert agent.use("handoff_read")["ready_steps"] == ["b"]
    circle = [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]
    assert agent.refused("handoff_write", envelope=envelope(steps=circle)) == ("invalid_input", "bad_steps")
    unknown = [{"id": "a", "depends_on": ["z"]}]
    assert agent.refused("handoff_write", envelope=envelope(steps=unknown)) == ("invalid_input", "bad_steps")


def test_another_tasks_handoff_is_not_overwritten_unseen(agent: Agent) -> None:
    first = agent.use("handoff_write", envelope=envelope())
    assert agent.use("handoff_write", envelope=envelope(summary="further"))["ok"] is True
    refusal = agent.refused("handoff_write", envelope=envelope(task_id="t-2"))
    assert refusal == ("stale_precondition", "other_task")
    now = agent.use("handoff_read")
    assert now["envelope"]["summary"] == "further"
    assert now["sha256"] != first["sha256"]
    agent.use(
        "handoff_write", envelope=envelope(task_id="t-2"), archive=True, expected_prev_sha256=now["sha256"]
    )
    assert agent.use("handoff_read")["envelope"]["task_id"] == "t-2"


def test_what_people_add_survives_the_next_handoff(agent: Agent) -> None:
    agent.use("handoff_write", envelope=envelope(ticket="X-1"))
    file = agent.workspace / "HANDOFF.md"
    file.write_text(file.read_text().replace("ticket: X-1", "ticket: X-1  # ours\ndue: 2026-12-01"))
    read = agent.use("handoff_read")["envelope"]
    assert read["due"] == "2026-12-01"
    agent.use("handoff_write", envelope={**read, "status": "complete"})
    text = file.read_text()
    assert "ticket: X-1  # ours\ndue: 2026-12-01\n" in text
    assert "status: complete" in text


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "nearly"},
        {"task_id": ""},
        {"next_steps": "x"},
        {"last_good_state": [{"path": "a", "sha256": "short"}]},
        {"last_good_state": [{"path": "a"}]},
        {"steps": [{"id": "a", "status": "unknown"}]},
    ],
)
def test_an_envelope_that_is_none_is_refused_by_its_place(agent: Agent, broken: Result) -> None:
    refusal = agent.use("handoff_write", envelope=envelope(**broken))
    assert (refusal["error"], refusal["context"]["reason"]) == ("invalid_input", "bad_handoff")
    assert next(iter(broken)) in refusal["context"]["message"]
    assert not (agent.workspace / "HANDOFF.md").exists()


def test_a_file_that_is_no_handoff_is_refused_without_its_content(agent: Agent) -> None:
    (agent.workspace / "HANDOFF.md").write_text("---\nsecret: [unclosed\n---\n")
    refusal = agent.use("handoff_read")
    assert refusal["context"]["reason"] == "yaml_error"
    assert "secret" not in str(refusal)
    (agent.workspace / "HANDOFF.md").write_bytes(b"---\na: " + b"[" * 100_000)
    assert agent.use("handoff_read")["ok"] is False
    assert agent.refused("handoff_read", path="../HANDOFF.md")[0] in ("policy_violation", "invalid_input")
    assert agent.refused("handoff_read", path="none.md") == ("not_found", "not_found")
    assert agent.use("health")["restart_count"] == 0

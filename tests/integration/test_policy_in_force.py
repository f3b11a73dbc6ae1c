"""A policy as the tools obey it, and as no tool can change it, through the whole host."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiled_rules import put_compiled_rules
from perdure.testing.raw_client import RawClient

HOST_TOOLS = ("health", "telemetry", "mounts", "tools")


class Agent:
    """A client of `perdure run` on one workspace, with the options and variables given."""

    def __init__(self, folder: Path, *options: str, **env: str) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self.workspace), *options]
        put_compiled_rules(folder / "home")
        environ = {**os.environ, "PERDURE_HOME": str(folder / "home"), **env}
        environ["XDG_CONFIG_HOME"] = str(folder / "config")
        self.client = RawClient([*command, "--render", "json", "--detail", "full"], env=environ)
        self.opened = self.client.initialize()

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        response = self.client.call(tool, arguments, timeout=30)
        assert "result" in response, response
        found: dict[str, Any] = response["result"]["structuredContent"]
        return found

    def refused(self, tool: str, **arguments: Any) -> tuple[str, str]:
        found = self.use(tool, **arguments)
        assert found["ok"] is False, found
        return found["error"], found["context"]["reason"]


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    found: list[Agent] = []
    yield found
    for agent in found:
        agent.client.kill()


def test_a_broken_policy_is_said_by_every_call_until_it_is_mended(
    tmp_path: Path, agents: list[Agent]
) -> None:
    policy = tmp_path / "rules.yaml"
    policy.write_text("max_bytes: 10\nretry_bugdet: {default: 1}\n")
    agent = Agent(tmp_path, "--policy", str(policy))
    agents.append(agent)
    for tool, arguments in (("safe_write", {"path": "a", "content": "b"}), ("journal_tail", {})):
        found = agent.use(tool, **arguments)
        assert (found["error"], found["suggested_action"]) == ("policy_violation", "ask_user")
        context = found["context"]
        assert (context["reason"], context["file"], context["line"]) == ("bad_policy", "rules.yaml", 2)
        assert "retry_bugdet" in context["message"]
    assert not (agent.workspace / "a").exists()
    policy.write_text("max_bytes: 10\nretry_budget: {default: 1}\n")
    assert agent.use("safe_write", path="a", content="b")["ok"] is True


@pytest.mark.parametrize("path", ["perdure.toml", "./PERDURE.toml", "policy.yaml", "conf/own.yaml"])
def test_no_tool_writes_a_policy(tmp_path: Path, agents: list[Agent], path: str) -> None:
    (tmp_path / "workspace/conf").mkdir(parents=True)
    (tmp_path / "workspace/conf/own.yaml").write_text("protect: {allow: [/conf/own.yaml, /perdure.toml]}\n")
    agent = Agent(tmp_path, RW_POLICY_FILE="conf/own.yaml")
    agents.append(agent)
    expected = ("policy_violation", "protected_path")
    assert agent.refused("safe_write", path=path, content="a: 1", mode="overwrite", force=True) == expected
    ops = [{"op": "write", "path": path, "content": "a: 1", "mode": "overwrite"}]
    assert agent.refused("transaction", ops=ops, force=True) == expected
    agent.use("chunk_write", session="s", index=1, content="a: 1")
    assert agent.refused("chunk_compose", session="s", output_path=path) == expected
    agent.use("safe_write", path="other", content="a: 1")
    ops = [{"op": "move", "path": "other", "to": path}]
    assert agent.refused("transaction", ops=ops, force=True) == expected


def test_the_table_of_the_settings_file_is_in_force(tmp_path: Path, agents: list[Agent]) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/perdure.toml").write_text(
        "[policy.scratch]\nget = false\n[policy.protect]\nnever = ['vendor/']\n[policy.retry_budget]\ndefault = 1\n"
    )
    agent = Agent(tmp_path)
    agents.append(agent)
    kept = agent.use("scratch_put", content="x")
    assert agent.refused("scratch_get", sha256=kept["sha256"]) == ("policy_violation", "scratch_get_disabled")
    assert agent.refused("safe_write", path="vendor/a", content="x", force=True)[1] == "protected_path"
    agent.use("safe_write", path="here", content="x")
    budgets = [agent.use("safe_write", path="here", content="other") for _ in range(3)]
    assert [(one["error"], one["retry_budget"]) for one in budgets] == [
        ("stale_precondition", 1),
        ("stale_precondition", 0),
        ("quota_exceeded", 0),
    ]


def test_only_the_tools_asked_for_are_served(tmp_path: Path, agents: list[Agent]) -> None:
    agent = Agent(tmp_path, "--tools", "read,rw.safe_write")
    agents.append(agent)
    listed = agent.client.request("tools/list", {})["result"]["tools"]
    assert [tool["name"] for tool in listed if tool["name"] not in HOST_TOOLS] == [
        "safe_write",
        "read",
    ]
    assert agent.use("safe_write", path="a", content="b")["ok"] is True
    assert agent.client.call("undo", {}, timeout=30)["error"]["code"] == -32602


def test_a_client_is_told_when_to_use_what_before_the_worker_has_started(
    tmp_path: Path, agents: list[Agent]
) -> None:
    agent = Agent(tmp_path)
    agents.append(agent)
    assert "safe_write" in agent.opened["instructions"]
    assert len(agent.opened["instructions"]) < 1_500


ADDRESS = "write to ada.lovelace@analytical.org\n"


@pytest.mark.thorough
def test_the_file_of_rw_policy_file_counts_and_the_workspaces_does_not(
    tmp_path: Path, agents: list[Agent]
) -> None:
    folder = tmp_path / "workspace/.resilient_write"
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text("disable_families: [pii]\n")
    (tmp_path / "workspace/own.yaml").write_text("version: 1\n")
    for named in ("own.yaml", str(tmp_path / "workspace/own.yaml"), "conf/absent.yaml"):
        agents.append(Agent(tmp_path, RW_POLICY_FILE=named))
        (found,) = agents[-1].use("risk_score", content=ADDRESS)["detected_patterns"]
        assert (found["kind"], found["pattern"]) == ("pii", "email"), named
    # What no file is yet is still the owner's: a tool that wrote it would set the next session's policy.
    written = agents[-1].refused("safe_write", path="conf/absent.yaml", content="a: 1", force=True)
    assert written == ("policy_violation", "protected_path")


def test_a_policys_pattern_that_does_not_compile_is_a_bad_regex(tmp_path: Path, agents: list[Agent]) -> None:
    folder = tmp_path / "workspace/.resilient_write"
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(
        "version: 1\nextend_patterns:\n  api_key:\n    - {name: good, regex: 'a'}\n    - {name: bad, regex: '('}\n"
    )
    agents.append(Agent(tmp_path))
    found = agents[-1].use("risk_score", content="x")
    assert (found["error"], found["context"]["reason"], found["context"]["line"]) == (
        "policy_violation", "bad_regex", 5,
    )  # fmt: skip

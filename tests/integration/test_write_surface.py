"""The write surface through the whole host: real processes, a real workspace."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compiled_rules import put_compiled_rules
from perdure.testing.raw_client import RawClient

Result = dict[str, Any]


class Agent:
    """A client of `perdure run` on one workspace."""

    def __init__(self, workspace: Path, home: Path, **env: str) -> None:
        put_compiled_rules(home)
        environ = {**os.environ, "PERDURE_HOME": str(home), **env}
        command = [
            sys.executable,
            "-P",
            "-m",
            "perdure",
            "run",
            "--workspace",
            str(workspace),
            "--render",
            "json",
        ]
        self.client = RawClient([*command, "--detail", "full"], env=environ)
        self.client.initialize()

    def use(self, tool: str, **arguments: Any) -> Result:
        response = self.client.call(tool, arguments, timeout=20)
        assert "result" in response, response
        found: Result = response["result"]["structuredContent"]
        assert found["ok"] is not bool(response["result"].get("isError"))
        return found

    def worker_pid(self) -> int:
        health = self.use("health")
        return int(next(m["pid"] for m in health["mounts"] if m["name"] == "perdure"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def agent(workspace: Path, tmp_path: Path) -> Iterator[Agent]:
    found = Agent(workspace, tmp_path / "home")
    yield found
    found.client.kill()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_write_lands_whole_and_is_journaled(agent: Agent, workspace: Path) -> None:
    done = agent.use("safe_write", path="src/app.py", content="print(1)\n")
    assert (workspace / "src/app.py").read_bytes() == b"print(1)\n"
    assert (done["sha256"], done["prev_sha256"], done["bytes"]) == (sha(b"print(1)\n"), None, 9)
    entry = agent.use("journal_tail")["entries"][-1]
    assert (entry["journal_id"], entry["path"], entry["client"]) == (
        done["journal_id"],
        "src/app.py",
        "raw-client",
    )


def test_create_refuses_an_existing_file_and_keeps_the_payload(agent: Agent, workspace: Path) -> None:
    (workspace / "a").write_text("theirs")
    refused = agent.use("safe_write", path="a", content="mine")
    assert (refused["error"], refused["context"]["reason"]) == ("stale_precondition", "file_already_exists")
    assert (workspace / "a").read_text() == "theirs"
    done = agent.use("safe_write", path="a", draft=refused["draft"], mode="overwrite")
    assert (workspace / "a").read_text() == "mine"
    assert done["prev_sha256"] == sha(b"theirs")


def test_the_same_refused_content_counts_down_and_is_then_refused_for_good(
    agent: Agent, workspace: Path
) -> None:
    (workspace / "a").write_text("theirs")
    budgets = [agent.use("safe_write", path="a", content="mine") for _ in range(5)]
    assert [one["retry_budget"] for one in budgets[:4]] == [3, 2, 1, 0]
    assert budgets[4]["error"] == "quota_exceeded"


def test_a_precondition_is_compared_with_the_file_and_not_with_a_memory(
    agent: Agent, workspace: Path
) -> None:
    agent.use("safe_write", path="a", content="one")
    (workspace / "a").write_text("by an editor")
    refused = agent.use(
        "safe_write", path="a", content="two", mode="overwrite", expected_prev_sha256=sha(b"one")
    )
    assert refused["error"] == "stale_precondition"
    assert refused["context"]["actual_prev_sha256"] == sha(b"by an editor")
    assert (workspace / "a").read_text() == "by an editor"


def test_an_edit_by_someone_else_is_not_overwritten_unseen(agent: Agent, workspace: Path) -> None:
    agent.use("safe_write", path="a", content="1\n2\n3\n")
    (workspace / "a").write_text("1\n2 changed\n3\n")
    refused = agent.use("safe_write", path="a", content="new\n", mode="overwrite")
    assert refused["context"]["reason"] == "changed_since_seen"
    assert refused["context"]["changed_lines"] == [[2, 2]]
    agent.use("read", path="a")
    agent.use("safe_write", path="a", content="new\n", mode="overwrite")
    assert (workspace / "a").read_text() == "new\n"


def test_an_append_takes_the_files_own_line_ending(agent: Agent, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"one\r\n")
    agent.use("safe_write", path="a", content="two\n", mode="append")
    assert (workspace / "a").read_bytes() == b"one\r\ntwo\r\n"


def test_edits_speak_lf_and_keep_crlf_and_the_mode(agent: Agent, workspace: Path) -> None:
    path = workspace / "run.sh"
    path.write_bytes(b"#!/bin/sh\r\necho 1\r\n")
    path.chmod(0o755)
    done = agent.use("edit", path="run.sh", edits=[{"old": "sh\necho 1", "new": "sh\necho 2"}])
    assert (done["replacements"], done["match"]) == (1, "exact")
    assert path.read_bytes() == b"#!/bin/sh\r\necho 2\r\n"
    assert path.stat().st_mode & 0o777 == 0o755


def test_a_missed_edit_shows_both_sides_and_leaves_the_retry_budget(agent: Agent, workspace: Path) -> None:
    (workspace / "a.py").write_text("def f():\n    return total\n")
    edits = [{"old": "def f():\n    return totl", "new": "x"}]
    for tool, arguments in (
        ("edit", {"path": "a.py", "edits": edits}),
        ("safe_replace", {"path": "a.py", "old_string": edits[0]["old"], "new_string": "x"}),
        ("transaction", {"ops": [{"op": "edit", "path": "a.py", "edits": edits}]}),
    ):
        refused = [agent.use(tool, **arguments) for _ in range(5)][-1]
        assert refused["context"]["nearest"] == {
            "line": 1,
            "diverges_at_line": 2,
            "sent": "    return totl",
            "found": "    return total",
        }
        assert (refused["suggested_action"], refused["retry_budget"]) == ("reread", 3)
        assert "a.py" in refused["context"]["message"]


def test_an_edit_takes_the_names_that_other_tools_use_and_a_single_object(
    agent: Agent, workspace: Path
) -> None:
    path = workspace / "a.py"
    path.write_text("one = 1\ntwo = 2\n")
    agent.use("edit", path="a.py", edits=[{"old_string": "one", "new_string": "uno"}])
    agent.use("edit", path="a.py", edits={"old": "two", "new": "due"})
    assert path.read_text() == "uno = 1\ndue = 2\n"
    op = {"op": "edit", "path": "a.py", "edits": {"old_string": "uno = 1", "new_string": "un = 1"}}
    agent.use("transaction", ops=op)
    assert path.read_text() == "un = 1\ndue = 2\n"


def test_spacing_inside_a_line_is_tolerated_and_said_so(agent: Agent, workspace: Path) -> None:
    path = workspace / "a.py"
    path.write_text("def f(a, b):\n    return a + b * 12\n")
    done = agent.use("edit", path="a.py", edits={"old": "return a+b*12", "new": "return a+b*13"})
    assert path.read_text() == "def f(a, b):\n    return a + b * 13\n"
    assert (done["match"], done["warnings"]) == (
        "tolerant",
        ["edit 1 matched line 2 apart from whitespace; the file's own whitespace is kept"],
    )
    op = {"op": "edit", "path": "a.py", "edits": {"old": "f(a,b)", "new": "g(a,b)"}}
    done = agent.use("transaction", ops=[op])
    assert path.read_text().startswith("def g(a, b):\n")
    assert done["warnings"] == [
        "edit 1 matched line 1 apart from whitespace; the file's own whitespace is kept"
    ]


def test_elided_content_is_refused_and_can_be_forced(agent: Agent, workspace: Path) -> None:
    agent.use("safe_write", path="a.py", content="".join(f"x{i} = {i}\n" for i in range(30)))
    elided = "x0 = 1\n# ... rest of the file unchanged ...\n"
    refused = agent.use("safe_write", path="a.py", content=elided, mode="overwrite")
    assert (refused["error"], refused["context"]["evidence"][0]["line"]) == ("blocked", 2)
    agent.use("safe_write", path="a.py", draft=refused["draft"], mode="overwrite", force=True)
    assert (workspace / "a.py").read_text() == elided


def test_a_transaction_is_all_or_nothing(agent: Agent, workspace: Path) -> None:
    (workspace / "old.txt").write_text("kept\n")
    ops = [
        {"op": "write", "path": "new.txt", "content": "1\n"},
        {"op": "move", "path": "old.txt", "to": "moved.txt"},
    ]
    refused = agent.use("transaction", ops=[*ops, {"op": "delete", "path": "absent"}])
    assert (refused["error"], refused["context"]["operation"]) == ("not_found", 2)
    assert sorted(p.name for p in workspace.iterdir()) == ["old.txt"]
    agent.use(
        "transaction", ops=[*ops, {"op": "edit", "path": "new.txt", "edits": [{"old": "1", "new": "2"}]}]
    )
    assert (workspace / "new.txt").read_text() == "2\n"
    assert (workspace / "moved.txt").read_text() == "kept\n"
    agent.use("undo")
    assert sorted(p.name for p in workspace.iterdir()) == ["old.txt"]


def test_a_patch_in_a_transaction_changes_every_file_it_names(agent: Agent, workspace: Path) -> None:
    (workspace / "a").write_text("1\n2\n3\n")
    patch = (
        "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+new\n"
    )
    agent.use("transaction", ops=[{"op": "patch", "path": "a", "patch": patch}])
    assert (workspace / "a").read_text() == "1\ntwo\n3\n"
    assert (workspace / "b").read_text() == "new\n"


def test_an_undo_keeps_later_edits_and_a_collision_changes_nothing(agent: Agent, workspace: Path) -> None:
    agent.use("safe_write", path="a", content="1\n2\n3\n4\n5\n")
    first = agent.use("edit", path="a", edits=[{"old": "1", "new": "one"}])
    agent.use("edit", path="a", edits=[{"old": "5", "new": "five"}])
    agent.use("undo", journal_id=first["journal_id"])
    assert (workspace / "a").read_text() == "1\n2\n3\n4\nfive\n"
    (workspace / "a").write_text("1\n2\n3\n4\nFIVE!\n")
    collided = agent.use("undo")
    assert collided["reverted"] == []
    assert collided["conflicts"][0]["reason"] == "later_edit"
    assert (workspace / "a").read_text() == "1\n2\n3\n4\nFIVE!\n"


def test_undo_and_redo_walk_back_and_forth(agent: Agent, workspace: Path) -> None:
    for number in range(4):
        agent.use("safe_write", path="a", content=f"{number}\n", mode="overwrite")
    agent.use("undo", n=2)
    assert (workspace / "a").read_text() == "1\n"
    agent.use("undo", redo=True)
    assert (workspace / "a").read_text() == "3\n"
    agent.use("undo", dry_run=True)
    assert (workspace / "a").read_text() == "3\n"


def test_any_version_can_be_seen_compared_and_restored(agent: Agent, workspace: Path) -> None:
    first = agent.use("safe_write", path="a", content="one\n")
    agent.use("safe_write", path="a", content="two\n", mode="overwrite")
    versions = agent.use("history", path="a")["versions"]
    assert [v["sha256"] for v in versions] == [sha(b"two\n"), sha(b"one\n")]
    assert "-one\n+two\n" in agent.use("diff", path="a")["diff"]
    agent.use("restore", path="a", journal_id=first["journal_id"])
    assert (workspace / "a").read_text() == "one\n"


def test_an_idempotency_key_is_done_once(agent: Agent) -> None:
    first = agent.use("safe_write", path="a", content="1", mode="append", idempotency_key="k")
    again = agent.use("safe_write", path="a", content="1", mode="append", idempotency_key="k")
    assert (again["journal_id"], again["deduplicated"]) == (first["journal_id"], True)
    other = agent.use("safe_write", path="a", content="2", mode="append", idempotency_key="k")
    assert other["error"] == "conflict"


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", ".git/config", ".perdure/journal.db", "a\u202eb"])
def test_an_escape_is_refused_in_words(agent: Agent, path: str) -> None:
    refused = agent.use("safe_write", path=path, content="x")
    assert refused["error"] in ("policy_violation", "invalid_input")


@contextmanager
def stuck(workspace: Path, tmp_path: Path, fault: str) -> Iterator[tuple[Agent, int, Path]]:
    """A second write that is held at a point: who asked for it, its id, and what holds it while it exists."""
    marker = tmp_path / "stuck"
    agent = Agent(workspace, tmp_path / "home", PERDURE_FAULT=f"{fault}=pause:{marker}@2")
    try:
        agent.use("safe_write", path="first", content="1")
        identity = agent.client.start_call("safe_write", {"path": "second", "content": "2"})
        while not marker.exists():
            time.sleep(0.005)
        yield agent, identity, marker
    finally:
        agent.client.kill()


@pytest.mark.parametrize(
    "fault",
    [
        "commit.planning",
        "write.open_temp",
        "write.sealed",
        "commit.decided",
        "write.before_create",
        "commit.landed",
    ],
)
def test_a_disk_that_hangs_in_a_write_keeps_no_read_waiting(
    workspace: Path, tmp_path: Path, fault: str
) -> None:
    """Wherever the write is stuck: the thread that reads may be the one that is."""
    with stuck(workspace, tmp_path, fault) as (agent, identity, marker):
        for _ in range(3):
            assert agent.use("read", path="first")["content"] == "1"
        assert agent.client.answers.get(identity) is None
        marker.unlink()
        assert not agent.client.wait(identity, 30)["result"].get("isError")
        assert (workspace / "second").read_text() == "2"


@pytest.mark.parametrize(
    "fault", ["commit.planning", "commit.decided", "write.temp_created", "write.created", "commit.landed"]
)
def test_a_worker_killed_at_a_fault_point_leaves_the_write_done_exactly_once(
    workspace: Path, tmp_path: Path, fault: str
) -> None:
    """Every new worker dies once more at the same point, until the call is settled; then one without the fault."""
    with stuck(workspace, tmp_path, fault) as (agent, identity, marker):
        os.kill(agent.worker_pid(), signal.SIGKILL)
        marker.unlink()
        answer = agent.client.wait(identity, 30)
        assert not answer["result"].get("isError"), answer
        assert (workspace / "second").read_text() == "2"
        entries = agent.use("journal_tail", filter_path="second")["entries"]
        assert len(entries) == 1
        assert [p.name for p in workspace.iterdir() if p.name.startswith(".perdure-")] == []

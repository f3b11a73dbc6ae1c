"""What the version before left is taken over without loss (fixtures made by `python -m harness.previous_version`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.kernel.stage import Stage, tool
from harness.previous_version import LARGE, unpack
from perdure.cli.main import main
from perdure.protocol.mounts import MountSpec
from perdure.testing.raw_client import RawClient

FIXTURES = Path(__file__).parents[1] / "fixtures" / "previous_version"


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    unpack(FIXTURES / "stores.tar.gz", tmp_path)
    (tmp_path / "home").mkdir()
    for variable, value in (("HOME", "home"), ("WORKSPACE", "workspace"), ("STATE", "state.db")):
        monkeypatch.setenv(f"PERDURE_{variable}", str(tmp_path / value))
    return tmp_path


@pytest.fixture
def client(stores: Path) -> Iterator[RawClient]:
    with RawClient([sys.executable, "-P", "-m", "perdure", "worker"]) as client:
        client.initialize()
        yield client


def use(client: RawClient, tool_name: str, /, **arguments: Any) -> dict[str, Any]:
    result = client.call(tool_name, {**arguments, "render": "json", "detail": "full"})["result"]
    assert not result.get("isError"), result["structuredContent"]
    answer: dict[str, Any] = result["structuredContent"]
    return answer


def test_a_write_that_was_decided_before_the_kill_is_recovered(client: RawClient, stores: Path) -> None:
    assert use(client, "read", path="killed.txt")["content"] == "decided before the kill\n"
    assert (stores / "workspace" / "killed.txt").read_text() == "decided before the kill\n"


def test_every_change_can_be_taken_back(client: RawClient, stores: Path) -> None:
    rows = len(use(client, "journal_tail", n=100)["entries"])
    use(client, "undo", n=rows, session="any")
    left = {path.name for path in (stores / "workspace").iterdir()}
    assert left == set()
    use(client, "undo", n=rows, redo=True, session="any")
    assert (stores / "workspace" / "moved.txt").read_text() == "one\n2\nthree\n"
    assert not (stores / "workspace" / "gone.txt").exists()


def test_a_replaced_content_is_restored_from_its_blob(client: RawClient, stores: Path) -> None:
    first = use(client, "history", path="large.txt")["versions"][-1]["journal_id"]
    use(client, "restore", path="large.txt", journal_id=first)
    assert (stores / "workspace" / "large.txt").read_text() == LARGE


@pytest.mark.thorough
def test_drafts_chunks_scratch_checkpoints_and_handoffs_are_there(client: RawClient, stores: Path) -> None:
    use(client, "chunk_compose", session="chunks", output_path="composed.txt")
    assert (stores / "workspace" / "composed.txt").read_text() == "first chunk\nsecond chunk\n"
    assert use(client, "scratch_get", label="scratch")["content"] == "scratched\n"
    assert use(client, "checkpoint_read", name="before")["data"] == {"step": 3}
    assert use(client, "handoff_read")["envelope"]["task_id"] == "upgrade"
    draft = (stores / "draft").read_text()
    use(client, "safe_write", path="from_draft.txt", draft=draft)
    assert (stores / "workspace" / "from_draft.txt").read_text() == "refused: the file exists\n"


def test_verify_finds_nothing_wrong_and_analytics_count_every_row(
    client: RawClient, stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = use(client, "journal_tail", n=100)["entries"]
    analytics = use(client, "analytics")
    assert analytics["total_writes"] == len(rows)
    assert analytics["total_bytes_written"] == sum(row["bytes"] for row in rows)
    client.close()
    assert main(["verify"]) == 0, capsys.readouterr()


def test_state_keeps_versions_revisions_history_and_leases(client: RawClient) -> None:
    current = use(client, "get_state", key="a")
    assert (current["value"], current["version"]) == ('{"n": 2}', 2)
    assert [v["version"] for v in use(client, "state_history", key="a")["versions"]] == [2, 1]
    again = use(client, "set_state", key="deleted", value="2")
    assert again["version"] > 1
    assert again["revision"] > current["revision"]
    held = client.call("lease", {"action": "acquire", "name": "build", "owner": "next", "render": "json"})
    assert held["result"]["structuredContent"]["status"] in ("held", "ok")
    assert use(client, "lease", action="status", name="build")["owner"]


def test_a_kernel_snapshot_is_taken_up_with_its_calls() -> None:
    stage = Stage(MountSpec("w", builtin=True))
    stage.kernel.restore((FIXTURES / "kernel.snapshot").read_bytes())
    stage.spawned.append(("w", 2))
    stage.serve("w", [tool("get", "convergent"), tool("put", "probe"), tool("once", "never")])
    assert [sent.params["arguments"]["n"] for sent in stage.got("w", "tools/call")] == [1, 3]
    (probe,) = [sent for sent in stage.sent if sent.message.get("method", "").endswith("/probe")]
    stage.reply(probe, {"status": "absent"})
    assert [sent.params["arguments"]["n"] for sent in stage.got("w", "tools/call")] == [1, 3, 2]

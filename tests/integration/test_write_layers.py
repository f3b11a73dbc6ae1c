"""Chunks, scratchpad and checkpoints through the whole host."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiled_rules import put_compiled_rules
from harness.store_location import store_of
from perdure.testing.raw_client import RawClient

Result = dict[str, Any]


class Agent:
    """A client of `perdure run` on one workspace."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.store = store_of(self.workspace, folder / "home")
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self.workspace)]
        put_compiled_rules(folder / "home")
        environ = {**os.environ, "PERDURE_HOME": str(folder / "home"), **env}
        self.client = RawClient([*command, "--render", "json", "--detail", "full"], env=environ)
        self.client.initialize()

    def use(self, tool: str, **arguments: Any) -> Result:
        response = self.client.call(tool, arguments, timeout=30)
        assert "result" in response, response
        found: Result = response["result"]["structuredContent"]
        assert found["ok"] is not bool(response["result"].get("isError"))
        return found

    def refused(self, tool: str, **arguments: Any) -> tuple[str, str]:
        found = self.use(tool, **arguments)
        assert found["ok"] is False, found
        return found["error"], found["context"]["reason"]

    def kill_worker(self) -> None:
        health = self.use("health")
        os.kill(next(m["pid"] for m in health["mounts"] if m["name"] == "perdure"), signal.SIGKILL)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    found = Agent(tmp_path)
    yield found
    found.client.kill()


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# --- chunks ------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_pieces_survive_the_worker_and_become_one_file(agent: Agent) -> None:
    pieces = [f"piece {number} " * 20_000 for number in range(1, 6)]
    for number, piece in enumerate(pieces, 1):
        kept = agent.use("chunk_append", session="big", content=piece, total_expected=5)
        assert (kept["index"], kept["sha256"], kept["bytes"]) == (number, sha(piece), len(piece))
        agent.kill_worker()
    preview = agent.use("chunk_preview", session="big")
    assert (preview["chunk_count"], preview["total_bytes"]) == (5, sum(map(len, pieces)))
    done = agent.use("chunk_compose", session="big", output_path="d/out.txt", cleanup=True)
    assert (agent.workspace / "d/out.txt").read_text() == "".join(pieces)
    assert (done["sha256"], done["chunk_count"], done["cleaned_up"]) == (sha("".join(pieces)), 5, True)
    assert done["chunk_hashes"] == [sha(piece) for piece in pieces]
    assert agent.use("chunk_status", session="big")["exists"] is False
    assert agent.use("undo")["reverted"][0]["path"] == "d/out.txt"


def test_gaps_are_named_and_nothing_is_composed(agent: Agent) -> None:
    for index in (1, 3, 1200):
        agent.use("chunk_write", session="s", index=index, content=str(index))
    status = agent.use("chunk_status", session="s")
    assert status["present_indices"] == [1, 3, 1200]
    assert status["missing_indices"][:3] == [2, 4, 5]
    refusal = agent.use("chunk_compose", session="s", output_path="out")
    assert (refusal["error"], refusal["context"]["reason"]) == ("stale_precondition", "non_contiguous_chunks")
    assert refusal["context"]["missing"][:2] == [2, 4]
    assert not (agent.workspace / "out").exists()


def test_more_chunks_than_expected_are_no_file(agent: Agent) -> None:
    agent.use("chunk_append", session="s", content="a", total_expected=2)
    agent.use("chunk_append", session="s", content="b")
    agent.use("chunk_write", session="s", index=1, content="a", total_expected=1)
    assert agent.refused("chunk_compose", session="s", output_path="o")[1] == "chunk_count_mismatch"
    agent.use("chunk_write", session="s", index=4, content="d", total_expected=4)
    assert agent.refused("chunk_compose", session="s", output_path="o")[1] == "non_contiguous_chunks"


def test_a_chunk_beyond_its_own_total_is_refused_and_leaves_no_session(agent: Agent) -> None:
    said = agent.refused("chunk_write", session="s", index=7, content="g", total_expected=3)
    assert said == ("invalid_input", "index_exceeds_total_expected")
    assert agent.use("chunk_status", session="s")["exists"] is False


def test_a_chunk_sent_again_replaces_and_a_key_makes_an_append_happen_once(agent: Agent) -> None:
    agent.use("chunk_write", session="s", index=1, content="old")
    agent.use("chunk_write", session="s", index=1, content="new")
    first = agent.use("chunk_append", session="s", content="x", idempotency_key="k")
    again = agent.use("chunk_append", session="s", content="x", idempotency_key="k")
    assert (first["index"], again["index"], again["deduplicated"]) == (2, 2, True)
    agent.use("chunk_compose", session="s", output_path="o", separator="-")
    assert (agent.workspace / "o").read_text() == "new-x"
    assert agent.refused("chunk_append", session="s", content="y", idempotency_key="k")[1] == "key_reused"


def test_compose_takes_a_precondition_and_the_stale_guard(agent: Agent) -> None:
    agent.use("chunk_append", session="s", content="composed")
    agent.use("safe_write", path="o", content="mine")
    (agent.workspace / "o").write_text("of another program")
    assert agent.refused("chunk_compose", session="s", output_path="o", mode="overwrite") == (
        "stale_precondition",
        "changed_since_seen",
    )
    assert agent.refused("chunk_compose", session="s", output_path="o", expected_prev_sha256=sha("mine")) == (
        "stale_precondition",
        "hash_mismatch",
    )
    agent.use("chunk_compose", session="s", output_path="o", expected_prev_sha256=sha("of another program"))
    assert (agent.workspace / "o").read_text() == "composed"


def test_a_writer_can_find_out_where_to_go_on(agent: Agent) -> None:
    for piece in ("one", "two", "three"):
        agent.use("chunk_append", session="s", content=piece)
    have = {"": 1, sha("one"): 2, sha("onetwo"): 3, sha("onetwothree"): 4, sha("other"): None}
    for known, place in have.items():
        assert agent.use("chunk_status", session="s", have_sha256=known)["resume_at"] == place


def test_sessions_can_be_listed_and_dropped(agent: Agent) -> None:
    agent.use("chunk_append", session="b", content="x")
    agent.use("chunk_append", session="a", content="xy")
    listed = agent.use("chunk_status")["sessions"]
    assert [(one["session"], one["chunks"], one["bytes"]) for one in listed] == [("a", 1, 2), ("b", 1, 1)]
    assert agent.use("chunk_reset", session="a") == {
        "ok": True,
        "session": "a",
        "removed": 1,
        "existed": True,
    }
    assert agent.use("chunk_reset", session="a")["existed"] is False
    assert agent.refused("chunk_compose", session="a", output_path="o") == ("not_found", "session_not_found")
    assert agent.refused("chunk_append", session="../a", content="x") == ("invalid_input", "bad_session")
    assert agent.refused("chunk_write", session="a", index=0, content="x")[0] == "invalid_input"


def test_a_damaged_chunk_is_named(agent: Agent) -> None:
    agent.use("chunk_append", session="s", content="a" * 200_000)
    (blob,) = (agent.store / "blobs").iterdir()
    blob.write_bytes(b"b" * 200_000)
    refusal = agent.use("chunk_compose", session="s", output_path="o")
    assert (refusal["error"], refusal["context"]["reason"]) == ("write_corruption", "chunk_damaged")
    assert refusal["context"]["index"] == 1


# --- scratchpad --------------------------------------------------------------------------------------------


def test_scratch_is_kept_by_hash_and_label_and_never_in_the_tree(agent: Agent) -> None:
    kept = agent.use("scratch_put", content="token abc", label="evidence", notes="from the log")
    assert (kept["sha256"], kept["deduped"], kept["bytes"]) == (sha("token abc"), False, 9)
    assert agent.use("scratch_put", content="token abc")["deduped"] is True
    entry = agent.use("scratch_ref", label="evidence")
    assert (entry["entry"]["sha256"], entry["entry"]["notes"]) == (kept["sha256"], "from the log")
    assert (entry["alias_count"], entry["bin_exists"]) == (1, True)
    assert "token" not in str(agent.use("scratch_ref"))
    agent.kill_worker()
    assert agent.use("scratch_get", sha256=kept["sha256"])["content"] == "token abc"
    assert list(agent.workspace.iterdir()) == []
    modes = {path.stat().st_mode & 0o077 for path in agent.store.iterdir() if path.suffix == ".db"}
    assert modes == {0}


def test_binary_scratch_is_exact_and_large(agent: Agent) -> None:
    data = os.urandom(300_000)
    kept = agent.use("scratch_put", content=base64.b64encode(data).decode(), encoding="base64")
    assert kept["sha256"] == sha(data)
    got = agent.use("scratch_get", sha256=kept["sha256"], encoding="base64")
    assert base64.b64decode(got["content"]) == data
    assert agent.refused("scratch_get", sha256=kept["sha256"])[1] == "not_valid_utf8"


def test_what_is_dropped_is_gone_with_its_labels(agent: Agent) -> None:
    agent.use("scratch_put", content="x", label="a")
    agent.use("scratch_put", content="x", label="b")
    assert agent.use("scratch_drop", label="a")["dropped"] is True
    for name in ({"label": "a"}, {"label": "b"}, {"sha256": sha("x")}):
        assert agent.refused("scratch_ref", **name)[0] == "not_found"
    assert agent.refused("scratch_drop")[0] == "invalid_input"
    assert agent.refused("scratch_ref", sha256="ABC")[0] == "invalid_input"


def test_reading_scratch_back_can_be_forbidden(tmp_path: Path) -> None:
    agent = Agent(tmp_path, RW_SCRATCH_DISABLE_GET="1")
    kept = agent.use("scratch_put", content="x")
    refusal = agent.use("scratch_get", sha256=kept["sha256"])
    assert (refusal["error"], refusal["reason_hint"]) == ("policy_violation", "permission")
    agent.client.kill()


# --- checkpoints -------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_exactly(agent: Agent) -> None:
    data = {"step": 3, "big": 2**70, "text": "ü\u2028", "nested": [None, True, 1.5]}
    saved = agent.use("checkpoint", name="task", data=data, ttl="P7D")
    assert (saved["format"], saved["ttl"], saved["overwritten"]) == ("json", "P7D", False)
    agent.kill_worker()
    assert agent.use("checkpoint_read", name="task")["data"] == data
    assert agent.use("checkpoint", name="task", data=[1])["overwritten"] is True
    listed = agent.use("checkpoint_list")
    assert (listed["count"], listed["checkpoints"][0]["name"]) == (1, "task")
    assert agent.refused("checkpoint_read", name="none") == ("not_found", "checkpoint_not_found")
    for bad in ("forever", "P", "PT", "P0D", "-P1D", "p1d"):
        assert agent.refused("checkpoint", name="x", data=1, ttl=bad) == ("invalid_input", "bad_ttl")
    assert agent.refused("checkpoint", name="a/b", data=1) == ("invalid_input", "bad_name")


@pytest.mark.thorough
def test_what_has_ended_is_not_there(agent: Agent) -> None:
    agent.use("checkpoint", name="short", data=1, ttl="PT1S")
    agent.use("checkpoint", name="long", data=1, ttl="permanent")
    import time

    time.sleep(1.1)
    assert agent.refused("checkpoint_read", name="short")[0] == "not_found"
    assert [one["name"] for one in agent.use("checkpoint_list")["checkpoints"]] == ["long"]


def test_cleanup_touches_only_its_own_session(tmp_path: Path) -> None:
    first, second = Agent(tmp_path), Agent(tmp_path)
    first.use("checkpoint", name="mine", data=1)
    second.use("checkpoint", name="theirs", data=1)
    second.use("checkpoint", name="kept", data=1, ttl="permanent")
    cleaned = first.use("checkpoint_cleanup")
    assert (cleaned["removed"], cleaned["kept"]) == (
        [{"name": "mine", "ttl": "session", "reason": "session_cleanup"}],
        2,
    )
    assert second.use("checkpoint_read", name="theirs")["data"] == 1
    assert first.use("checkpoint_cleanup", all_sessions=True)["kept"] == 1
    for one in (first, second):
        one.client.kill()


def test_dotted_names_work_for_all_layers(agent: Agent) -> None:
    assert agent.use("rw.chunk_append", session="s", content="x")["index"] == 1
    assert agent.use("rw.scratch_put", content="x")["bytes"] == 1
    assert agent.use("rw.checkpoint", name="n", data=1)["name"] == "n"

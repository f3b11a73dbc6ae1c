"""Clients written for resilient-write: its dotted names, arguments and success keys, over stdio in json."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.raw_client import RawClient

Result = dict[str, Any]
OAT = "sk-ant-oat01-" + "QvUvUpr4fLgPT0kejk4rWRdZx8Yb2Nc6Mv1Ba9Sd3Fg5Hj7Kl0" + "PoIuYtReWq-AA"
WRITE = {"path", "abs_path", "sha256", "bytes", "mode_applied", "journal_id", "wrote_at"}
CHUNK = {"session", "index", "chunk_path", "sha256", "bytes", "journal_id"}
SAVED = {
    "name",
    "format",
    "ttl",
    "checkpoint_path",
    "sha256",
    "bytes",
    "journal_id",
    "created_at",
    "updated_at",
    "chunked",
}
ENVELOPE = {
    "task_id": "t", "status": "partial", "agent": "a", "summary": "s", "next_steps": ["n"], "last_good_state": [],
}  # fmt: skip
# Tool, arguments, the keys its documentation promises besides `ok`.
CALLS: list[tuple[str, Result, set[str]]] = [
    ("risk_score", {"content": "x", "language_hint": "text", "target_path": "a"},
     {"score", "verdict", "bytes", "line_count", "max_line_len", "detected_patterns", "suggested_actions", "language_hint",
      "target_path"}),
    ("safe_write", {"path": "a.txt", "content": "one\n"}, WRITE),
    ("safe_write", {"path": "a.txt", "content": "two\n", "mode": "append", "classify_reject_at": "low"}, WRITE),
    ("safe_replace", {"path": "a.txt", "old_string": "two", "new_string": "2", "count": 1}, WRITE | {"replacements"}),
    ("chunk_write", {"session": "s", "index": 1, "content": "a", "total_expected": 2}, CHUNK),
    ("chunk_append", {"session": "s", "content": "b"}, CHUNK),
    ("chunk_status", {"session": "s"}, {"session", "exists", "total_expected", "present_indices", "chunk_dir"}),
    ("chunk_preview", {"session": "s", "separator": "-"},
     {"session", "chunk_count", "chunk_hashes", "total_bytes", "content", "preview"}),
    ("chunk_compose", {"session": "s", "output_path": "c.txt", "separator": "-", "cleanup": True},
     {"session", "output_path", "sha256", "bytes", "chunk_count", "chunk_hashes", "journal_id", "cleaned_up"}),
    ("chunk_reset", {"session": "s"}, {"session", "removed", "existed"}),
    ("scratch_put", {"content": "x", "label": "l", "content_type": "text/plain", "notes": "n"},
     {"sha256", "scratch_path", "bytes", "deduped", "journal_id", "warnings"}),
    ("scratch_ref", {"label": "l"}, {"entry", "scratch_path", "bin_exists", "alias_count"}),
    ("scratch_get", {"sha256": hashlib.sha256(b"x").hexdigest(), "encoding": "base64"},
     {"sha256", "content", "encoding", "bytes", "content_type", "label"}),
    ("handoff_write", {"envelope": ENVELOPE, "body": "b", "archive": True},
     {"handoff_path", "sha256", "bytes", "journal_id", "drift_warnings"}),
    ("handoff_read", {}, {"handoff_path", "envelope", "body", "drift_warnings"}),
    ("journal_tail", {"n": 5, "filter_path": "a.txt", "filter_mode": "append"}, {"entries"}),
    ("validate", {"content": "{", "format_hint": "json", "target_path": "a.json"}, {"valid", "format", "errors", "summary"}),
    ("analytics", {"since": "2020-01-01T00:00:00Z"},
     {"total_writes", "unique_paths", "total_bytes_written", "by_mode", "by_caller", "timeline", "hot_paths", "sessions",
      "checkpoints", "write_velocity", "period"}),
    ("checkpoint", {"name": "c", "data": {"a": [1]}, "format": "yaml", "ttl": "P1D"}, SAVED),
    ("checkpoint_read", {"name": "c"}, {"name", "format", "ttl", "created_at", "updated_at", "data", "sha256", "bytes"}),
    ("checkpoint_list", {}, {"checkpoints", "count"}),
    ("checkpoint_cleanup", {"include_session": True}, {"removed", "kept"}),
]  # fmt: skip


class Client:
    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        command = [sys.executable, "-P", "-m", "perdure", "run", "--render", "json"]
        environ = {**os.environ, "PERDURE_HOME": str(folder / "home"), "RW_WORKSPACE": str(self.workspace)}
        self.raw = RawClient(command, env=environ, cwd=self.workspace)
        self.raw.initialize()

    def use(self, tool: str, **arguments: Any) -> Result:
        response = self.raw.call(f"rw.{tool}", arguments, timeout=60)
        found: Result = response["result"]["structuredContent"]
        return found


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    found = Client(tmp_path)
    yield found
    found.raw.kill()


def test_every_tool_answers_with_its_documented_keys(client: Client) -> None:
    for tool, arguments, keys in CALLS:
        found = client.use(tool, **arguments)
        assert found["ok"] is True, (tool, found)
        assert keys - set(found) == set(), tool
    assert (client.workspace / "a.txt").read_text() == "one\n2\n"
    assert (client.workspace / "c.txt").read_text() == "a-b"


def test_what_was_done_in_sessions_and_checkpoints_is_counted(client: Client) -> None:
    for content in ("a", "b", "c"):
        client.use("chunk_append", session="s", content=content)
    client.use("chunk_compose", session="s", output_path="c.txt")
    client.use("safe_write", path="later.txt", content="a later write is no compose\n")
    for name in ("one", "one", "two"):
        client.use("checkpoint", name=name, data=1)
    found = client.use("analytics")
    assert (found["sessions"]["s"]["chunk_writes"], found["sessions"]["s"]["composes"]) == (3, 1)
    assert set(found["sessions"]["s"]) >= {"first_write", "last_write", "duration_seconds"}
    assert found["checkpoints"] == {"total_saves": 3, "overwrites": 1, "by_name": {"one": 2, "two": 1}}
    assert client.use("analytics", session_filter="other")["sessions"] == {}


def test_a_token_is_scored_refused_and_written_redacted(client: Client) -> None:
    """Its first scenario: what was a filter's silence is a verdict with a line."""
    text = "line\n" * 411 + f"authorization: Bearer {OAT}\n"
    scored = client.use("risk_score", content=text, redact=True)
    assert scored["verdict"] == "high"
    assert [(one["kind"], one["line"]) for one in scored["detected_patterns"]] == [("api_key", 412)]
    assert scored["suggested_actions"] == [{"action": "redact", "targets": ["api_key"]}]
    refused = client.use("safe_write", path="report.tex", content=text, classify=True)
    assert (refused["error"], refused["reason_hint"], refused["suggested_action"]) == (
        "blocked", "content_filter", "redact",
    )  # fmt: skip
    assert (refused["detected_patterns"], refused["retry_budget"]) == (["api_key"], 3)
    assert client.use("safe_write", path="report.tex", content=scored["redacted"], classify=True)["ok"]


def test_chunks_sent_out_of_order_are_composed_once_complete(client: Client) -> None:
    """Its third scenario."""
    for index in (1, 3):
        client.use(
            "chunk_write", session="report_appendix", index=index, content=f"part {index}\n", total_expected=3
        )
    refused = client.use("chunk_compose", session="report_appendix", output_path="r.tex")
    assert (refused["error"], refused["context"]["missing"]) == ("stale_precondition", [2])
    client.use("chunk_write", session="report_appendix", index=2, content="part 2\n")
    assert client.use("chunk_compose", session="report_appendix", output_path="r.tex")["chunk_count"] == 3
    assert (client.workspace / "r.tex").read_text() == "part 1\npart 2\npart 3\n"


def test_the_same_rejected_content_counts_down_to_a_refusal(client: Client) -> None:
    """Its sixth scenario, which it documents and does not do."""
    answers = [client.use("safe_write", path="r.tex", content=f"x {OAT}\n") for _ in range(5)]
    assert [(one["error"], one["retry_budget"]) for one in answers] == [
        ("blocked", 3), ("blocked", 2), ("blocked", 1), ("blocked", 0), ("quota_exceeded", 0),
    ]  # fmt: skip

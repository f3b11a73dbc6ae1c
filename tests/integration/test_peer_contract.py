"""Clients written for resilient-write: its dotted names, arguments and success keys, over stdio in json."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiled_rules import put_compiled_rules
from harness.corpora.secret_corpus import filled
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
        put_compiled_rules(folder / "home")
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


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """For tests that leave nothing behind which another one would see."""
    found = Client(tmp_path_factory.mktemp("peer"))
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


def secret(form: str) -> str:
    return filled(random.Random(form), form)


# A text, its family, and the rule that finds it.
FOUND = [
    (secret("sk-ant-oat01-%w44"), "api_key", "anthropic_oat"),
    (secret("sk-ant-api03-%w44"), "api_key", "anthropic_api"),
    (secret("sk-proj-%w44"), "api_key", "openai_project_key"),
    (secret("sk-%n40"), "api_key", "openai_key"),
    (secret("pub%x32"), "api_key", "datadog_client_key"),
    (secret("client-%n36"), "api_key", "statsig_client_key"),
    (secret("AKIA%u16"), "api_key", "aws_access_key_id"),
    (secret("authorization: Bearer %n40"), "api_key", "bearer_token"),
    *((secret(f"{mark}_%n36"), "github_pat", mark) for mark in ("gho", "ghp", "ghu", "ghs", "ghr")),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqYXkifQ." + secret("%w40"), "jwt", "jwt_triplet"),
    ("-----BEGIN RSA PRIVATE KEY-----\n" + secret("%n64\n%n64"), "pem_block", "pem_private_key"),
    (secret("aws_secret_access_key = %b40"), "aws_secret", "aws_secret_access_key"),
    ("contact: alice@example.com", "pii", "email"),
    ("ssn: 123-45-6789", "pii", "ssn"),
    (secret("%n90") * 30, "binary_hint", "long_base64_blob"),
]


def test_a_pattern_has_its_family_as_kind_and_its_rule_as_pattern(shared: Client) -> None:
    for text, kind, pattern in FOUND:
        found = shared.use("risk_score", content=f"first\n{text}\n")["detected_patterns"]
        assert (kind, pattern, 2) in [(one["kind"], one["pattern"], one["line"]) for one in found], pattern
        assert {one["kind"] for one in found} <= {kind, "size"}, pattern


def test_a_lone_address_or_number_is_low_and_blocks_where_that_is_asked_for(shared: Client) -> None:
    for number, text in enumerate(("write to grace@navy.mil\n", "ssn: 524-71-8832\n")):
        scored = shared.use("risk_score", content=text)
        assert ([one["kind"] for one in scored["detected_patterns"]], scored["verdict"]) == (["pii"], "low")
        refused = shared.use("safe_write", path=f"{number}.md", content=text, classify_reject_at="low")
        assert (refused["error"], refused["detected_patterns"]) == ("blocked", ["pii"])
        assert shared.use("safe_write", path=f"{number}.md", content=text)["ok"]


def test_a_handoff_names_what_it_lacks(client: Client) -> None:
    refused = client.use("handoff_write", envelope={"task_id": "t", "agent": "a", "next_steps": []})
    assert (refused["error"], refused["reason_hint"]) == ("policy_violation", "encoding")
    assert refused["context"]["missing_fields"] == ["status", "summary"]
    assert not (client.workspace / "HANDOFF.md").exists()


def test_a_handoff_tells_drift_and_checkpoints_as_they_are(client: Client) -> None:
    envelope = {**ENVELOPE, "last_good_state": [{"path": "ghost.txt", "sha256": "0" * 64}]}
    written = client.use("handoff_write", envelope=envelope)
    for found in (written, client.use("handoff_read")):
        assert found["drift_warnings"] == [{"path": "ghost.txt", "reason": "missing"}]
        assert "checkpoint_refs" not in found
    client.use("checkpoint", name="here", data=1)
    assert [one["name"] for one in client.use("handoff_read")["checkpoint_refs"]] == ["here"]


def test_a_handoff_that_contains_itself_is_refused(client: Client) -> None:
    for front in ("a: &x [*x]", "a: &x {b: {c: *x}}", "<<: &x {<<: *x}"):
        (client.workspace / "HANDOFF.md").write_text(f"---\n{front}\ntask_id: t\n---\n")
        refused = client.use("handoff_read")
        assert (refused["error"], refused["context"]["reason"]) == ("invalid_input", "refers_to_itself"), (
            front
        )
    # What stands there is no handoff: another one may take its place.
    assert client.use("handoff_write", envelope=ENVELOPE)["ok"]


def test_chunks_beyond_or_short_of_their_total_are_refused(shared: Client) -> None:
    beyond = shared.use("chunk_write", session="s", index=5, content="x", total_expected=3)
    assert beyond["context"]["reason"] == "index_exceeds_total_expected"
    shared.use("chunk_write", session="s", index=1, content="a", total_expected=3)
    beyond = shared.use("chunk_write", session="s", index=4, content="x")
    context = beyond["context"]
    assert (context["reason"], context["index"], context["total_expected"]) == (
        "index_exceeds_total_expected", 4, 3,
    )  # fmt: skip
    shared.use("chunk_write", session="s", index=2, content="b")
    for tool, more in (("chunk_compose", {"output_path": "o"}), ("chunk_preview", {})):
        refused = shared.use(tool, session="s", **more)
        assert refused["error"] == "stale_precondition"
        context = refused["context"]
        assert (context["reason"], context["have"], context["total_expected"]) == (
            "chunk_count_mismatch", 2, 3,
        )  # fmt: skip
        assert context["missing"] == [3]
    shared.use("chunk_append", session="s", content="c")
    assert shared.use("chunk_append", session="s", content="d")["context"]["reason"] == (
        "index_exceeds_total_expected"
    )
    assert shared.use("chunk_compose", session="s", output_path="o")["ok"]
    assert (shared.workspace / "o").read_text() == "abc"


def test_a_replacement_that_finds_too_few_or_none_says_how_many(shared: Client) -> None:
    shared.use("safe_write", path="a.txt", content="x x y\n")
    few = shared.use("safe_replace", path="a.txt", old_string="x", new_string="z", count=3)
    assert few["error"] == "stale_precondition"
    context = few["context"]
    assert (context["reason"], context["expected_count"], context["actual_count"]) == (
        "insufficient_matches", 3, 2,
    )  # fmt: skip
    many = shared.use("safe_replace", path="a.txt", old_string="x", new_string="z", count=1)["context"]
    assert (many["reason"], many["expected_count"], many["actual_count"]) == ("ambiguous_match", 1, 2)
    zero = shared.use("safe_replace", path="a.txt", old_string="x", new_string="z", count=0)
    assert zero["context"]["reason"] == "count_cannot_be_zero"


def test_a_label_finds_the_latest_and_counts_every_entry_of_that_label(shared: Client) -> None:
    for content in ("one", "two", "two"):
        shared.use("scratch_put", content=content, label="shared")
    shared.use("scratch_put", content="two", label="other")
    found = shared.use("scratch_ref", label="shared")
    assert (found["entry"]["sha256"], found["entry"]["label"], found["alias_count"]) == (
        hashlib.sha256(b"two").hexdigest(), "shared", 2,
    )  # fmt: skip
    assert shared.use("scratch_ref", sha256=hashlib.sha256(b"two").hexdigest())["alias_count"] == 2
    assert shared.use("scratch_ref", sha256=hashlib.sha256(b"one").hexdigest())["alias_count"] == 1
    assert shared.use("scratch_ref", label="other")["alias_count"] == 1
    shared.use("scratch_drop", sha256=hashlib.sha256(b"two").hexdigest())
    left = shared.use("scratch_ref", label="shared")
    assert (left["entry"]["sha256"], left["alias_count"]) == (hashlib.sha256(b"one").hexdigest(), 1)


def test_a_large_checkpoint_says_that_it_is_chunked(shared: Client) -> None:
    rows = [{"id": number, "text": "€" * 400} for number in range(1000)]
    assert shared.use("checkpoint", name="large", data=rows)["chunked"] is True
    assert shared.use("checkpoint_read", name="large")["data"] == rows
    assert shared.use("checkpoint", name="small", data=rows[:1])["chunked"] is False


def test_a_failure_names_the_tool_as_it_was_called(shared: Client) -> None:
    assert shared.use("handoff_read")["context"]["tool"] == "rw.handoff_read"
    plain = shared.raw.call("handoff_read", {"detail": "full"}, timeout=60)["result"]["structuredContent"]
    assert plain["context"]["tool"] == "handoff_read"


def test_the_error_schema_names_its_version(shared: Client) -> None:
    read = shared.raw.request("resources/read", {"uri": "perdure://schema/error"}, timeout=60)
    schema = json.loads(read["result"]["contents"][0]["text"])
    assert schema["properties"]["schema_version"]["const"] == shared.use("handoff_read")["schema_version"]


LATEX = [
    ("{hello", ["brace"]),
    ("hello}", ["brace"]),
    ("\\begin{itemize}\n\\item a\n", ["itemize", "never closed"]),
    ("\\begin{itemize}\n\\item a\n\\end{enumerate}\n", ["mismatch", "itemize", "enumerate"]),
    ("\\begin{document}\nHello\n\\end{document}\n", ["documentclass"]),
    ("\\being{document}\nHello\n", ["\\being", "\\begin"]),
]


def test_latex_messages_say_what_people_search_for(shared: Client) -> None:
    for content, words in LATEX:
        found = shared.use("validate", content=content, format_hint="latex")
        messages = [one["message"] for one in found["errors"]]
        assert any(all(word in message for word in words) for message in messages), (content, messages)

"""`risk_score`, and the risk check on every way to write: precise rules refuse, generic ones warn."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from write_tools import Tools

from harness.store_location import store_of

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5"
OTHER = "ghp_" + "zY2xW4vU6tS8rQ1pO3nM5lK7jI9hG2fE4dC6"
KEY = (
    "-----BEGIN PRIVATE KEY-----\n"
    + base64.b64encode(bytes(range(240))).decode()
    + "\n-----END PRIVATE KEY-----\n"
)
GENERIC = "db_password = 'Tr0ub4dor&3xyzzy9Q'\n"
TEXT = f"name: x\ntoken: {TOKEN}\n"

Result = dict[str, Any]


def with_policy(tmp_path: Path, text: str) -> Tools:
    (tmp_path / "rules.yaml").write_text(text)
    (tmp_path / "ws2").mkdir()
    return Tools(tmp_path / "ws2", policy=tmp_path / "rules.yaml")


def blocked(answer: tuple[bool, Result]) -> Result:
    is_done, found = answer
    assert not is_done, found
    assert (found["error"], found["reason_hint"], found["suggested_action"]) == (
        "blocked",
        "content_filter",
        "redact",
    ), found
    for secret in (TOKEN, OTHER):
        assert secret not in repr(found)
    return found


def test_the_score_says_what_and_where(tools: Tools) -> None:
    _, found = tools.use("risk_score", {"content": TEXT, "target_path": "a.yml", "language_hint": "yaml"})
    assert (found["verdict"], found["line_count"], found["bytes"]) == ("high", 2, len(TEXT))
    (place,) = found["detected_patterns"]
    assert (place["kind"], place["line"], place["column"]) == ("github_pat", 2, 8)
    assert place["match"].startswith("ghp_")
    assert TOKEN not in repr(found)
    assert found["suggested_actions"] == [{"action": "redact", "targets": ["github_pat"]}]
    assert (found["language_hint"], found["target_path"]) == ("yaml", "a.yml")
    assert "redacted" not in found
    _, found = tools.use("rw.risk_score", {"content": TEXT, "redact": True})
    assert found["redacted"] == f"name: x\ntoken: [REDACTED:{place['pattern']}]\n"
    _, found = tools.use("risk_score", {"content": "a" * 3000 + "\n"})
    assert [(one["kind"], one["value"]) for one in found["detected_patterns"] if one["kind"] == "size"] == [
        ("size", 3000)
    ]
    assert tools.use("risk_score", {})[1]["context"]["reason"] == "content_or_draft"


@pytest.mark.parametrize("secret", [TOKEN, KEY], ids=["token", "key"])
def test_no_way_to_write_lets_a_secret_through(tools: Tools, secret: str) -> None:
    tools.use("safe_write", {"path": "a.txt", "content": "here\n"})
    tools.use("chunk_write", {"session": "s", "index": 1, "content": secret[:10]})
    tools.use("chunk_write", {"session": "s", "index": 2, "content": secret[10:]})
    lines = secret.strip().split("\n")
    patch = f"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,{len(lines)} @@\n-here\n" + "".join(
        f"+{line}\n" for line in lines
    )
    envelope = {
        "task_id": "t", "status": "partial", "agent": "a", "summary": secret, "next_steps": [],
        "last_good_state": [],
    }  # fmt: skip
    ways: list[tuple[str, Result]] = [
        ("safe_write", {"path": "b.txt", "content": secret}),
        ("safe_write", {"path": "b.txt", "content": base64.b64encode(secret.encode()).decode(), "encoding": "base64"}),
        ("safe_write", {"path": "b.txt", "content": secret, "encoding": "utf-16"}),
        ("safe_write", {"path": "a.txt", "content": secret, "mode": "append"}),
        ("safe_write", {"path": "a.txt", "content": secret, "mode": "overwrite", "force": True}),
        ("edit", {"path": "a.txt", "edits": [{"old": "here", "new": secret}]}),
        ("safe_replace", {"path": "a.txt", "old_string": "here", "new_string": secret}),
        ("transaction", {"ops": [{"op": "write", "path": "b.txt", "content": secret}]}),
        ("transaction", {"ops": [{"op": "edit", "path": "a.txt", "edits": [{"old": "here", "new": secret}]}]}),
        ("transaction", {"ops": [{"op": "patch", "path": "a.txt", "patch": patch}]}),
        ("chunk_compose", {"session": "s", "output_path": "b.txt"}),
        ("handoff_write", {"envelope": envelope}),
        ("handoff_write", {"envelope": {**envelope, "summary": "x", "blockers": [secret]}}),
        ("handoff_write", {"envelope": {**envelope, "summary": "x"}, "body": secret}),
    ]  # fmt: skip
    for name, arguments in ways:
        found = blocked(tools.use(name, arguments))
        assert found["draft"], name
        assert secret not in repr(found), name
        assert found["context"]["detected"][0]["line"] >= 1
    assert sorted(p.name for p in tools.workspace.iterdir()) == ["a.txt"]
    assert (tools.workspace / "a.txt").read_text() == "here\n"


def test_a_blocked_content_is_kept_and_its_tries_are_counted(tools: Tools) -> None:
    answers = [tools.use("safe_write", {"path": "a", "content": TEXT})[1] for _ in range(5)]
    assert [one["retry_budget"] for one in answers] == [3, 2, 1, 0, 0]
    assert [one["error"] for one in answers] == ["blocked"] * 4 + ["quota_exceeded"]
    assert len({one["draft"] for one in answers}) == 1
    draft = answers[0]["draft"]
    assert answers[0]["detected_patterns"] == ["github_pat"]
    _, found = tools.use("risk_score", {"draft": draft, "redact": True})
    assert TOKEN not in repr(found)
    assert tools.use("safe_write", {"path": "a", "content": found["redacted"]})[0]
    is_done, found = tools.use("safe_write", {"path": "b", "draft": draft, "classify": False})
    assert is_done
    assert (tools.workspace / "b").read_text() == TEXT


@pytest.mark.parametrize("lines", [1, 30_000, 900_000])
def test_a_secret_is_found_however_much_stands_around_it(tools: Tools, lines: int) -> None:
    """Small, looked at while it is stored, and in windows."""
    padding = "a line of text\n" * lines
    found = blocked(tools.use("safe_write", {"path": "a", "content": padding + TEXT + padding}))
    assert found["draft"]
    assert not (tools.workspace / "a").exists()
    is_done, written = tools.use("safe_write", {"path": "a", "content": padding})
    assert is_done, written


def test_whoever_is_refused_a_large_text_is_told_its_exact_measures(tools: Tools) -> None:
    content = f"{TEXT}{'z' * 2_500}\n{'y' * 4_000}\n" + "plain line\n" * 40_000
    found = blocked(tools.use("safe_write", {"path": "a", "content": content}))
    told = {one["pattern"]: one["value"] for one in found["context"]["detected"] if one["kind"] == "size"}
    assert told == {"big_100kb": len(content), "long_line": 4_000, "many_lines": 40_004}


def test_a_redacted_version_is_kept_too_and_written_without_being_sent(tools: Tools) -> None:
    found = blocked(tools.use("safe_write", {"path": "a", "content": TEXT}))
    is_done, written = tools.use("safe_write", {"path": "a", "draft": found["context"]["redacted_draft"]})
    assert is_done, written
    assert (tools.workspace / "a").read_text().startswith("name: x\ntoken: [REDACTED:")


def test_a_draft_of_a_blocked_edit_is_the_file_as_it_would_be(tools: Tools) -> None:
    tools.use("safe_write", {"path": "a", "content": "one\ntwo\n"})
    found = blocked(tools.use("edit", {"path": "a", "edits": [{"old": "two", "new": TOKEN}]}))
    arguments = {"path": "b", "draft": found["draft"], "classify": False}
    assert tools.use("safe_write", arguments)[0]
    assert (tools.workspace / "b").read_text() == f"one\n{TOKEN}\n"


def test_generic_rules_warn_and_do_not_block(tools: Tools) -> None:
    is_done, found = tools.use("safe_write", {"path": "a", "content": f"x = 1\n{GENERIC}"})
    assert is_done
    (warning,) = found["warnings"]
    assert "risk medium" in warning
    assert "line 2" in warning
    assert "Tr0ub4dor" not in repr(found)
    found = blocked(
        tools.use("safe_write", {"path": "b", "content": GENERIC, "classify_reject_at": "medium"})
    )
    assert found["context"]["classify_reject_at"] == "medium"
    is_done, found = tools.use("edit", {"path": "a", "edits": [{"old": "x = 1", "new": "x = 2"}]})
    assert (is_done, found["warnings"]) == (True, [])


def test_a_secret_that_is_there_already_does_not_hinder_an_edit(tools: Tools) -> None:
    (tools.workspace / "old.env").write_text(f"A=1\nTOKEN={TOKEN}\n")
    assert tools.use("edit", {"path": "old.env", "edits": [{"old": "A=1", "new": "A=2"}]})[0]
    blocked(tools.use("edit", {"path": "old.env", "edits": [{"old": "A=2", "new": f"B={OTHER}"}]}))
    assert tools.use("transaction", {"ops": [{"op": "move", "path": "old.env", "to": "new.env"}]})[0]
    assert tools.use("undo", {"n": 2})[0]
    assert (tools.workspace / "old.env").read_text() == f"A=1\nTOKEN={TOKEN}\n"


def test_a_secret_sent_in_two_halves_is_found_when_they_meet(tools: Tools) -> None:
    tools.use("safe_write", {"path": "a", "content": f"k = {TOKEN[:15]}"})
    blocked(tools.use("safe_write", {"path": "a", "content": TOKEN[15:] + "\n", "mode": "append"}))


def test_a_large_file_is_checked_outside_the_lock(tools: Tools) -> None:
    (tools.workspace / "big").write_text("a line of text\n" * 100_000 + "end\n")
    found = blocked(tools.use("edit", {"path": "big", "edits": [{"old": "end", "new": TOKEN}]}))
    assert found["context"]["detected"][0]["line"] == 100_001
    assert tools.use("edit", {"path": "big", "edits": [{"old": "end", "new": "fin"}]})[0]
    assert (tools.workspace / "big").read_text().endswith("fin\n")


def test_no_secret_gets_into_the_journal_by_a_name(tools: Tools) -> None:
    found = blocked(tools.use("safe_write", {"path": f"keys/{TOKEN}.txt", "content": "x"}))
    assert found["context"]["reason"] == "secret_in_name"
    ops = [{"op": "write", "path": "a", "content": "x"}]
    blocked(tools.use("transaction", {"ops": ops, "message": f"rotated {TOKEN}"}))
    blocked(tools.use("transaction", {"ops": [{**ops[0], "op": "move", "to": TOKEN}]}))
    tools.use("safe_write", {"path": "a", "content": TEXT})
    tools.close()
    kept = b"".join(
        path.read_bytes()
        for path in store_of(tools.workspace, tools.workspace.parent / "home").glob("journal.db*")
    )
    # The draft itself is kept there, in full; no name and no row has it.
    assert kept.count(TOKEN.encode()) == kept.count(TEXT.encode())


def test_what_goes_to_the_scratchpad_is_not_looked_at(tools: Tools) -> None:
    assert tools.use("scratch_put", {"content": TEXT, "label": "evidence"})[0]


def test_a_policy_changes_what_is_refused(tmp_path: Path, tools: Tools) -> None:
    own = with_policy(
        tmp_path,
        "disable_families: [github_pat]\nmax_bytes: 50\n"
        "extend_patterns: {internal: [{name: ticket, regex: 'ACME-[0-9]{6}', weight: 0.9}]}\n",
    )
    assert own.use("safe_write", {"path": "a", "content": TOKEN})[0]
    found = blocked(own.use("safe_write", {"path": "b", "content": "see ACME-123456"}))
    assert found["detected_patterns"] == ["internal"]
    is_done, found = own.use("safe_write", {"path": "b", "content": "x" * 51})
    assert (is_done, found["error"], found["reason_hint"]) == (False, "quota_exceeded", "size_limit")
    assert (found["suggested_action"], bool(found["draft"])) == ("split", True)
    own.use("safe_write", {"path": "c", "content": "x" * 49})
    assert (
        own.use("safe_write", {"path": "c", "content": "xx", "mode": "append"})[1]["error"]
        == "quota_exceeded"
    )
    own.close()


@pytest.mark.parametrize(("word", "is_written"), [("always", False), ("false", True)])
def test_a_policy_can_settle_whether_it_is_checked(
    tmp_path: Path, tools: Tools, word: str, is_written: bool
) -> None:
    own = with_policy(tmp_path, f"classify: {word}\n")
    # What the call says counts for nothing here.
    arguments = {"path": "a", "content": TEXT, "classify": is_written}
    assert own.use("safe_write", arguments)[0] is is_written
    envelope = {
        "task_id": "t", "status": "partial", "agent": "a", "summary": TOKEN, "next_steps": [],
        "last_good_state": [],
    }  # fmt: skip
    blocked(own.use("handoff_write", {"envelope": envelope}))
    own.close()

"""What an agent reads of a call that worked: one line where one line says it, and a way on from whatever is cut."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.write_tools import Tools

CONCISE = {"render": "porcelain", "detail": "concise"}


class Agent:
    """A session with the write tools that reads porcelain."""

    def __init__(self, tools: Tools, name: str = "claude-code") -> None:
        self.tools = tools
        self.name = name

    def read(self, tool: str, /, **arguments: Any) -> list[str]:
        is_ok, text = self.tools.show(tool, {**CONCISE, **arguments}, self.name)
        assert is_ok, text
        return text.split("\n")

    def line(self, tool: str, /, **arguments: Any) -> str:
        (line,) = self.read(tool, **arguments)
        return line

    def use(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        is_ok, payload = self.tools.use(tool, arguments, self.name)
        assert is_ok, payload
        return payload

    def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        is_ok, payload = self.tools.use(tool, arguments, self.name)
        assert not is_ok, payload
        context: dict[str, Any] = payload["context"]
        return context

    def follow(self, line: str) -> list[str]:
        """Make the call that a line of a result names."""
        _, _, call = line.partition(": ")
        tool, *pairs = call.split("   (")[0].split(" ")
        return self.read(tool, **dict(pair.split("=", 1) for pair in pairs))


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    tools = Tools(workspace)
    yield Agent(tools)
    tools.close()


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


X = sha("x\n")[:12]


# --- writing --------------------------------------------------------------------------------------------------


def test_a_write_is_one_line_with_twelve_digits_of_its_hash(agent: Agent) -> None:
    assert (
        agent.line("safe_write", path="a.py", content="x\n") == f"wrote a.py  2 bytes  sha256 {X}  journal 1"
    )
    assert agent.line("safe_write", path="b", content="x").startswith("wrote b  1 byte  ")


def test_a_write_of_the_same_content_is_said_to_change_nothing(agent: Agent) -> None:
    agent.use("safe_write", path="a.py", content="x\n")
    line = agent.line("safe_write", path="a.py", content="x\n", mode="overwrite")
    assert line == f"unchanged a.py  2 bytes  sha256 {X}  journal 2  the content was already the same"


def test_a_repeated_call_is_said_not_to_run_again(agent: Agent) -> None:
    call = {"path": "a.py", "content": "x\n", "idempotency_key": "k"}
    agent.use("safe_write", **call)
    assert agent.line("safe_write", **call).endswith("journal 1  not done again: same idempotency_key")


def test_a_transaction_of_one_file_is_one_line_and_of_two_a_table(agent: Agent) -> None:
    one = agent.line("transaction", ops=[{"op": "write", "path": "a", "content": "x"}])
    assert re.fullmatch(r"transaction \w+  write a  1 byte  sha256 [0-9a-f]{12}  journal 1", one)
    two = agent.read("transaction", ops=[{"op": "write", "path": name, "content": "x"} for name in "bc"])
    assert two[0].endswith("  2 changes")
    assert two[1:] == [
        "path | op | sha256 | bytes | journal_id",
        f"b | write | {sha('x')[:12]} | 1 | 2",
        f"c | write | {sha('x')[:12]} | 1 | 3",
    ]


@pytest.mark.parametrize("digits", [8, 12, 64])
def test_the_hash_that_a_result_shows_is_accepted_as_a_precondition(agent: Agent, digits: int) -> None:
    def given(text: str) -> str:
        return sha(text)[:digits]

    agent.use("safe_write", path="a", content="1\n")
    agent.use("safe_write", path="a", content="2\n", mode="overwrite", expected_prev_sha256=given("1\n"))
    agent.use("edit", path="a", edits=[{"old": "2", "new": "3"}], expected_prev_sha256=given("2\n"))
    agent.use(
        "transaction",
        ops=[{"op": "write", "path": "a", "content": "4\n", "mode": "overwrite"}],
        expected={"a": given("3\n")},
    )
    agent.use("restore", path="a", journal_id="1", expected_prev_sha256=given("4\n"))
    assert (agent.tools.workspace / "a").read_text() == "1\n"
    refused = agent.refused(
        "safe_write", path="a", content="5", mode="overwrite", expected_prev_sha256=given("4\n")
    )
    assert refused["reason"] == "hash_mismatch"


@pytest.mark.parametrize("given", ["73cb38", "ABCDEF0123", "x" * 64, "0" * 65])
def test_a_hash_that_is_too_short_or_none_is_refused_in_words(agent: Agent, given: str) -> None:
    agent.use("safe_write", path="a", content="1")
    refused = agent.refused("safe_write", path="a", content="2", mode="overwrite", expected_prev_sha256=given)
    assert refused["reason"] == "bad_sha256"
    assert "first 8 of the 64 lower-case hex digits" in refused["message"]


def test_pieces_are_resumed_by_the_digits_that_are_shown(agent: Agent) -> None:
    for piece in ("a", "b"):
        agent.use("chunk_append", session="s", content=piece)
    assert agent.use("chunk_status", session="s", have_sha256=sha("a")[:12])["resume_at"] == 2
    assert agent.refused("chunk_status", session="s", have_sha256="abc")["reason"] == "bad_sha256"


def test_a_move_is_one_line(agent: Agent) -> None:
    agent.use("safe_write", path="app.log", content="x")
    line = agent.line("transaction", ops=[{"op": "move", "path": "app.log", "to": "log/app.log"}])
    assert re.fullmatch(
        r"transaction \w+  move app.log -> log/app.log  1 byte  sha256 \w{12}  journal 2", line
    )
    shown = agent.read("journal_tail")
    assert shown[0] == "2 entries"
    assert shown[3].split(" | ")[2:4] == ["app.log -> log/app.log", "move"]
    assert agent.read("journal_tail", filter_path="app.log")[3].split(" | ")[2] == "app.log -> log/app.log"
    entries = agent.use("journal_tail")["entries"]
    assert [(entry["path"], entry.get("moved_from"), entry.get("moved_to")) for entry in entries[1:]] == [
        ("log/app.log", "app.log", None),
        ("app.log", None, "log/app.log"),
    ]


def test_an_empty_hash_still_means_that_there_must_be_no_file(agent: Agent) -> None:
    agent.use("safe_write", path="a", content="1", expected_prev_sha256="")
    assert (
        agent.refused("safe_write", path="a", content="2", expected_prev_sha256="")["reason"]
        == "hash_mismatch"
    )
    missing = agent.refused("safe_write", path="b", content="2", expected_prev_sha256="0" * 8)
    assert missing["reason"] == "file_not_found"


# --- reading --------------------------------------------------------------------------------------------------


def test_a_read_says_in_one_line_what_it_is_and_then_the_content(agent: Agent) -> None:
    content = "x\ny\n"
    agent.use("safe_write", path="a.py", content=content)
    assert agent.read("read", path="a.py") == [
        f"a.py  lines 1-2 of 2  4 bytes  sha256 {sha(content)[:12]}",
        "content: 2 lines",
        "~~~",
        "x",
        "y",
        "~~~",
    ]


def test_what_is_unusual_about_a_file_is_in_the_line(agent: Agent) -> None:
    (agent.tools.workspace / "dos.txt").write_bytes(b"a\r\nb\r\n")
    (agent.tools.workspace / "empty").write_bytes(b"")
    assert agent.read("read", path="dos.txt")[0].endswith("  line endings crlf")
    assert agent.line("read", path="empty") == f"empty  empty file  0 bytes  sha256 {sha('')[:12]}"


def test_a_reader_who_follows_next_gets_the_whole_file(agent: Agent) -> None:
    lines = [f"line {n}" for n in range(1, 30)]
    agent.use("safe_write", path="a b.txt", content="\n".join(lines) + "\n")
    shown = agent.read("read", path="a b.txt", max_bytes=60)
    assert shown[-1] == "next: read path='a b.txt' start_line=9"
    content, start = shown[3:-2], 9
    while start <= len(lines):
        shown = agent.read("read", path="a b.txt", max_bytes=60, start_line=start)
        *body, end = shown[3:]
        content += [line for line in body if line != "~~~"]
        start = int(end.rpartition("=")[2]) if end.startswith("next: ") else len(lines) + 1
    assert content == lines


def test_a_line_longer_than_the_limit_can_be_read_too(agent: Agent) -> None:
    agent.use("safe_write", path="long", content="x" * 500 + "\nend\n")
    cut = agent.read("read", path="long", max_bytes=100)
    assert "  cut" in cut[0]
    whole = agent.follow(cut[-1])
    assert (whole[1], len(whole[3])) == ("content: 1 line", 500)


def test_a_validation_is_a_sentence_without_quotes(agent: Agent) -> None:
    assert agent.line("validate", content="{}", format_hint="json") == "valid JSON"


def test_a_risk_score_says_whether_safe_write_would_accept_it(agent: Agent) -> None:
    assert agent.line("risk_score", content="x = 1") == (
        "safe  score 0.0 of 1  0 places  5 bytes  safe_write would write it"
    )
    token = "ghp_" + "1aB2cD3eF4gH5iJ6kL7mN8oP9qR0sT1uV2wX"
    shown = agent.read("risk_score", content=f"token = '{token}'")
    assert "  1 place  " in shown[0]
    assert shown[0].endswith("safe_write would refuse it; redact=true gives a copy it accepts")
    assert "\\u2026" not in "\n".join(shown)
    assert "…" in shown[2]
    assert agent.refused("safe_write", path="t", content=f"token = '{token}'")["reason"] == "risk"


def test_more_entries_are_had_with_the_cursor_that_the_last_line_gives(agent: Agent) -> None:
    for n in range(3):
        agent.use("safe_write", path=f"f{n}", content="x")
    shown = agent.read("journal_tail", n=2)
    assert shown[0] == "2 entries"
    assert [row.split(" | ")[2] for row in shown[2:4]] == ["f1", "f2"]
    assert shown[-1] == "older entries: give cursor=2"
    older = agent.read("journal_tail", n=2, cursor="2")
    assert older[0] == "1 entry"
    assert len(older) == 3
    assert agent.read("history", path="f0")[0] == "f0  1 version"


# --- undo -----------------------------------------------------------------------------------------------------


def test_an_undo_names_the_change_its_author_and_how_to_redo_it(agent: Agent) -> None:
    agent.use("safe_write", path="src/a.py", content="old\n")
    agent.use("safe_write", path="src/a.py", content="new\n", mode="overwrite")
    preview = agent.read("undo", dry_run=True)
    assert preview == [
        "would undo overwrite of src/a.py (journal 2, by claude-code, this session)",
        "nothing was changed; to do it: undo journal_id=2",
    ]
    shown = agent.follow(preview[1].removeprefix("nothing was changed; "))
    assert shown == [
        "undid overwrite of src/a.py (journal 2, by claude-code, this session)",
        "redo: undo redo=true journal_id=3",
    ]
    assert (agent.tools.workspace / "src/a.py").read_text() == "old\n"
    assert agent.follow(shown[1]) == ["redid src/a.py (takes back undo 3, by claude-code, this session)"]
    assert (agent.tools.workspace / "src/a.py").read_text() == "new\n"


def test_an_undo_says_whose_change_it_took_back_and_which_later_edits_it_kept(agent: Agent) -> None:
    other = Agent(agent.tools, "cursor")
    other.use("safe_write", path="a", content="1\n2\n3\n4\n5\n")
    other.use("edit", path="a", edits=[{"old": "1", "new": "one"}])
    file = agent.tools.workspace / "a"
    file.write_text(file.read_text() + "mine\n")
    shown = agent.read("undo", session="any")
    assert shown[0] == "undid edit of a (journal 2, by cursor, another session)"
    assert shown[1] == "kept: later edits of a"
    assert file.read_text() == "1\n2\n3\n4\n5\nmine\n"


def test_an_undo_that_collides_says_what_is_in_the_way_and_how_to_see_it(agent: Agent) -> None:
    other = Agent(agent.tools, "cursor")
    agent.use("safe_write", path="a", content="1\n")
    agent.use("edit", path="a", edits=[{"old": "1", "new": "2"}])
    other.use("edit", path="a", edits=[{"old": "2", "new": "3"}])
    shown = agent.read("undo")
    assert shown == [
        "nothing undone: a was changed afterwards in the same lines (by cursor)",
        "next: diff path=a from=2   (or history path=a, then restore)",
    ]
    assert "-2\n+3" in "\n".join(agent.follow(shown[1]))


def test_an_undo_of_a_move_is_one_change(agent: Agent) -> None:
    agent.use("safe_write", path="a", content="x")
    agent.use("transaction", ops=[{"op": "move", "path": "a", "to": "b"}])
    shown = agent.read("undo")
    assert shown[0] == "undid move of a -> b (journal 2, by claude-code, this session)"
    assert len(shown) == 2
    assert agent.follow(shown[1])[0].startswith("redid ")
    assert (agent.tools.workspace / "b").read_text() == "x"


def test_an_undo_of_several_changes_is_a_table(agent: Agent) -> None:
    for name in "ab":
        agent.use("safe_write", path=name, content="x")
    shown = agent.read("undo", n=2)
    assert shown[0] == "undid 2 changes"
    assert [row.split(" | ")[:4] for row in shown[2:4]] == [
        ["b", "2", "write", "claude-code"],
        ["a", "1", "write", "claude-code"],
    ]


# --- kept material --------------------------------------------------------------------------------------------


def test_scratch_entries_are_found_by_the_digits_that_are_shown(agent: Agent) -> None:
    shown = sha("raw")[:12]
    assert agent.line("scratch_put", content="raw") == f"kept {shown}  3 bytes"
    assert agent.line("scratch_put", content="raw").endswith("it was kept already")
    assert agent.use("scratch_get", sha256=shown)["content"] == "raw"
    assert agent.use("scratch_ref", sha256=shown[:8])["entry"]["sha256"] == sha("raw")
    assert agent.read("scratch_ref")[0] == "1 entry"
    assert agent.line("scratch_drop", sha256=shown) == f"dropped {shown}"
    assert agent.refused("scratch_get", sha256=shown)["reason"] == "not_found"
    assert agent.refused("scratch_get", sha256=shown[:7])["reason"] == "not_a_lowercase_sha256_hex"


def test_digits_that_two_scratch_entries_share_are_refused(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.surfaces.write import scratch

    class Same:
        def __init__(self, data: bytes) -> None:
            self.digits = "12345678" + f"{len(data):056x}"

        def hexdigest(self) -> str:
            return self.digits

    monkeypatch.setattr(scratch.hashlib, "sha256", Same)
    for content in ("a", "bb"):
        agent.use("scratch_put", content=content)
    refused = agent.refused("scratch_get", sha256="12345678")
    assert refused["reason"] == "ambiguous_sha256"
    assert "2 scratch entries begin with 12345678; give more digits" in refused["message"]


def test_a_checkpoint_comes_back_whole_and_says_how_long_it_is_kept(agent: Agent) -> None:
    data = {f"file{n}": {"done": n % 2 == 0, "notes": "x" * 40} for n in range(30)}
    saved = agent.line("checkpoint", name="progress", data=data)
    assert re.fullmatch(
        r"saved checkpoint progress  [\d,]+ bytes  kept until \S+Z, also after this session", saved
    )
    shown = "\n".join(agent.read("checkpoint_read", name="progress"))
    assert all(f'"{name}"' in shown for name in data)
    assert "more characters" not in shown
    again = agent.line("checkpoint", name="progress", data=1, ttl="permanent")
    assert again == "replaced checkpoint progress  1 byte  permanent"
    assert agent.read("checkpoint_list")[0] == "1 checkpoint"


def test_a_checkpoint_for_the_session_outlives_the_session_by_a_week(agent: Agent) -> None:
    from datetime import datetime, timedelta

    saved = agent.use("checkpoint", name="progress", data=1)
    times = [datetime.fromisoformat(saved[name]) for name in ("updated_at", "expires_at")]
    assert times[1] - times[0] == timedelta(days=7)
    successor = Agent(agent.tools, "next-session")
    successor.use("checkpoint_cleanup")
    assert successor.use("checkpoint_read", name="progress")["data"] == 1


# --- handoff --------------------------------------------------------------------------------------------------


def test_a_short_handoff_is_written_at_the_first_try_and_read_back(agent: Agent) -> None:
    agent.use("safe_write", path="a.py", content="x\n")
    envelope = {
        "task_id": "port",
        "status": "in_progress",
        "summary": "Half is ported.",
        "last_good_state": ["a.py"],
    }
    shown = agent.read("handoff_write", envelope=envelope)
    assert re.fullmatch(r"handoff HANDOFF.md  \d+ bytes  sha256 [0-9a-f]{12}  journal 2", shown[0])
    assert shown[1:] == ["warnings: status in_progress was written as partial"]
    written = agent.use("handoff_read")["envelope"]
    assert {key: written[key] for key in ("status", "agent", "next_steps", "last_good_state")} == {
        "status": "partial",
        "agent": "claude-code",
        "next_steps": [],
        "last_good_state": [{"path": "a.py", "sha256": sha("x\n")}],
    }
    agent.use("handoff_write", envelope=written)
    again = agent.use("handoff_read")["envelope"]
    volatile = ("updated_at", "journal_head")
    assert {k: v for k, v in again.items() if k not in volatile} == {
        k: v for k, v in written.items() if k not in volatile
    }


def test_a_handoff_is_read_whole_with_its_summary_first_and_drift_in_words(agent: Agent) -> None:
    for name in ("same", "changed", "gone"):
        agent.use("safe_write", path=name, content=name)
    envelope = {
        "task_id": "port",
        "status": "partial",
        "agent": "first",
        "summary": "Invoices are half ported. " * 20,
        "next_steps": ["Port invoices.py", "Run the tests"],
        "last_good_state": ["same", {"path": "changed"}, {"path": "gone", "sha256": sha("gone")[:12]}],
        "steps": [
            {"id": "1", "description": "read it", "status": "complete"},
            {"id": "2", "description": "port it", "depends_on": ["1"]},
        ],
        "blockers": ["no database"],
        "ticket": "X-1",
    }
    agent.use("handoff_write", envelope=envelope, body="Notes.\nMore.\n")
    (agent.tools.workspace / "changed").write_text("other")
    (agent.tools.workspace / "gone").unlink()
    shown = Agent(agent.tools, "second").read("handoff_read")
    assert re.fullmatch(
        r"handoff HANDOFF.md  task port  partial  by first  \S+Z  sha256 [0-9a-f]{12}", shown[0]
    )
    assert shown[1] == (
        f"drift_warnings: changed has changed since (now {sha('other')[:12]}) | gone is missing"
    )
    assert shown[2] == "ready_steps: 2"
    body = shown[shown.index("~~~") + 1 :]
    assert body == [
        envelope["summary"],
        "Steps:",
        "  [x] 1: read it",
        "  [ ] 2: port it (after 1)",
        "Next steps:",
        "  - Port invoices.py",
        "  - Run the tests",
        "Blockers:",
        "  - no database",
        "Last good state:",
        *(f"  {name} {sha(name)[:12]}" for name in ("same", "changed", "gone")),
        "ticket: X-1",
        "~~~",
        "body: 2 lines",
        "~~~",
        "Notes.",
        "More.",
        "~~~",
    ]


def test_a_handoff_names_the_refused_payloads_of_its_own_session_only(agent: Agent) -> None:
    agent.use("safe_write", path="a", content="1")
    other = Agent(agent.tools, "cursor")
    drafts = [
        one.tools.use("safe_write", {"path": "a", "content": one.name}, one.name)[1]["draft"]
        for one in (other, agent)
    ]
    agent.use("handoff_write", envelope={"task_id": "t", "status": "partial", "summary": "s"})
    assert agent.use("handoff_read")["envelope"]["open_drafts"] == drafts[1:]
    assert f"Refused payloads, kept as drafts: {drafts[1]}" in agent.read("handoff_read")


def test_every_fault_of_a_handoff_is_named_at_once_with_its_choices(agent: Agent) -> None:
    refused = agent.refused(
        "handoff_write",
        envelope={
            "task_id": "",
            "status": "nearly",
            "summary": "s",
            "next_steps": "go on",
            "last_good_state": [{"path": "a", "sha256": "short"}, 7],
            "steps": [{"description": 1, "depends_on": "x", "status": "begun"}],
        },
    )
    assert refused["reason"] == "bad_handoff"
    faults = (
        "task_id is empty",
        'status "nearly" is not one of complete, partial, blocked, handed_off',
        "next_steps must be a list",
        "last_good_state[0].sha256 must be 8 to 64 lower-case hex digits (without it the hash is computed)",
        "last_good_state[1] must be a path, or an object with path and sha256",
        "steps[0].id is missing",
        "steps[0].description must be a text",
        "steps[0].depends_on must be a list of step ids",
        'steps[0].status "begun" is not one of pending, in_progress, done, blocked',
    )
    assert refused["message"].endswith("; ".join(faults) + ".")
    missing = agent.refused("handoff_write", envelope={"status": "nearly"})
    assert missing["missing_fields"] == ["task_id", "summary"]
    assert missing["message"].endswith(
        'a handoff needs task_id, summary; status "nearly" is not one of complete, partial, blocked, handed_off.'
    )
    empty = agent.refused("handoff_write", envelope={})
    assert "status (complete, partial, blocked, handed_off)" in empty["message"]


@pytest.mark.parametrize(
    ("path", "words"),
    [("nosuch.py", "nosuch.py does not exist"), ("../x", "../x is not a file in the workspace")],
)
def test_a_hash_that_cannot_be_computed_is_refused_in_words(agent: Agent, path: str, words: str) -> None:
    envelope = {"task_id": "t", "status": "partial", "summary": "s", "last_good_state": [path]}
    assert words in agent.refused("handoff_write", envelope=envelope)["message"]


def test_a_handoff_of_another_tool_or_an_earlier_version_is_read(agent: Agent) -> None:
    file = agent.tools.workspace / "HANDOFF.md"
    file.write_text(
        "---\ntask_id: t\nstatus: in_progress\nagent: other\nsummary: by hand\nnext_steps: [go on]\n"
        "last_good_state:\n- nosuch.py\nopen_drafts: [d_1, d_2]\ncreated: 2026-01-01\n---\nbody\n"
    )
    payload = agent.use("handoff_read")
    assert payload["envelope"]["status"] == "in_progress"
    assert payload["drift_warnings"] == [{"path": "nosuch.py", "reason": "missing"}]
    file.write_text("---\ntask_id: t\nstatus: complete\nsummary: short\n---\n")
    assert agent.read("handoff_read")[0].startswith("handoff HANDOFF.md  task t  complete  sha256 ")


# --- the rule -------------------------------------------------------------------------------------------------


def test_no_result_of_any_tool_counts_one_in_the_plural(agent: Agent) -> None:
    calls: list[Callable[[], list[str]]] = [
        lambda: agent.read("safe_write", path="a", content="x"),
        lambda: agent.read("edit", path="a", edits=[{"old": "x", "new": "y"}]),
        lambda: agent.read("analytics"),
        lambda: agent.read("chunk_append", session="s", content="z"),
        lambda: agent.read("chunk_status", session="s"),
        lambda: agent.read("chunk_status"),
        lambda: agent.read("chunk_preview", session="s"),
        lambda: agent.read("chunk_compose", session="s", output_path="c"),
        lambda: agent.read("chunk_reset", session="s"),
        lambda: agent.read("checkpoint", name="n", data=1),
        lambda: agent.read("checkpoint_list"),
        lambda: agent.read("checkpoint_cleanup"),
        lambda: agent.read("history", path="c"),
        lambda: agent.read("diff", path="a"),
    ]
    text = "\n".join("\n".join(call()) for call in calls)
    assert re.findall(r"(?<![\d,.-])1 [a-z]+s\b", text) == []

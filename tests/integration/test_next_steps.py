"""An agent that reads nothing of an error but its `next:` line gets from each refusal to success, or to the question that
only the user can answer.

The agent calls what the line says. Where the line says `key=...`, it takes the value from the case, as a model would write
it; where it says `(then ...)`, it makes that call after the first. It repeats this until a call succeeds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from perdure.protocol.next_step import FILL, Question, ToolCall, parse, parse_following
from perdure.testing.raw_client import RawClient

Arguments = dict[str, Any]
MOST_STEPS = 4
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5"
HANDOFF = {
    "task_id": "t1",
    "status": "partial",
    "agent": "a",
    "summary": "s",
    "next_steps": ["go on"],
    "last_good_state": [],
}


class Case(NamedTuple):
    """`{}` in any text is the folder of the case. `ends` is the tool that succeeds at last, or the question."""

    reason: str
    tool: str
    arguments: Arguments
    fill: Mapping[str, Any] = MappingProxyType({})
    files: Mapping[str, str] = MappingProxyType({})
    before: tuple[tuple[str, Arguments], ...] = ()
    outside: Mapping[str, str] = MappingProxyType({})
    """What another program writes after the calls before."""
    ends: str = ""
    after: dict[str, str] | None = None


CASES = [
    # --- arguments
    Case(
        "missing_argument", "safe_write", {"content": "x"}, {"path": "{}/a", "content": "x"}, after={"a": "x"}
    ),
    Case(
        "unknown_argument", "safe_write", {"path": "{}/a", "contnt": "x"}, {"content": "x"}, after={"a": "x"}
    ),
    Case(
        "not_a_choice",
        "safe_write",
        {"path": "{}/a", "content": "x", "mode": "replace"},
        {"mode": "overwrite", "content": "x"},
        after={"a": "x"},
    ),
    Case(
        "bad_argument",
        "safe_write",
        {"path": "{}/a", "content": {"a": 1}},
        {"content": "x"},
        after={"a": "x"},
    ),
    Case(
        "conflicting_alias",
        "safe_write",
        {"path": "{}/a", "file_path": "{}/b", "content": "x"},
        {"path": "{}/a", "content": "x"},
        after={"a": "x"},
    ),
    Case("bad_file_uri", "read", {"path": "file:a"}, {"path": "{}/a"}, {"a": "x"}),
    Case("content_or_draft", "safe_write", {"path": "{}/a"}, {"content": "x"}, after={"a": "x"}),
    Case(
        "bad_base64",
        "safe_write",
        {"path": "{}/a", "content": "?", "encoding": "base64"},
        {"content": "eA=="},
        after={"a": "x"},
    ),
    # --- paths
    Case("file_not_found", "read", {"path": "{}/maim.py"}, files={"main.py": "x"}),
    Case("is_directory", "read", {"path": "{}/src"}, {"path": "{}/src/a"}, {"src/a": "x"}),
    Case(
        "escapes_workspace",
        "safe_write",
        {"path": "/etc/x", "content": "x"},
        {"path": "{}/x"},
        after={"x": "x"},
    ),
    Case(
        "trailing_slash",
        "safe_write",
        {"path": "{}/x/", "content": "x"},
        {"path": "{}/x", "content": "x"},
        after={"x": "x"},
    ),
    Case("home_path", "read", {"path": "~/x"}, {"path": "{}/x"}, {"x": "x"}),
    Case("empty_path", "read", {"path": ""}, {"path": "{}/x"}, {"x": "x"}),
    Case(
        "not_a_directory",
        "safe_write",
        {"path": "{}/f/g", "content": "x"},
        {"path": "{}/g"},
        {"f": ""},
        after={"g": "x"},
    ),
    Case(
        "protected_path",
        "safe_write",
        {"path": ".git/config", "content": "x"},
        ends="allow .git/ in the policy",
    ),
    # --- what stands there
    Case(
        "file_already_exists",
        "safe_write",
        {"path": "{}/a", "content": "new"},
        files={"a": "old"},
        after={"a": "new"},
    ),
    Case(
        "hash_mismatch",
        "safe_write",
        {"path": "{}/a", "content": "new", "mode": "overwrite", "expected_prev_sha256": "0" * 64},
        files={"a": "old"},
        after={"a": "new"},
    ),
    Case(
        "changed_since_seen",
        "safe_write",
        {"path": "{}/a", "content": "mine", "mode": "overwrite"},
        {"content": "both"},
        {"a": "old"},
        (("read", {"path": "{}/a"}),),
        {"a": "theirs"},
        after={"a": "both"},
    ),
    Case(
        "target_exists",
        "transaction",
        {"ops": [{"op": "move", "path": "{}/a", "to": "{}/b"}]},
        files={"a": "1", "b": "2"},
        ends="b may be deleted",
    ),
    # --- contents
    Case("risk", "safe_write", {"path": "{}/env", "content": f"token = '{TOKEN}'\n"}),
    Case(
        "elided_content",
        "safe_write",
        {"path": "{}/a.py", "content": "x = 1\n# ... rest of the code unchanged ...\n", "mode": "overwrite"},
        {"content": "x = 1\ny = 2\n"},
        {"a.py": "x = 0\ny = 2\n"},
        after={"a.py": "x = 1\ny = 2\n"},
    ),
    Case(
        "breaks_syntax",
        "safe_write",
        {"path": "{}/a.json", "content": "{", "validate": "refuse"},
        {"content": "{}"},
    ),
    Case(
        "unencodable",
        "safe_write",
        {"path": "{}/a", "content": "☕", "encoding": "latin-1"},
        after={"a": "☕"},
    ),
    Case("binary_file", "read", {"path": "{}/a"}, files={"a": "\0\1\2\3"}),
    Case("no_such_lines", "read", {"path": "{}/a", "start_line": 9}, files={"a": "one\n"}),
    Case(
        "draft_not_found",
        "safe_write",
        {"path": "{}/a", "draft": "d_000000000000000000000000"},
        {"content": "x"},
        after={"a": "x"},
    ),
    # --- chunks
    Case(
        "non_contiguous_chunks",
        "chunk_compose",
        {"session": "gap", "output_path": "{}/a"},
        {"content": "2"},
        before=(
            ("chunk_write", {"session": "gap", "index": 1, "content": "1"}),
            ("chunk_write", {"session": "gap", "index": 3, "content": "3"}),
        ),
        ends="chunk_write",
    ),
    Case(
        "chunk_count_mismatch",
        "chunk_compose",
        {"session": "short", "output_path": "{}/a"},
        {"content": "2"},
        before=(("chunk_write", {"session": "short", "index": 1, "content": "1", "total_expected": 2}),),
        ends="chunk_write",
    ),
    Case(
        "session_not_found",
        "chunk_compose",
        {"session": "none", "output_path": "{}/a"},
        {"content": "1"},
        ends="chunk_append",
    ),
    Case(
        "bad_session", "chunk_append", {"session": "a b", "content": "1"}, {"session": "ab", "content": "1"}
    ),
    Case(
        "index_exceeds_total_expected",
        "chunk_write",
        {"session": "more", "index": 3, "content": "1", "total_expected": 2},
        {"content": "1"},
    ),
    # --- journal
    Case(
        "version_not_found",
        "restore",
        {"path": "{}/a", "journal_id": "999999"},
        {"journal_id": "{first}"},
        before=(("safe_write", {"path": "{}/a", "content": "x"}),),
        after={"a": "x"},
    ),
    Case("no_history", "history", {"path": "{}/none"}, ends="journal_tail"),
    Case(
        "bad_time",
        "undo",
        {"since": "soon", "dry_run": True, "session": "any"},
        {"since": "1d"},
        before=(("safe_write", {"path": "{}/a", "content": "x"}),),
    ),
    Case("bad_cursor", "journal_tail", {"cursor": "x"}),
    # --- scratch, checkpoints, handoffs
    Case(
        "must_provide_sha256_or_label",
        "scratch_get",
        {},
        {"sha256": "{scratch}"},
        before=(("scratch_put", {"content": "kept", "label": "l"}),),
    ),
    Case(
        "checkpoint_not_found",
        "checkpoint_read",
        {"name": "none"},
        {"name": "there"},
        before=(("checkpoint", {"name": "there", "data": {"a": 1}}),),
    ),
    Case(
        "bad_ttl",
        "checkpoint",
        {"name": "c", "data": {"a": 1}, "ttl": "soon"},
        {"ttl": "P7D", "data": {"a": 1}},
    ),
    Case("not_found", "handoff_read", {"path": "{}/HANDOFF.md"}, {"envelope": HANDOFF}, ends="handoff_write"),
    Case(
        "other_task",
        "handoff_write",
        {"path": "{}/HANDOFF.md", "envelope": {**HANDOFF, "task_id": "t2"}},
        {"envelope": {**HANDOFF, "task_id": "t2"}},
        before=(("handoff_write", {"path": "{}/HANDOFF.md", "envelope": HANDOFF}),),
    ),
    # --- edits
    Case(
        "old_string_not_found",
        "edit",
        {"path": "{}/a.py", "edits": [{"old": "retrun 1", "new": "return 2"}]},
        {"edits": [{"old": "return 1", "new": "return 2"}]},
        {"a.py": "def f():\n    return 1\n"},
        after={"a.py": "def f():\n    return 2\n"},
    ),
    Case(
        "ambiguous_match",
        "safe_replace",
        {"path": "{}/a", "old_string": "x", "new_string": "y"},
        {"old_string": "a\nx", "new_string": "a\ny"},
        {"a": "x\na\nx\n"},
        after={"a": "x\na\ny\n"},
    ),
    Case(
        "insufficient_matches",
        "transaction",
        {"ops": [{"op": "edit", "path": "{}/a", "edits": {"old": "x", "new": "y", "count": 2}}]},
        {"ops": [{"op": "edit", "path": "{}/a", "edits": {"old": "x", "new": "y", "count": 1}}]},
        {"a": "x\n"},
        after={"a": "y\n"},
    ),
    Case(
        "empty_old_string",
        "edit",
        {"path": "{}/a", "edits": [{"old": "", "new": "y"}]},
        {"edits": [{"old": "x", "new": "y"}]},
        {"a": "x"},
        after={"a": "y"},
    ),
    # --- state
    Case("invalid_json", "set_state", {"key": "s/{}", "value": "hello"}, {"value": '"hello"'}),
    Case(
        "version_mismatch",
        "set_state",
        {"key": "s/{}", "value": 2, "expected_version": 7},
        {"value": 2},
        before=(("set_state", {"key": "s/{}", "value": 1}),),
    ),
    Case(
        "already_exists",
        "set_state",
        {"key": "s/{}", "value": 2, "expected_version": 0},
        {"value": 2},
        before=(("set_state", {"key": "s/{}", "value": 1}),),
    ),
    Case("key_not_found", "set_state", {"key": "s/{}", "value": 2, "expected_version": 7}, {"value": 2}),
    Case(
        "version",
        "state_txn",
        {"compare": {"key": "s/{}", "version": 7}, "then": {"op": "set", "key": "s/{}", "value": 2}},
        {"compare": {"key": "s/{}", "version": 1}, "then": {"op": "set", "key": "s/{}", "value": 2}},
        before=(("set_state", {"key": "s/{}", "value": 1}),),
    ),
    Case("not_held", "lease", {"action": "renew", "name": "s/{}", "token": 1}),
    Case("not_running", "once", {"action": "finish", "key": "s/{}", "token": 1}),
    # --- the host
    Case("unknown_mount", "mounts", {"action": "restart", "name": "nosuch"}, {"name": "perdure"}),
]


def test_there_are_enough_different_refusals() -> None:
    assert len({case.reason for case in CASES}) >= 30


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawClient, Path]]:
    place = tmp_path_factory.mktemp("next")
    workspace = place / "work"
    workspace.mkdir()
    environment = {**os.environ, "PERDURE_HOME": str(place / "home"), "HOME": str(place)}
    argv = [
        sys.executable,
        "-m",
        "perdure",
        "run",
        "--workspace",
        str(workspace),
        "--state",
        str(place / "state.db"),
    ]
    with RawClient(argv, env=environment, cwd=workspace) as started:
        started.initialize()
        yield started, workspace


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_the_next_line_alone_leads_out_of_a_refusal(running: tuple[RawClient, Path], case: Case) -> None:
    client, workspace = running
    agent = Agent(client, workspace, case)
    agent.prepare()
    first = agent.call(case.tool, agent.filled(case.arguments))
    assert not first.is_done, first.text
    assert first.lines[-1].endswith(f"/{case.reason}]"), first.text

    last = agent.follow(first)

    assert case.ends in last if " " in case.ends else last == (case.ends or case.tool)
    for name, content in (case.after or {}).items():
        assert (workspace / case.reason / name).read_bytes().decode() == content


class Answer(NamedTuple):
    is_done: bool
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


class Agent:
    def __init__(self, client: RawClient, workspace: Path, case: Case) -> None:
        self._client = client
        self._case = case
        self._folder = workspace / case.reason
        self._known: dict[str, str] = {}

    def prepare(self) -> None:
        self._folder.mkdir()
        self._write(self._case.files)
        for tool, arguments in self._case.before:
            done = self.call(tool, {**self.filled(arguments), "render": "json", "detail": "full"})
            assert done.is_done, done.text
            told = json.loads(done.text)
            self._known = {"{first}": str(told.get("journal_id")), "{scratch}": str(told.get("sha256"))}
        self._write(self._case.outside)

    def _write(self, files: Mapping[str, str]) -> None:
        for name, content in files.items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(content)

    def call(self, tool: str, arguments: Arguments) -> Answer:
        result = self._client.call(tool, arguments)["result"]
        return Answer(not result.get("isError"), result["content"][0]["text"])

    def follow(self, refusal: Answer) -> str:
        """The tool that succeeded, or the question for the user."""
        for _ in range(MOST_STEPS):
            line = refusal.lines[1].removeprefix("next: ")
            assert line != refusal.lines[1], refusal.text
            steps = [parse(line), parse_following(line)]
            for step in steps:
                if isinstance(step, Question):
                    return step.text
                if isinstance(step, ToolCall):
                    tool, answer = step.tool, self._make(step)
                    if not answer.is_done:
                        break
            if answer.is_done:
                return tool
            refusal = answer
        raise AssertionError(f"no way out: {refusal.text}")

    def _make(self, step: ToolCall) -> Answer:
        sent = {
            name: self.filled(self._case.fill[name]) if value == FILL else value
            for name, value in step.arguments.items()
        }
        return self.call(step.tool, sent)

    def filled(self, value: Any) -> Any:
        match value:
            case str():
                for mark, text in self._known.items():
                    value = value.replace(mark, text)
                return value.replace("{}", self._case.reason) if value != "{}" else value
            case dict():
                return {name: self.filled(one) for name, one in value.items()}
            case list():
                return [self.filled(one) for one in value]
            case _:
                return value

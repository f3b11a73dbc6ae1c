"""`perdure handoff`: shown to a person as it is now, written with the checks that agents get."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from commands import perdure, told

from testbed import Bed

ENVELOPE: dict[str, Any] = {
    "task_id": "rename",
    "status": "partial",
    "agent": "first",
    "summary": "Three of five modules are done.",
    "next_steps": ["the last two modules"],
    "last_good_state": [],
    "blockers": ["no database"],
    "steps": [
        {"id": "a", "description": "rename in a", "status": "done"},
        {"id": "b", "description": "rename in b", "depends_on": ["a"]},
        {"id": "c", "description": "rename in c", "depends_on": ["b"]},
    ],
}
YAML = """\
task_id: rename
status: partial
agent: first
summary: From a file.
next_steps: []
last_good_state: []
"""


def write(bed: Bed, envelope: Any, *words: str, code: int = 0) -> str:
    done = perdure(
        bed, "handoff", "write", *words, stdin=envelope if isinstance(envelope, str) else json.dumps(envelope)
    )
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def test_what_is_written_from_json_is_shown_with_what_is_ready_and_what_drifted(bed: Bed) -> None:
    (bed.workspace / "a.py").write_text("x = 1\n")
    sha = hashlib.sha256(b"x = 1\n").hexdigest()
    write(bed, {**ENVELOPE, "last_good_state": [{"path": "a.py", "sha256": sha}]})
    assert told(bed, "handoff", "show")["drift_warnings"] == []
    (bed.workspace / "a.py").write_text("x = 2\n")

    shown = perdure(bed, "handoff", "show")
    found = told(bed, "handoff", "show")

    assert shown.returncode == 0
    for line in (
        "HANDOFF.md  rename  partial  by first",
        "  a.py  hash mismatch",
        "  [x] a  rename in a",
        "  [ ] b  rename in b  after a  ready",
        "  [ ] c  rename in c  after b",
        "  - the last two modules",
        "  - no database",
    ):
        assert line in shown.stdout.splitlines()
    assert found["ready_steps"] == ["b"]
    assert [one["path"] for one in found["drift_warnings"]] == ["a.py"]


@pytest.mark.parametrize(
    "text", [YAML, f"---\n{YAML}---\nFree text.\n", "\ufeff" + YAML], ids=["yaml", "whole", "bom"]
)
def test_yaml_and_a_whole_handoff_are_taken_too(bed: Bed, text: str) -> None:
    (bed.workspace / "given.yaml").write_text(text)
    write(bed, "", "given.yaml", "--path", "notes/HANDOFF.md")
    found = told(bed, "handoff", "show", "notes/HANDOFF.md")
    assert found["envelope"]["summary"] == "From a file."
    assert found["body"].strip() == ("Free text." if "Free" in text else "")


@pytest.mark.thorough
def test_the_free_text_may_come_from_a_file(bed: Bed) -> None:
    (bed.workspace / "body.md").write_text("# More\n")
    write(bed, ENVELOPE, "--body-file", "body.md")
    assert "# More" in perdure(bed, "handoff", "show").stdout


@pytest.mark.thorough
def test_another_tasks_handoff_and_an_unexpected_file_are_conflicts(bed: Bed) -> None:
    write(bed, ENVELOPE)
    sha = told(bed, "handoff", "show")["sha256"]
    other = {**ENVELOPE, "task_id": "something-else"}

    assert "other_task" in write(bed, other, code=3)
    assert write(bed, other, "--expect", "0" * 64, code=3)
    assert told(bed, "handoff", "show")["envelope"]["task_id"] == "rename"
    write(bed, other, "--expect", sha, "--archive")
    assert told(bed, "handoff", "show")["envelope"]["task_id"] == "something-else"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{not json", "not"),
        ("a: [1\n", "YAML"),
        ("", "task_id"),
        (json.dumps({**ENVELOPE, "status": "finished"}), "status"),
        (json.dumps({**ENVELOPE, "steps": [{"id": "a", "depends_on": ["z"]}]}), "which is not there"),
    ],
    ids=["json", "yaml", "empty", "bad value", "bad steps"],
)
def test_what_is_no_handoff_is_refused_and_nothing_is_written(bed: Bed, text: str, said: str) -> None:
    assert said in write(bed, text, code=2)
    assert not (bed.workspace / "HANDOFF.md").exists()


def test_a_secret_is_refused_as_it_is_for_agents(bed: Bed) -> None:
    token = "ghp_" + "1aB2cD3eF4gH5iJ6kL7mN8oP9qR0sT1uV2wX"
    done = perdure(bed, "handoff", "write", stdin=json.dumps({**ENVELOPE, "summary": f"token {token}"}))
    assert done.returncode not in (0, 2)
    assert token not in done.stdout + done.stderr
    assert not (bed.workspace / "HANDOFF.md").exists()


def test_where_there_is_none_or_no_file_it_says_so(bed: Bed) -> None:
    done = perdure(bed, "handoff", "show")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no handoff" in done.stderr
    done = perdure(bed, "handoff", "write", "nowhere.json")
    assert done.returncode == 2
    assert "nowhere.json" in done.stderr


@pytest.mark.thorough
def test_text_of_an_agent_cannot_move_the_cursor(bed: Bed) -> None:
    write(bed, {**ENVELOPE, "summary": "evil \x1b[2J text"})
    assert "\x1b" not in perdure(bed, "handoff", "show").stdout


def test_values_that_yaml_could_take_for_something_else_are_shown_as_they_were_written(bed: Bed) -> None:
    envelope = {
        "task_id": "t-1",
        "status": "partial",
        "agent": "a",
        "summary": "Half: the first part's done # so far\nThe second is not.",
        "next_steps": ["go on", "2026-01-01", "- x"],
        "last_good_state": [{"path": "b.txt", "sha256": "0" * 64}, {"path": "gone", "sha256": "1" * 64}],
        "steps": [
            {"id": "one", "description": "it", "status": "done"},
            {"id": "2", "description": "", "depends_on": ["one"]},
        ],
        "context_hints": {"nested": {"deep": [1, True, None]}},
    }
    (bed.workspace / "b.txt").write_text("b\n")
    write(bed, envelope)
    found = told(bed, "handoff", "show")
    assert {name: found["envelope"][name] for name in envelope} == envelope
    assert [(one["path"], one["reason"]) for one in found["drift_warnings"]] == [
        ("b.txt", "hash_mismatch"),
        ("gone", "missing"),
    ]
    assert found["ready_steps"] == ["2"]


@pytest.mark.parametrize(("path", "code"), [("b.txt", 2), ("nothing", 1)])
def test_a_file_that_is_no_handoff_is_told_from_none(bed: Bed, path: str, code: int) -> None:
    (bed.workspace / "b.txt").write_text("b\n")
    assert perdure(bed, "handoff", "show", path).returncode == code

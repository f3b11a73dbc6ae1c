"""Short forms of the trials of the time machine, with fixed seeds. The long ones: `python -m harness.timeline.kills`, …"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.timeline.conditions import ALONE, MOUNTING, RESIDENT, can_mount
from harness.timeline.corpus import OPERATIONS, Operation
from harness.timeline.seeded_bugs import BUGS, is_found
from harness.timeline.shell import check, missing_programs

pytestmark = pytest.mark.thorough

FEW_OPERATIONS = (
    "sed -i",
    "mv a folder",
    "rm -rf everything but git",
    "git clean -fdx",
    "a folder becomes a link",
    "a hard link",
    "a background writer",
)
FEW_BUGS = ("tracked-first", "hook-fails-closed", "left-for-later", "watch-by-name", "error-acknowledged")
"""`python -m harness.timeline.seeded_bugs` looks for all."""


def run(trial: str, *options: str, folder: Path) -> str:
    """What a trial prints, where it has found something. A new process: it forks, so it has one thread."""
    command = [sys.executable, "-m", f"harness.timeline.{trial}", *options, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("with_later_edit", [False, True])
@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.name in FEW_OPERATIONS],
    ids=lambda one: one.name,
)
def test_an_operation_is_recorded_and_undone(
    tmp_path: Path, operation: Operation, with_later_edit: bool
) -> None:
    if missing := missing_programs(operation):
        pytest.skip(f"needs {', '.join(missing)}")
    check(operation, tmp_path, with_later_edit=with_later_edit)


def test_changes_of_agents_at_the_same_time_are_told_apart_or_shared(tmp_path: Path) -> None:
    assert run("agents", "--rounds", "12", "--seed", "1", folder=tmp_path) == ""


@pytest.mark.parametrize("seed", [1, 7])
def test_killed_hooks_recorders_and_commands_lose_nothing(tmp_path: Path, seed: int) -> None:
    assert run("kills", "--rounds", "15", "--each", "15", "--seed", str(seed), folder=tmp_path) == ""


@pytest.mark.parametrize("name", dict.fromkeys((*ALONE, *RESIDENT)))
def test_hooks_fail_open_and_later_ones_are_right(tmp_path: Path, name: str) -> None:
    if name in MOUNTING and not can_mount():
        pytest.skip("nothing can be mounted")
    assert run("conditions", "--only", name, folder=tmp_path) == ""


@pytest.mark.parametrize("bug", FEW_BUGS)
def test_a_seeded_bug_is_found(bug: str) -> None:
    assert is_found(bug)


def test_every_seeded_bug_has_a_trial() -> None:
    assert {bug.trial.split()[0] for bug in BUGS.values()} == {"kills", "agents", "conditions"}

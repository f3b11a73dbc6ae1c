"""The kernel is a few state machines: their tables name every state, and every transition is in the machine's own module."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure.kernel import calls, client, core, mounts, state, subscriptions, tasks

KERNEL = Path(core.__file__).parent
MACHINES = ("calls", "mounts", "client", "subscriptions", "tasks")
# The attributes that hold a state, and the machine that may change them.
OWNERS = {
    "state": {"calls"},
    "phase": {"mounts", "client"},
    "rollout": {"mounts"},
    "stage": {"mounts"},
    "lists": {"mounts"},
    "ping_until": {"mounts"},
    "stream": {"subscriptions"},
    "conflicts": {"calls"},
    "closing": {"client"},
    "place": {"tasks"},
}


@pytest.mark.parametrize(
    ("machine", "states"),
    [
        (calls, state.InvocationState),
        (mounts, state.Phase),
        (mounts, state.Stage),
        (mounts, state.Lists),
        (mounts, state.Rollout),
        (client, state.SessionPhase),
        (subscriptions, state.Stream),
        (tasks, state.TaskPlace),
    ],
    ids=["calls", "phase", "stage", "lists", "rollout", "session", "stream", "task"],
)
def test_the_table_of_a_machine_names_every_state(machine: Any, states: Any) -> None:
    rows = [line for line in (machine.__doc__ or "").splitlines() if line.startswith("|")]
    named = set(re.findall(r"\w+", " ".join(rows)))
    assert {kind.__name__ for kind in get_args(states)} <= named


@pytest.mark.parametrize("file", sorted(KERNEL.glob("*.py")), ids=lambda file: file.stem)
def test_every_transition_is_in_the_module_of_its_machine(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and ast.unparse(part.value) != "self":
                    assert file.stem in OWNERS.get(part.attr, {file.stem}), ast.unparse(node)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_machine_calls_another(machine: str) -> None:
    source = (KERNEL / f"{machine}.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            imported = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
            others = {f"perdure.kernel.{other}" for other in MACHINES if other != machine}
            assert not imported & others

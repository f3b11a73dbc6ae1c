"""Agents that race for the same paths: no write under another owner's reservation is acknowledged or passed."""

from __future__ import annotations

import pytest

from harness.reservations.laws import find_violations
from harness.reservations.report import Granted, Told, Write
from harness.reservations.trial import run_trial


# Open: with four agents and `restore`, about one run of four finds a line in its file right after it was put back. The cause
# is not known; `python -m harness.reservations --agents 4 --rounds 25 --seed 2 --shell restore` shows it.
@pytest.mark.thorough
@pytest.mark.parametrize(("agents", "seed", "shell"), [(2, 1, "restore"), (4, 2, "tell")])
def test_no_write_under_a_reservation_of_another(agents: int, seed: int, shell: str) -> None:
    totals = run_trial(25, agents, seed, shell=shell)
    assert totals["violations"] == []
    assert totals["granted"]
    assert totals["refused"]
    assert totals["writes"]


@pytest.mark.parametrize(
    ("began", "answered", "owner", "mode", "is_violation"),
    [
        (2.0, 3.0, 1, "exclusive", True),
        (2.0, 3.0, 1, "shared", True),
        (2.0, 3.0, 0, "exclusive", False),  # its own
        (0.5, 3.0, 1, "exclusive", False),  # it began before the reservation was answered
        (2.0, 12.0, 1, "exclusive", False),  # the reservation may have been over when it was checked
    ],
)
def test_the_trial_knows_a_violation(
    began: float, answered: float, owner: int, mode: str, is_violation: bool
) -> None:
    granted = Granted(owner=0, token=1, paths=["src"], mode=mode, began=0.8, since=1.0, until=11.0)  # type: ignore[arg-type]
    write = Write(owner=owner, path="src/a.py", began=began, answered=answered, by="tool")
    told = [Told(granted=[granted], writes=[write])]
    assert bool(list(find_violations(told, told))) is is_violation
    assert not list(find_violations(told, [*told, Told(released={1: 1.5})]))

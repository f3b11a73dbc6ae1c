"""Short forms of the state trials, on real processes. The long ones: `make state`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.state import trials
from harness.state.__main__ import opened_backend, restarting
from harness.state.postgres import Postgres

pytestmark = pytest.mark.thorough


@pytest.fixture(params=["sqlite", "postgres"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").new_database())
    return str(tmp_path / "state.db")


def test_guarded_increments_of_many_processes_are_never_lost(state: str, tmp_path: Path) -> None:
    assert trials.increments(state, str(tmp_path), processes=4, each=25).wrong == []


@pytest.mark.parametrize("kills", [False, True])
def test_every_answer_of_concurrent_clients_is_right(state: str, tmp_path: Path, kills: bool) -> None:
    found = trials.mixed(
        state, str(tmp_path), lambda: opened_backend(state), clients=3, seconds=3, seed=1, kills=kills
    )

    assert found.wrong == []


def test_a_lease_holder_that_wakes_late_cannot_write(state: str, tmp_path: Path) -> None:
    assert trials.fencing(state, str(tmp_path), rounds=15).wrong == []


def test_a_restarted_server_loses_nothing_it_acknowledged(postgres: Postgres, tmp_path: Path) -> None:
    if not postgres.is_ours:
        pytest.skip("the server is not ours to stop")
    state = postgres.new_database()

    found = trials.mixed(
        state,
        str(tmp_path),
        lambda: opened_backend(state),
        clients=3,
        seconds=6,
        seed=1,
        meanwhile=restarting(postgres),
    )

    assert found.wrong == []

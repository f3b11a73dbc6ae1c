"""The three backends of the state store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from state_tools import Open, Store

from perdure.storage.memory import MemoryState
from perdure.storage.postgres.state import PostgresState
from perdure.storage.sqlite.state import SqliteState
from perdure.storage.state import StateBackend


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.thorough)])
def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store each time, as another process would; memory is shared instead."""
    opened: list[StateBackend] = []
    if request.param == "memory":
        shared = MemoryState()

        def make() -> StateBackend:
            return shared
    elif request.param == "sqlite":

        def make() -> StateBackend:
            return SqliteState(str(tmp_path / "deep" / "er" / "state.db"))
    else:
        dsn = request.getfixturevalue("postgres").new_database()

        def make() -> StateBackend:
            return PostgresState(dsn)

    def open_one() -> StateBackend:
        opened.append(make())
        return opened[-1]

    yield open_one
    for backend in opened:
        backend.close()


@pytest.fixture
def store(open_backend: Open) -> Store:
    return Store(open_backend())

"""Whose temporary file it is, and whether its owner still lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from perdure.storage.files import temp_names


@pytest.fixture
def child() -> Iterator[tuple[int, str]]:
    """A process that lives until it is killed, its pid and the name of a temporary file of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, temp_names.fresh("x").encode())
        signal.pause()
    yield pid, os.read(reading, 200).decode()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)


def lives(name: str) -> bool | None:
    found = temp_names.parsed(name)
    assert found is not None
    return temp_names.owner_lives(found.owner)


def test_an_owner_that_runs_lives(child: tuple[int, str]) -> None:
    assert lives(child[1]) is True


def test_a_killed_owner_that_nobody_waited_for_is_dead(child: tuple[int, str]) -> None:
    os.kill(child[0], signal.SIGKILL)
    os.waitid(os.P_PID, child[0], os.WEXITED | os.WNOWAIT)

    assert lives(child[1]) is False

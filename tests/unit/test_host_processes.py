"""Processes that a host starts: where they run, what is said when they cannot, and that none stays a zombie."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes import wait_for
from perdure.platform.guardian import Guardian
from perdure.supervise.child import Launch, spawn_fault, start_child
from perdure.telemetry import exporter as exporters
from perdure.telemetry.exporter import Exporter

SOON = 10.0


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    reading, writing = os.pipe()
    yield Guardian(writing, 0, "mark")
    os.close(reading)
    os.close(writing)


def refuse_chdir(path: object) -> None:
    raise AssertionError(f"the whole process would go to {path}")


def test_a_child_runs_in_its_folder_and_the_host_stays_where_it_is(
    tmp_path: Path, guardian: Guardian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "chdir", refuse_chdir)
    monkeypatch.setattr(os, "fchdir", refuse_chdir)
    script = "import os; print(f'{os.getcwd()} {os.getpgid(0) == os.getpid()}')"

    found = start_child(
        "m", 1, Launch((sys.executable, "-c", script), os.environ, str(tmp_path)), guardian, 1000
    )

    os.set_blocking(found.stdout, True)
    assert os.read(found.stdout, 1000).decode().split() == [str(tmp_path), "True"]
    os.waitpid(found.pid, 0)
    found.close_input()
    found.close_output()


@pytest.mark.parametrize(
    ("command", "folder", "detail"),
    [
        (sys.executable, "gone", "the folder {folder}: No such file or directory"),
        ("/no/such/server", "", "server: No such file or directory"),
        ("server\0", "", "server\0: Invalid argument"),
    ],
)
def test_what_keeps_a_child_from_starting_is_named(
    tmp_path: Path, guardian: Guardian, command: str, folder: str, detail: str
) -> None:
    where = str(tmp_path / folder)

    with pytest.raises(OSError, match=r".") as caught:
        start_child("m", 1, Launch((command,), os.environ, where), guardian, 1000)

    assert spawn_fault(1, command, where, caught.value).detail == detail.format(folder=where)


def test_an_exporter_that_ends_later_than_its_pipe_leaves_no_zombie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporters, "AGAIN_S", 0.0)
    gate, opening = os.pipe()  # the first process lives until this is closed
    os.set_inheritable(gate, True)
    script = f"import os; os.close(0); os.read({gate}, 1)"
    exporter = Exporter((sys.executable, "-c", script), "on")

    def pipe_is_broken() -> bool:
        exporter.tell({"a": 1})
        return exporter.lost > 0

    exporter.tell({"a": 1})
    first = exporter._pid
    assert wait_for(pipe_is_broken, SOON)
    os.close(opening)

    def is_reaped() -> bool:
        exporter.tell({"a": 1})
        return not Path(f"/proc/{first}").exists()

    assert wait_for(is_reaped, SOON)
    os.close(gate)
    exporter.close()

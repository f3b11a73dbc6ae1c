"""As many operations as a transaction may have, in a process that may open few files."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.protocol.envelope import ToolError
from perdure.surfaces.write.transaction import MOST_OPS
from perdure.testing.raw_client import RawClient
from perdure.workspace.paths.roots import Directories, Roots

LIMIT = 1024


def limited(command: list[str], hard: str) -> list[str]:
    """A command under `ulimit -n 1024`; `hard` is the limit that it may raise it to."""
    return ["bash", "-c", f'ulimit -Sn {LIMIT}; ulimit -Hn {hard}; exec "$@"', "bash", *command]


def transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ops: list[dict[str, Any]]) -> dict[str, Any]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    command = [sys.executable, "-P", "-m", "perdure", "worker", "--workspace", str(workspace)]
    with RawClient(limited(command, str(LIMIT))) as client:
        client.initialize(timeout=60)
        answer = client.wait(client.start_call("transaction", {"ops": ops, "render": "json"}), 60)
        payload: dict[str, Any] = answer["result"]["structuredContent"]
        return payload


@pytest.mark.thorough
@pytest.mark.parametrize("layout", ["one directory", "new directory", "many directories", "new directories"])
def test_the_largest_transaction_is_made_with_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    paths = [f"d{n if 'directories' in layout else ''}/f{n}" for n in range(MOST_OPS)]
    if not layout.startswith("new"):
        for path in paths:
            (workspace / path).parent.mkdir(exist_ok=True)

    answer = transaction(
        tmp_path, monkeypatch, [{"op": "write", "path": path, "content": "x"} for path in paths]
    )

    assert answer["ok"], answer
    assert all((workspace / path).read_text() == "x" for path in paths)


@pytest.mark.thorough
def test_the_largest_transaction_is_taken_back_with_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    monkeypatch.setenv("PERDURE_FAULT", f"write.before_create=enospc@{MOST_OPS - 1}")

    ops = [{"op": "write", "path": f"d{n}/f", "content": "x"} for n in range(MOST_OPS)]
    answer = transaction(tmp_path, monkeypatch, ops)

    assert answer["context"]["reason"] == "no_space"
    assert [path.name for path in workspace.iterdir() if path.name.startswith("d")] == []


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= LIMIT, reason="no more descriptors can be had here"
)
def test_a_worker_raises_its_limit_to_what_the_system_allows(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "perdure", "worker", "--workspace", str(tmp_path)]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with RawClient(limited(command, "hard")) as client:
        client.initialize(timeout=60)
        limits = Path(f"/proc/{client.pid}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    assert int(line.split()[3]) == min(hard, 65_536)


def test_many_files_of_one_directory_are_changed_over_one_descriptor(tmp_path: Path) -> None:
    workspace, directories = Roots((tmp_path,)), Directories()
    before = len(os.listdir("/proc/self/fd"))
    places = [workspace.locate(f"f{n}", directories=directories) for n in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    for place in places:
        place.close()
    assert len(os.listdir("/proc/self/fd")) == before
    workspace.close()


def test_a_place_is_opened_again_only_in_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    workspace = Roots((tmp_path,))
    place = workspace.locate("d/f")
    place.close()
    place.reopen()
    place.close()
    (tmp_path / "d").rename(tmp_path / "moved")
    (tmp_path / "d").mkdir()
    with pytest.raises(ToolError) as refused:
        place.reopen()
    assert refused.value.envelope.context["reason"] == "path_changing"
    place.close()
    workspace.close()

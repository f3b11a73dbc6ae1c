"""A hook handed to the worker that serves its workspace, over a real socket."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.processes import wait_for
from perdure.hooks.relay import PROJECT_VARIABLES, RelayError, relay, socket_path
from perdure.platform.process_tree import client_process
from perdure.storage.errors import LockTimeout
from perdure.storage.store_id import store_id
from perdure.worker.hook_listener import Elsewhere, HookListener, HookRequest


class Handler:
    def __init__(self, handle: Callable[[HookRequest], object]) -> None:
        self._handle = handle

    def handle(self, request: HookRequest) -> str:
        self._handle(request)
        return "printed"

    def maintain(self) -> None:
        pass


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    monkeypatch.chdir(work / "src")
    return work


@pytest.fixture
def listen(root: Path) -> Iterator[Callable[..., HookListener]]:
    opened: list[HookListener] = []

    def start(handle: Callable[[HookRequest], object], where: Path = root) -> HookListener:
        listener = HookListener(str(where), lambda: Handler(handle))
        opened.append(listener)
        listener.start()
        wait_until_bound(where)
        return listener

    yield start
    for listener in opened:
        listener.close()


def wait_until_bound(root: Path) -> None:
    assert wait_for(lambda: os.path.exists(socket_path(str(root))), 10)


def test_the_path_to_the_worker_imports_little() -> None:
    """A client starts it twice for each call of a tool."""
    program = "import sys, perdure.cli.main, perdure.cli.hook_journal; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "perdure.hooks.relay" in modules
    assert modules.isdisjoint({"typing", "re", "hashlib", "json", "argparse", "logging", "msgspec", "apsw"})


def test_without_a_listener_the_hook_works_alone(root: Path) -> None:
    assert relay(b"{}", client="codex", workspace=str(root)) is None
    assert relay(b"{}", client="codex", workspace=None) is None


def test_a_hook_reaches_the_worker_of_its_workspace(
    root: Path, listen: Callable[..., HookListener], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[HookRequest] = []
    listen(requests.append)
    for name in (*PROJECT_VARIABLES, "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(root))
    assert relay(b'{"a": 1}', client="codex", workspace=None) == "printed"
    [request] = requests
    assert request == HookRequest(
        "codex",
        str(root / "src"),
        str(root),
        {"CLAUDE_PROJECT_DIR": str(root)},
        b'{"a": 1}',
        client_process(),
    )
    assert request.process is not None


def test_without_a_project_the_nearest_workspace_above_is_meant(
    root: Path, listen: Callable[..., HookListener]
) -> None:
    requests: list[HookRequest] = []
    listen(requests.append)
    assert relay(b"{}", client=None, workspace=None) == "printed"
    assert (requests[0].client, requests[0].project) == (None, None)
    nearer = root / "src"
    os.makedirs(root.parent / "home" / "workspaces" / store_id(str(nearer)))
    assert relay(b"{}", client=None, workspace=None) is None


def test_a_hook_of_another_workspace_works_alone(root: Path, listen: Callable[..., HookListener]) -> None:
    def handle(request: HookRequest) -> None:
        raise Elsewhere

    listen(handle)
    assert relay(b"{}", client="c", workspace=str(root)) is None


def test_a_recorder_that_fails_says_why_and_takes_the_next_hook(
    root: Path, listen: Callable[..., HookListener]
) -> None:
    def handle(request: HookRequest) -> None:
        if request.json == b"bad":
            raise ValueError("the disk is full")

    listen(handle)
    with pytest.raises(RelayError, match="the disk is full"):
        relay(b"bad", client="c", workspace=str(root))
    assert relay(b"good", client="c", workspace=str(root)) == "printed"


def test_an_error_of_storage_is_told_in_words(root: Path, listen: Callable[..., HookListener]) -> None:
    def handle(request: HookRequest) -> None:
        raise LockTimeout("observation")

    listen(handle)
    with pytest.raises(RelayError, match="the next hook records what has changed"):
        relay(b"{}", client="c", workspace=str(root))


def test_the_socket_that_a_killed_worker_left_is_replaced(root: Path) -> None:
    left = Path(socket_path(str(root)))
    left.parent.mkdir(parents=True)
    left.touch()
    assert relay(b"{}", client="c", workspace=str(root)) is None
    listener = HookListener(str(root), lambda: Handler(lambda request: None))
    listener.start()
    assert wait_for(lambda: relay(b"{}", client="c", workspace=str(root)) == "printed", 10)
    listener.close()


def test_a_large_hook_arrives_whole(root: Path, listen: Callable[..., HookListener]) -> None:
    sizes: list[int] = []
    listen(lambda request: sizes.append(len(request.json)))
    assert relay(b"x" * 5_000_000, client="c", workspace=str(root)) == "printed"
    assert sizes == [5_000_000]

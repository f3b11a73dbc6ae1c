"""A hook handed to the worker that serves its workspace, over a real socket."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.processes import wait_for
from perdure.hooks import relay as relaying
from perdure.hooks.relay import RelayError, relay, socket_path
from perdure.worker.hook_listener import HookListener, HookRequest


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

    def start(handle: Callable[[HookRequest], str], where: Path = root) -> HookListener:
        listener = HookListener(str(where), handle, lambda: None)
        opened.append(listener)
        listener.start()
        wait_until_bound(where)
        return listener

    yield start
    for listener in opened:
        listener.close()


def wait_until_bound(root: Path) -> None:
    assert wait_for(lambda: os.path.exists(socket_path(str(root))), 10)


def test_without_a_listener_there_is_no_answer(root: Path) -> None:
    assert relay(b"{}", client="codex", project=str(root)) is None
    assert relay(b"{}", client="codex", project="") is None


def test_a_hook_reaches_the_worker_of_its_project(root: Path, listen: Callable[..., HookListener]) -> None:
    requests: list[HookRequest] = []
    listen(lambda request: requests.append(request) or "told")
    assert relay(b'{"a": 1}', client="codex", project=str(root)) == "told"
    assert requests == [HookRequest("codex", str(root / "src"), str(root), b'{"a": 1}')]


def test_without_a_project_the_nearest_workspace_above_is_meant(
    root: Path, listen: Callable[..., HookListener]
) -> None:
    listen(lambda request: "above")
    assert relay(b"{}", client="", project="") == "above"
    nearer = root / "src"
    os.makedirs(root.parent / "home" / "workspaces" / relaying.store_id(str(nearer)))
    assert relay(b"{}", client="", project="") is None


def test_a_recorder_that_fails_says_why_and_takes_the_next_hook(
    root: Path, listen: Callable[..., HookListener]
) -> None:
    def handle(request: HookRequest) -> str:
        if request.json == b"bad":
            raise ValueError("the disk is full")
        return "fine"

    listen(handle)
    with pytest.raises(RelayError, match="the disk is full"):
        relay(b"bad", client="c", project=str(root))
    assert relay(b"good", client="c", project=str(root)) == "fine"


def test_the_socket_that_a_killed_worker_left_is_replaced(
    root: Path, listen: Callable[..., HookListener]
) -> None:
    left = Path(socket_path(str(root)))
    left.parent.mkdir(parents=True)
    left.touch()
    assert relay(b"{}", client="c", project=str(root)) is None
    listener = HookListener(str(root), lambda request: "new", lambda: None)
    listener.start()
    assert wait_for(lambda: relay(b"{}", client="c", project=str(root)) == "new", 10)
    listener.close()


def test_a_large_hook_arrives_whole(root: Path, listen: Callable[..., HookListener]) -> None:
    listen(lambda request: str(len(request.json)))
    assert relay(b"x" * 5_000_000, client="c", project=str(root)) == "5000000"

"""Reservations of a whole repository: clones of it that use one state store respect each other's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from write_tools import Tools

from harness.state.postgres import Postgres
from perdure.platform.process_tree import own_process
from perdure.workspace.reservations import access
from perdure.workspace.reservations.hook_answer import handle_event
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder

OpenClone = Callable[..., Tools]


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.thorough)])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def open_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenClone]:
    """Opens the tools of one clone, each as on a machine of its own: with its own data directory."""
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    (origin / "src").mkdir()
    (origin / "src" / "a.py").write_text("1\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "first")
    with ExitStack() as opened:

        def open_clone(name: str, state: str, folder: str = "", **settings: Any) -> Tools:
            if not (tmp_path / name).exists():
                git(tmp_path, "clone", "-q", str(origin), name)
            monkeypatch.setenv("PERDURE_HOME", str(tmp_path / f"home-{name}"))
            tools = Tools(
                tmp_path / name / folder,
                state=state,
                reservations=ReservationSettings(scope="repository", **settings),
            )
            opened.callback(tools.close)
            assert tools.service  # opened while the variable is set
            return tools

        yield open_clone


def acquire(tools: Tools, client: str, *paths: str, **more: Any) -> dict[str, Any]:
    is_ok, payload = tools.use("reserve", {"action": "acquire", "paths": list(paths), **more}, client)
    assert is_ok, payload
    return payload


def write(tools: Tools, client: str, path: str) -> tuple[bool, dict[str, Any]]:
    return tools.use("safe_write", {"path": path, "content": "x\n", "mode": "overwrite"}, client)


def test_an_exclusive_reservation_holds_in_every_clone(open_clone: OpenClone, state: str) -> None:
    one, two = open_clone("one", state), open_clone("two", state)
    granted = acquire(one, "alice", "src", reason="moving it")
    assert granted["status"] == "ok"
    held = acquire(two, "bob", "src/a.py")
    assert held["status"] == "held"
    [holder] = held["holders"]
    assert (holder["client"], holder["reason"]) == ("alice", "moving it")
    assert holder["machine"] == os.uname().nodename
    is_ok, refusal = write(two, "bob", "src/a.py")
    assert not is_ok
    assert refusal["context"]["reason"] == "reserved"
    assert f"on {os.uname().nodename}" in refusal["context"]["message"]
    assert write(two, "bob", "docs.md")[0]
    assert write(one, "alice", "src/a.py")[0]
    assert two.use("reserve", {"action": "release", "token": granted["token"]}, "bob")[1]["status"] == "held"
    assert one.use("reserve", {"action": "release", "token": granted["token"]}, "alice")[1]["status"] == "ok"
    assert write(two, "bob", "src/a.py")[0]
    # the next token is greater, whichever clone asks
    assert acquire(two, "bob", "src")["token"] == granted["token"] + 1


def test_paths_are_those_of_the_repository(open_clone: OpenClone, state: str) -> None:
    top, inner = open_clone("one", state), open_clone("two", state, "src")
    token = acquire(inner, "bob", "a.py", "*.md")["token"]
    assert not write(top, "alice", "src/a.py")[0]
    assert not write(top, "alice", "src/deep/b.md")[0]
    assert write(top, "alice", "a.py")[0]
    assert write(top, "alice", "b.md")[0]
    inner.use("reserve", {"action": "release", "token": token}, "bob")
    assert acquire(top, "alice", "src/c.py")["status"] == "ok"
    is_ok, refusal = write(inner, "bob", "c.py")
    assert not is_ok
    assert refusal["context"]["path"] == "c.py"


def test_the_first_write_reserves_in_every_clone(open_clone: OpenClone, state: str) -> None:
    one, two = open_clone("one", state, mode="automatic"), open_clone("two", state, mode="automatic")
    assert write(one, "alice", "src/a.py")[0]
    assert write(two, "bob", "src/b.py")[0]
    assert not write(two, "bob", "src/a.py")[0]
    assert not write(one, "alice", "src/b.py")[0]
    assert write(one, "alice", "src/a.py")[0]


def test_the_process_of_another_machine_is_not_taken_for_one_of_this(
    open_clone: OpenClone, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_clone("one", state), open_clone("two", state)
    # given an owner on another machine, with the identity of a process that never ran on this one
    call = one._call("alice")
    call.process = f"{str(own_process()).partition(':')[0]}:999999999:1"  # type: ignore[misc]
    monkeypatch.setattr(access, "_machine_id", lambda: "another-boot")
    one.service.reservations.acquire(call, ("src",), "exclusive", 60, "")
    monkeypatch.undo()
    assert not write(two, "bob", "src/a.py")[0]


def test_hooks_of_every_clone_refuse_and_tell(open_clone: OpenClone, state: str) -> None:
    one, two = open_clone("one", state), open_clone("two", state)
    acquire(one, "alice", "src")
    service = two.service
    recorder = Recorder(service)
    root = service.roots[0].path

    def tell(kind: Any, **more: Any) -> Any:
        given = {"client": "bob", "session": "s", "cwd": root, "process": own_process(), "call_id": "1"}
        return handle_event(service, recorder, HookEvent(kind=kind, **given, **more))

    refusal = tell("before_tool", tool="Write", paths=(f"{root}/src/a.py",)).refusal
    assert "src/a.py is reserved by alice" in refusal
    shell = {"tool": "Bash", "command": "make"}
    assert not tell("before_tool", **shell).refusal
    (Path(root) / "src" / "a.py").write_text("2\n")
    assert "src/a.py is reserved by alice" in tell("after_tool", **shell).notice
    is_ok, written = write(one, "alice", "src/b.py")
    assert is_ok
    assert "src/a.py, which you reserved, was changed by bob: make" in written["warnings"][0]


def test_without_its_store_nothing_is_reserved_or_written_and_hooks_go_on(
    open_clone: OpenClone, tmp_path: Path
) -> None:
    (tmp_path / "no-folder").write_text("")
    tools = open_clone("one", str(tmp_path / "no-folder" / "state.db"))
    for tool, arguments in (
        ("reserve", {"action": "acquire", "paths": ["src"]}),
        ("reserve", {"action": "list"}),
        ("safe_write", {"path": "src/a.py", "content": "x\n", "mode": "overwrite"}),
    ):
        is_ok, refusal = tools.use(tool, arguments, "bob")
        assert not is_ok, tool
        assert "reservations are in the shared state, which cannot be used" in refusal["context"]["message"]
    assert (tools.workspace / "src" / "a.py").read_text() == "1\n"
    service = tools.service
    recorder = Recorder(service)
    given = {"client": "bob", "session": "s", "cwd": service.roots[0].path, "process": own_process()}
    edit = {**given, "tool": "Write", "call_id": "1", "paths": ("src/a.py",)}
    assert not handle_event(service, recorder, HookEvent(kind="before_tool", **edit)).refusal
    (tools.workspace / "src" / "a.py").write_text("2\n")
    answer = handle_event(service, recorder, HookEvent(kind="after_tool", **edit))
    assert answer.notice.startswith("reservations were not checked: ")
    assert service.history("src/a.py")[0].op == "native"


def test_a_folder_in_no_repository_keeps_its_reservations_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    tools = Tools(
        tmp_path / "work",
        state=str(tmp_path / "state.db"),
        reservations=ReservationSettings(scope="repository"),
    )
    acquire(tools, "alice", "src")
    assert not write(tools, "bob", "src/a.py")[0]
    tools.close()
    assert not (tmp_path / "state.db").exists()


@pytest.mark.thorough
def test_after_a_restart_of_the_server_reservations_hold(open_clone: OpenClone, postgres: Postgres) -> None:
    if not postgres.is_ours:
        pytest.skip("the server is another's")
    state = postgres.new_database()
    one, two = open_clone("one", state), open_clone("two", state)
    token = acquire(one, "alice", "src")["token"]
    postgres.stop()
    try:
        is_ok, refusal = write(two, "bob", "docs.md")
        assert not is_ok
        assert refusal["context"]["reason"] == "state_unreachable"
    finally:
        postgres.start()
    access.time.sleep(3.1)  # for so long the failure counts
    assert not write(two, "bob", "src/a.py")[0]
    assert write(two, "bob", "docs.md")[0]
    assert acquire(two, "bob", "docs")["token"] == token + 1

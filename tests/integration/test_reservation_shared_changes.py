"""A change under a reservation that several open calls may have made: it is told, and the owner's own is never put back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.platform import fault_points
from perdure.platform.process_tree import client_process, own_process
from perdure.protocol.calls import LocalCall
from perdure.protocol.envelope import ToolError
from perdure.surfaces.write.reserve import Reserve, reserve
from perdure.surfaces.write.write import SafeWrite, safe_write
from perdure.workspace.reservations.hook_answer import handle_event
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.timeline.event import HookAnswer, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.workspace import Workspace, WorkspaceSettings

Tell = Callable[..., HookAnswer]
OWNER = {"session": "owner", "tool": "Edit", "call_id": "edit", "paths": ("app.py",)}
INTRUDER = {"session": "intruder", "tool": "Bash", "call_id": "make", "command": "make"}


@pytest.fixture
def owner_process() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = client_process(process.pid)
    assert identity is not None
    yield identity
    process.communicate()


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    (root / "app.py").write_text("one\n")
    settings = WorkspaceSettings(reservations=ReservationSettings(shell="restore"))
    with closing(Workspace.open((str(root),), settings)) as workspace:
        yield workspace


@pytest.fixture
def owner(workspace: Workspace, owner_process: str) -> LocalCall:
    """A client that has reserved app.py and new.py."""
    call = LocalCall("owner", tool="reserve")
    call.process = owner_process
    reserve(workspace, Reserve(action="acquire", paths=["app.py", "new.py"]), call)
    return call


@pytest.fixture
def tell(workspace: Workspace, owner: LocalCall) -> Tell:
    """Events of the owner and of another client."""
    recorder = Recorder(workspace)
    recorder.observe()

    def tell(kind: Any, given: dict[str, Any]) -> HookAnswer:
        process = owner.process if given["session"] == "owner" else own_process()
        root = workspace.roots[0].path
        event = HookEvent(client=given["session"], kind=kind, cwd=root, process=process, **given)
        return handle_event(workspace, recorder, event)

    return tell


def test_a_change_that_the_owner_may_have_made_is_told_and_stays(tell: Tell, tmp_path: Path) -> None:
    app = tmp_path / "work" / "app.py"
    assert not tell("before_tool", INTRUDER).refusal
    assert not tell("before_tool", OWNER).refusal
    app.write_text("two\n")
    assert tell("after_tool", OWNER).notice == ""
    notice = tell("after_tool", INTRUDER).notice
    assert "app.py is reserved by owner" in notice
    assert "not put back" in notice
    assert app.read_text() == "two\n"
    assert "app.py, which you reserved, was changed by intruder: make" in tell("after_tool", OWNER).notice


def test_a_change_that_only_others_can_have_made_is_put_back_once(tell: Tell, tmp_path: Path) -> None:
    app = tmp_path / "work" / "app.py"
    second = {**INTRUDER, "call_id": "second"}
    tell("before_tool", INTRUDER)
    tell("before_tool", second)
    app.write_text("two\n")
    assert "it was put back (change " in tell("after_tool", second).notice
    assert app.read_text() == "one\n"
    assert "app.py is reserved by owner" in tell("after_tool", INTRUDER).notice
    assert app.read_text() == "one\n"


@pytest.mark.parametrize("is_new", [False, True])
def test_a_change_under_a_write_of_the_owner_is_told(
    tell: Tell, workspace: Workspace, owner: LocalCall, tmp_path: Path, is_new: bool
) -> None:
    app = tmp_path / "work" / ("app.py" if not is_new else "new.py")
    tell("before_tool", INTRUDER)
    with app.open("a") as file:
        file.write("intruder\n")
    request = SafeWrite(path=app.name, content="owner\n", mode="append")
    safe_write(workspace, request, owner).result()
    assert f"{app.name} is reserved by owner" in tell("after_tool", INTRUDER).notice
    assert app.read_text().endswith("owner\n")


def test_a_notice_is_told_by_a_write_that_fails(tell: Tell, workspace: Workspace, owner: LocalCall) -> None:
    tell("before_tool", INTRUDER)
    Path(workspace.roots[0].path, "app.py").write_text("two\n")
    tell("after_tool", INTRUDER)
    request = SafeWrite(path="other.txt", content="x\n", mode="append")
    fault_points.arm("write.open_temp=erofs")
    try:
        with pytest.raises(ToolError) as failure:
            safe_write(workspace, request, owner).result()
    finally:
        fault_points.arm("")
    (warning,) = failure.value.envelope.context["warnings"]
    assert warning.startswith("app.py, which you reserved, was changed by intruder: make")

"""The client found up the chain of ancestors, with real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import msgspec
import pytest
from msgspec import Raw

from harness.kernel.stage import Stage, tool
from perdure.platform import process_tree
from perdure.platform.process_tree import has_ended
from perdure.protocol.mounts import MountSpec
from perdure.worker.session import Asked, Session

PRINT = "from perdure.platform.process_tree import client_process; print(client_process())"
OWN = f"{sys.executable} -c '{PRINT}'"


def find_client(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def own_identity() -> str:
    """Of this process, which is the client of those that it starts."""
    info = process_tree.read_process(os.getpid())
    assert info is not None
    return f"{os.stat('/proc/self/ns/pid').st_ino}:{os.getpid()}:{info.start}"


def test_the_parent_is_the_client(own_identity: str) -> None:
    assert find_client(sys.executable, "-c", PRINT) == own_identity


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh"])
def test_a_shell_that_runs_a_command_is_not_the_client(shell: str, own_identity: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    # With more than one command a shell stays: it cannot become its last command.
    assert find_client(shell, "-c", f"{OWN}; true") == own_identity


def test_shells_in_shells_and_launchers_are_passed(own_identity: str) -> None:
    nested = 'timeout 20 sh -c "$CODE; true"; true'
    command = subprocess.run(
        ["bash", "-c", nested],
        env={**os.environ, "CODE": OWN},
        capture_output=True,
        text=True,
        check=True,
    )
    assert command.stdout.strip() == own_identity


def test_a_shell_that_reads_a_script_is_not_the_client(own_identity: str, tmp_path: os.PathLike[str]) -> None:
    script = os.path.join(tmp_path, "hook.sh")
    with open(script, "w") as file:
        file.write(f"{OWN}\ntrue\n")
    assert find_client("sh", script) == own_identity


def test_a_script_that_names_its_shell_is_not_the_client(
    own_identity: str, tmp_path: os.PathLike[str]
) -> None:
    script = os.path.join(tmp_path, "pre-commit")
    with open(script, "w") as file:
        file.write(f"#!/bin/sh\n{OWN}\ntrue\n")
    os.chmod(script, 0o755)
    assert find_client(script) == own_identity


def test_a_shell_for_a_person_is_the_client() -> None:
    with subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        output, _ = shell.communicate(f"{OWN}\ntrue\n")
    assert output.split(":")[1] == str(shell.pid)


def test_two_children_of_one_client_have_the_same_client(own_identity: str) -> None:
    """As a hook and a server of one client: one through a shell, one started directly."""
    assert find_client("sh", "-c", f"{OWN}; true") == find_client(sys.executable, "-c", PRINT) == own_identity


def test_a_process_has_ended_once_its_id_is_free_or_used_again(own_identity: str) -> None:
    namespace, pid, start = own_identity.split(":")
    assert not has_ended(own_identity)
    assert has_ended(f"{namespace}:{pid}:{int(start) + 1}")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    info = process_tree.read_process(child.pid)
    assert info is not None
    identity = f"{namespace}:{child.pid}:{info.start}"
    assert not has_ended(identity)
    child.communicate()
    assert has_ended(identity)


@pytest.mark.parametrize("identity", ["1:1:1", "", "x", "0:x:1"])
def test_a_process_of_another_namespace_may_still_run(identity: str) -> None:
    assert not has_ended(identity)


def test_the_host_tells_the_worker_with_each_call() -> None:
    stage = Stage(MountSpec("w", builtin=True))
    stage.initialize()
    stage.serve("w", [tool("get", "convergent")])
    stage.kernel.state.session.client_process = "1:2:3"
    stage.call(1, "get", {})
    (sent,) = stage.got("w", "tools/call")
    asked = Session().asked("tools/call", Raw(msgspec.json.encode(sent.params)))
    assert isinstance(asked, Asked)
    assert asked.process == "1:2:3"


def test_ps_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/bin/ps"):
        pytest.skip("no ps on this machine")
    child = subprocess.Popen(["sh", "-c", "read x; true"], stdin=subprocess.PIPE)
    try:
        info = process_tree.read_by_ps(child.pid)
    finally:
        child.communicate()
    assert info is not None
    assert (info.parent, info.name, info.arguments[:2]) == (os.getpid(), "sh", ["sh", "-c"])
    assert info.start.count("_") == 4
    assert process_tree.read_by_ps(child.pid) is None

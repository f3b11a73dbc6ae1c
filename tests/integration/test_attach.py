"""`perdure attach`: a stdio client whose server is killed and started again behind its back."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.testing.http_client import ServeProcess
from perdure.testing.raw_client import RawClient

JSON = {"render": "json", "detail": "full"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path)
    yield process
    assert process.stop() == 0


def attached(served: ServeProcess, *options: str) -> RawClient:
    env = {**os.environ, "PERDURE_HOME": str(served.root / "home")}
    client = RawClient([sys.executable, "-P", "-m", "perdure", "attach", *options], env=env)
    client.initialize()
    return client


def test_a_stdio_client_works_over_the_serving_process(served: ServeProcess) -> None:
    with attached(served) as client:
        client.call("safe_write", {"path": "a", "content": "x\n"})
        assert (served.workspace / "a").read_text() == "x\n"


def test_several_clients_share_one_worker(served: ServeProcess) -> None:
    with attached(served) as one, attached(served) as other:
        pids = {
            client.call("health", JSON)["result"]["structuredContent"]["mounts"][0]["pid"]
            for client in (one, other)
        }
        assert len(pids) == 1


def test_the_client_does_not_notice_a_restart(served: ServeProcess) -> None:
    with attached(served) as client:
        for number in range(6):
            arguments = {"path": "log", "content": f"line {number}\n", "mode": "append"}
            identity = client.start_call("safe_write", arguments)
            served.restart()
            answer = client.wait(identity, timeout=60)
            assert not answer["result"].get("isError"), answer
        assert (served.workspace / "log").read_text() == "".join(f"line {n}\n" for n in range(6))


def test_a_session_that_nobody_knows_any_more_is_opened_again(served: ServeProcess) -> None:
    with attached(served) as client:
        served.kill()
        for path in (served.root / "home" / "serve").glob("sessions-*"):
            path.unlink()
        served.process = served._started()
        assert not client.call("set_state", {"key": "k", "value": "1"}, timeout=60)["result"].get("isError")


def test_without_a_serving_process_it_says_so(tmp_path: Path) -> None:
    env = {**os.environ, "PERDURE_HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "perdure", "attach"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 4
    assert "perdure serve" in done.stderr


def test_the_socket_is_its_owners_alone(served: ServeProcess) -> None:
    with attached(served):
        path = served.root / "home" / "serve" / "attach.sock"
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0

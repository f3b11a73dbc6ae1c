"""`perdure attach`: a stdio client whose server is killed and started again behind its back."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compiled_rules import put_compiled_rules
from harness.processes import wait_for
from perdure.testing.http_client import ServeProcess
from perdure.testing.raw_client import RawClient

JSON = {"render": "json", "detail": "full"}
SOON = 30.0  # seconds: for what comes at once on an idle machine


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    put_compiled_rules(tmp_path / "home")
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


@pytest.mark.thorough
def test_several_clients_share_one_worker(served: ServeProcess) -> None:
    with attached(served) as one, attached(served) as other:
        pids = {
            client.call("health", JSON)["result"]["structuredContent"]["mounts"][0]["pid"]
            for client in (one, other)
        }
        assert len(pids) == 1


def test_a_client_in_another_folder_writes_there(served: ServeProcess) -> None:
    """One serving process for the sessions of several projects: the entry of `perdure install --shared`."""
    folder = served.root / "another project"
    folder.mkdir()
    with attached(served, "--start", "--workspace", str(folder)) as client:
        client.call("safe_write", {"path": "a", "content": "x\n"})
    assert (folder / "a").read_text() == "x\n"
    assert not (served.workspace / "a").exists()


@pytest.mark.thorough
def test_the_client_does_not_notice_a_restart(served: ServeProcess) -> None:
    with attached(served) as client:
        for number in range(6):
            arguments = {"path": "log", "content": f"line {number}\n", "mode": "append"}
            identity = client.start_call("safe_write", arguments)
            served.restart()
            answer = client.wait(identity, timeout=60)
            assert not answer["result"].get("isError"), answer
        assert (served.workspace / "log").read_text() == "".join(f"line {n}\n" for n in range(6))


@pytest.mark.thorough
def test_a_session_that_nobody_knows_any_more_is_opened_again(served: ServeProcess) -> None:
    with attached(served) as client:
        served.kill()
        for path in (served.root / "home" / "serve").glob("sessions-*"):
            path.unlink()
        served.process = served._started()
        assert not client.call("set_state", {"key": "k", "value": "1"}, timeout=60)["result"].get("isError")


@pytest.mark.thorough
def test_a_home_with_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    """The path of a socket has room for about 100 bytes."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    served = ServeProcess(folder)
    with attached(served) as client:
        assert not client.call("set_state", {"key": "k", "value": "1"})["result"].get("isError")
    assert served.stop() == 0


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


# --- calls are made once ----------------------------------------------------------------------------------------

WORKER = Path(__file__).parent / "servers" / "counted_work.py"


class Client:
    """A client that reads only when it is told to."""

    def __init__(self, served: ServeProcess, *options: str) -> None:
        env = {**os.environ, "PERDURE_HOME": str(served.root / "home")}
        command = [sys.executable, "-P", "-m", "perdure", "attach", *options]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        self.send(id="init", method="initialize", params=hello)
        assert self.answers(1)
        self.send(method="notifications/initialized")

    def send(self, **message: Any) -> None:
        self.send_bytes(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def send_bytes(self, frame: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame + b"\n")
        self.process.stdin.flush()

    def work(self, identity: int, name: str, **arguments: Any) -> None:
        self.send(
            id=identity,
            method="tools/call",
            params={"name": "w__work", "arguments": {"name": name, **arguments}},
        )

    def answers(self, count: int) -> dict[Any, bytes]:
        """The next so many answers, by their ids."""
        assert self.process.stdout is not None
        found: dict[Any, bytes] = {}
        alarm = threading.Timer(SOON, self.process.kill)  # its end closes the pipe
        alarm.start()
        try:
            while len(found) < count:
                line = self.process.stdout.readline()
                assert line, f"the pipe was closed, or nothing came for {SOON:g} s"
                if b'"method"' not in line[:40]:
                    head = line[: line.index(b",", 20)]
                    identity = msgspec.json.decode(head.partition(b'"id":')[2])
                    assert identity not in found
                    found[identity] = line
        finally:
            alarm.cancel()
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The calls that were really made, one name per line."""
    return tmp_path / "ledger"


@pytest.fixture
def working(tmp_path: Path, ledger: Path) -> Iterator[ServeProcess]:
    """A serving process with a tool of which nothing is known, so that no call of it may be made twice."""
    process = ServeProcess(tmp_path, "--mount", "w=" + shlex.join([sys.executable, str(WORKER), str(ledger)]))
    yield process
    process.process.kill()
    process.process.wait()
    process._close_stderr()


def test_an_answer_that_was_not_read_is_no_reason_to_make_the_call_again(
    working: ServeProcess, ledger: Path
) -> None:
    client = Client(working)
    for number in range(1, 4):
        client.work(number, f"call {number}", size=2_000_000)  # none fits what pipes and sockets hold
    assert wait_for(lambda: ledger.exists() and len(ledger.read_text().splitlines()) == 3, SOON)
    working.restart()
    answers = client.answers(3)
    assert sorted(answers) == [1, 2, 3]
    assert ledger.read_text().splitlines() == ["call 1", "call 2", "call 3"]
    client.close()


@pytest.mark.thorough
def test_an_answer_with_a_very_long_number_is_an_answer(working: ServeProcess, ledger: Path) -> None:
    client = Client(working)
    client.work(1, "digits", digits=5000)
    assert b"7" * 5000 in client.answers(1)[1]
    working.restart()
    client.work(2, "after")
    assert list(client.answers(1)) == [2]
    assert ledger.read_text().splitlines() == ["digits", "after"]
    client.close()


@pytest.mark.thorough
def test_a_request_with_a_very_long_number_is_answered_although_serve_was_killed(
    working: ServeProcess, ledger: Path
) -> None:
    client = Client(working)
    arguments = b'{"name":"hangs","hang":true,"n":' + b"7" * 5000 + b"}"
    client.send_bytes(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"w__work","arguments":'
        + arguments
        + b"}}"
    )
    assert wait_for(ledger.exists, SOON)
    working.restart()
    error = msgspec.json.decode(client.answers(1)[1])["error"]
    assert error["data"]["outcome"] == "unknown"
    client.close()


# --- while there is nobody to attach to ---------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_request_without_a_serving_process_is_answered(working: ServeProcess) -> None:
    client = Client(working, "--patience", "0.2")
    working.kill()
    for number in (1, 2):
        client.work(number, "nobody")
        error = msgspec.json.decode(client.answers(1)[number])["error"]
        assert error["data"]["outcome"] == "not_started"
        assert "not made" in error["message"]
    working.process = working._started()
    client.work(3, "somebody", size=1)
    assert b"result" in client.answers(1)[3]
    client.close()


@pytest.mark.thorough
def test_a_call_that_ran_when_serve_went_for_good_has_an_unknown_outcome(
    working: ServeProcess, ledger: Path
) -> None:
    client = Client(working, "--patience", "0.2")
    client.work(1, "hangs", hang=True)
    assert wait_for(ledger.exists, SOON)
    working.kill()
    error = msgspec.json.decode(client.answers(1)[1])["error"]
    assert error["data"]["outcome"] == "unknown"
    client.close()
    working.process = working._started()


def test_a_serving_process_that_does_not_answer_is_not_waited_for_longer_than_the_patience(
    served: ServeProcess,
) -> None:
    os.kill(served.process.pid, signal.SIGSTOP)
    try:
        env = {**os.environ, "PERDURE_HOME": str(served.root / "home")}
        command = [sys.executable, "-P", "-m", "perdure", "attach", "--patience", "0.2"]
        done = subprocess.run(
            command,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
    finally:
        os.kill(served.process.pid, signal.SIGCONT)
    assert done.returncode == 4
    assert "does not answer" in done.stderr


@pytest.mark.thorough
def test_a_workspace_that_is_not_served_is_refused(served: ServeProcess, tmp_path: Path) -> None:
    env = {**os.environ, "PERDURE_HOME": str(served.root / "home")}
    command = [sys.executable, "-P", "-m", "perdure", "attach", "--workspace"]
    done = subprocess.run(
        [*command, str(tmp_path)], env=env, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 4
    assert "no such workspace" in done.stderr
    for name in ("workspace", str(served.workspace)):
        with attached(served, "--workspace", name) as client:
            client.call("safe_write", {"path": "a", "content": "x\n"})


@pytest.mark.thorough
def test_a_line_that_says_nothing_harms_nobody(served: ServeProcess) -> None:
    path = str(served.root / "home" / "serve" / "attach.sock")
    for first in (
        b"",
        b"{}\n{",
        b'{"session":5}\n',
        b'{"confirms":true}\n{"delivered":[[],1e999,7]}\n',
        b"\xff\n",
    ):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(path)
            line.sendall(first)
    with attached(served) as client:
        client.call("safe_write", {"path": "a", "content": "x\n"})

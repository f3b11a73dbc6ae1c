"""A task outlives its server, the host, and a client's patience: whoever asks for it afterwards is told the truth."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.processes import wait_for
from perdure.testing.http_client import ServeProcess
from perdure.testing.raw_client import RawClient, envelope

SERVER = Path(__file__).parents[1] / "integration" / "servers" / "tasks.py"
COMMAND = shlex.join((sys.executable, str(SERVER)))
EXTENSION = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
SOON = 30.0

Ask = Callable[..., dict[str, Any]]


def host(root: Path, *words: str) -> RawClient:
    (root / "work").mkdir(exist_ok=True)
    env = {**os.environ, "PERDURE_HOME": str(root / "home"), "PERDURE_WORKSPACE": str(root / "work")}
    return RawClient([sys.executable, "-P", "-m", "perdure", *words], env=env, cwd=root / "work")


def over_stdio(client: RawClient) -> Ask:
    def ask(method: str, **params: Any) -> dict[str, Any]:
        return client.wait(client.start(method, envelope(params, capabilities=EXTENSION)), SOON)

    return ask


def over_http(served: ServeProcess) -> Ask:
    client = served.client()
    client.capabilities = EXTENSION

    def ask(method: str, **params: Any) -> dict[str, Any]:
        answer: dict[str, Any] = client.modern(method, params).last
        return answer

    return ask


def begin(ask: Ask, tool: str, seconds: float = 60) -> str:
    created = ask("tools/call", name=tool, arguments={"seconds": seconds})["result"]
    assert created["resultType"] == "task", created
    handle: str = created["taskId"]
    return handle


def is_typed_failure(answer: dict[str, Any]) -> bool:
    task = answer["result"]
    if task["status"] != "failed":
        return False
    assert task["error"]["data"]["outcome"] == "unknown"
    assert task["error"]["code"] == -31094
    return True


MOUNTS = ("run", "--mount", f"a={COMMAND}", "--mount", f"b={COMMAND}")


@pytest.mark.thorough
def test_a_killed_server_ends_its_task_and_not_that_of_another(tmp_path: Path) -> None:
    with host(tmp_path, *MOUNTS) as client:
        ask = over_stdio(client)
        handle, other = begin(ask, "a__slow_compute"), begin(ask, "b__slow_compute", 2)
        assert ask("tasks/get", taskId=handle)["result"]["status"] == "working"
        os.kill(pid_of(ask, "a"), signal.SIGKILL)

        assert is_typed_failure(ask("tasks/get", taskId=handle))
        assert wait_for(lambda: is_completed(ask, other), SOON)


@pytest.mark.thorough
def test_a_wrapped_server_that_ends_itself_ends_its_task(tmp_path: Path) -> None:
    with host(tmp_path, "wrap", "--", *shlex.split(COMMAND)) as client:
        ask = over_stdio(client)
        handle = begin(ask, "slow_compute")
        ask("tools/call", name="die", arguments={})

        assert is_typed_failure(ask("tasks/get", taskId=handle))


def is_completed(ask: Ask, handle: str) -> bool:
    return bool(ask("tasks/get", taskId=handle)["result"]["status"] == "completed")


def pid_of(ask: Ask, mount: str) -> int:
    health = ask("tools/call", name="health", arguments={"render": "json", "detail": "full"})
    rows = health["result"]["structuredContent"]["mounts"]
    pid: int = next(row["pid"] for row in rows if row["name"] == mount)
    return pid


@pytest.mark.thorough
def test_a_killed_host_leaves_a_record_that_the_next_one_answers_from(tmp_path: Path) -> None:
    client = host(tmp_path, *MOUNTS, "--task-after", "0.5")
    ask = over_stdio(client)
    running = begin(ask, "a__slow_compute")
    done = begin(ask, "b__slow_compute", 0.1)
    assert wait_for(lambda: is_completed(ask, done), SOON)
    os.kill(client.pid, signal.SIGKILL)
    client.kill()

    records = list((tmp_path / "home" / "tasks").iterdir())
    assert [path.stat().st_mode & 0o777 for path in records] == [0o600]
    with host(tmp_path, *MOUNTS) as successor:
        ask = over_stdio(successor)
        assert is_typed_failure(ask("tasks/get", taskId=running))
        assert ask("tasks/get", taskId=done)["result"]["result"]["content"][0]["text"] == "computed "
        assert ask("tasks/get", taskId="0" * 32)["error"]["code"] == -32602


@pytest.mark.thorough
def test_a_host_that_cannot_record_tasks_says_so_once_and_serves_them(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "tasks").write_bytes(b"")  # where the directory belongs
    with host(tmp_path, *MOUNTS) as client:
        ask = over_stdio(client)
        handles = [begin(ask, "a__slow_compute", 0.1), begin(ask, "b__slow_compute", 0.1)]
        assert wait_for(lambda: all(is_completed(ask, handle) for handle in handles), SOON)

    log = (tmp_path / "home" / "log" / "events.jsonl").read_bytes()
    assert log.count(b"tasks_not_recorded") == 1


@pytest.mark.thorough
def test_an_upgrade_in_place_keeps_tasks_and_calls_that_became_tasks(tmp_path: Path) -> None:
    words = ("run", "--mount", f"a={COMMAND}", "--mount", f"old={COMMAND} --old", "--task-after", "0.3")
    with host(tmp_path, *words) as client:
        ask = over_stdio(client)
        of_server, of_host = begin(ask, "a__slow_compute", 4), begin(ask, "old__slow_compute", 4)
        log = tmp_path / "home" / "log" / "events.jsonl"
        os.kill(client.pid, signal.SIGUSR2)
        assert wait_for(lambda: "host_replaced" in log.read_text(), SOON)
        for handle in (of_server, of_host):
            assert wait_for(lambda h=handle: is_completed(ask, h), SOON)


@pytest.mark.thorough
def test_a_killed_serve_answers_for_its_tasks_after_its_restart(tmp_path: Path) -> None:
    options = ("--mount", f"a={COMMAND}", "--mount", f"old={COMMAND} --old", "--task-after", "0.3")
    served = ServeProcess(tmp_path, *options)
    try:
        ask = over_http(served)
        handles = [begin(ask, "a__slow_compute"), begin(ask, "old__slow_compute")]
        done = begin(ask, "a__slow_compute", 0.1)
        assert wait_for(lambda: is_completed(ask, done), SOON)
        assert [ask("tasks/get", taskId=h)["result"]["status"] for h in handles] == ["working"] * 2
        served.restart()
        for handle in handles:
            assert is_typed_failure(ask("tasks/get", taskId=handle))
        assert ask("tasks/get", taskId=done)["result"]["status"] == "completed"
    finally:
        served.stop()


def test_a_slow_call_of_a_handshake_server_becomes_a_task_over_http_and_can_be_cancelled(
    tmp_path: Path,
) -> None:
    served = ServeProcess(tmp_path, "--wrap", f"{COMMAND} --old", "--task-after", "0.2")
    try:
        ask = over_http(served)
        handle = begin(ask, "slow_compute", 30)
        assert ask("tasks/cancel", taskId=handle)["result"]["resultType"] == "complete"
        assert ask("tasks/get", taskId=handle)["result"]["status"] == "cancelled"
    finally:
        served.stop()

"""`perdure status`, `top` and `reload` see a running `perdure serve`: its sessions, workspaces and servers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import SCRIPT, Terminal

from harness.processes import wait_for
from perdure.testing import fake_server
from perdure.testing.http_client import HttpClient, ServeProcess
from testbed import Bed

pytestmark = pytest.mark.thorough

SESSIONS = 30


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    root = tmp_path / "served"
    other = root / "other"
    other.mkdir(parents=True)
    fake = shlex.join([sys.executable, "-S", fake_server.__file__])
    process = ServeProcess(root, "--workspace", str(other), "--mount", f"fake={fake}")
    yield process
    if process.process.poll() is None:
        assert process.stop() == 0


def perdure(served: ServeProcess, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PERDURE_HOME": str(served.root / "home"), "HOME": str(served.root), **environ}
    return subprocess.run(
        [*SCRIPT, *words],
        env=env,
        cwd=served.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(served: ServeProcess, *words: str) -> Any:
    done = perdure(served, *words, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def client_of(served: ServeProcess, name: str) -> HttpClient:
    client = served.client()
    client.name = name
    client.initialize()
    return client


def test_status_and_top_show_the_sessions_of_a_serving_process(served: ServeProcess) -> None:
    clients = [client_of(served, f"agent {number}") for number in range(SESSIONS)]
    for client in clients:
        client.call("safe_write", {"path": f"{client.name}.txt", "content": "x\n"})

    status, top = told(served, "status"), told(served, "top", "--once")

    for found in (status, top):
        (host,) = found["hosts"]
        assert (host["kind"], host["answers"], len(host["workspaces"])) == ("serve", True, 2)
        report = host["report"]
        assert (report["session_count"], len(report["sessions"])) == (SESSIONS, SESSIONS)
        assert {one["client"] for one in report["sessions"]} == {client.name for client in clients}
        assert {one["workspace"] for one in report["sessions"]} == {str(served.workspace)}
        assert {row["name"] for row in report["health"]["mounts"]} == {"perdure", "fake"}
        assert f":{served.port}/mcp" in report["address"]
    assert top["sessions"] == SESSIONS


@pytest.mark.parametrize("words", [("status",), ("top", "--once")], ids=" ".join)
def test_however_many_there_are_it_is_one_screen_of_plain_lines(
    served: ServeProcess, words: tuple[str, ...]
) -> None:
    clients = [client_of(served, f"agent {number}") for number in range(SESSIONS)]
    clients[-1].call("safe_write", {"path": "a.txt", "content": "x\n"})

    done = perdure(served, *words)

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) <= 24
    if words[0] == "top":
        assert max(map(len, lines)) <= 80
    else:  # status is never cut where it is piped
        assert "…" not in done.stdout
        assert max(map(len, lines)) > 80
    assert "\x1b" not in done.stdout
    for text in (f"{SESSIONS} sessions", f"agent {SESSIONS - 1}", " more"):
        assert text in done.stdout


def test_status_fits_the_terminal(served: ServeProcess, bed: Bed) -> None:
    clients = [client_of(served, f"agent {number}") for number in range(SESSIONS)]
    clients[-1].call("safe_write", {"path": "a" * 100, "content": "x\n"})

    status = Terminal(
        bed,
        "status",
        columns=80,
        NO_COLOR="1",
        PERDURE_HOME=str(served.root / "home"),
        PERDURE_WORKSPACE=str(served.workspace),
    )

    assert status.end() == 0
    lines = status.shown.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) == 80
    for text in (f"{SESSIONS} sessions", f"agent {SESSIONS - 1}", " more"):
        assert text in status.shown


def test_the_live_screen_shows_them_too(served: ServeProcess, bed: Bed) -> None:
    client_of(served, "someone at work")
    environ = {"PERDURE_HOME": str(served.root / "home")}
    top = Terminal(bed, "top", columns=120, **environ)
    top.wait_for("sessions of")
    top.wait_for("someone at work")
    top.type("q")
    assert top.end() == 0


def test_it_is_gone_when_it_has_ended_and_when_it_was_killed(served: ServeProcess) -> None:
    client_of(served, "one")
    served.restart()  # with kill -9
    assert [host["pid"] for host in told(served, "status")["hosts"]] == [served.process.pid]
    assert served.stop() == 0
    assert told(served, "status")["hosts"] == []
    assert list((served.root / "home" / "hosts").iterdir()) == []


def pid_of(client: HttpClient) -> int:
    mounts = client.call("health", {"render": "json", "detail": "full"})["structuredContent"]["mounts"]
    return next(int(row.get("pid", 0)) for row in mounts if row["name"] == "fake")


def test_reload_rolls_its_servers_over_and_leaves_its_sessions_alone(served: ServeProcess) -> None:
    client = client_of(served, "one")
    before = pid_of(client)

    done = perdure(served, "reload", "--host")

    assert done.returncode == 0, done.stderr
    assert "is not replaced in place" in done.stdout
    wait_for(lambda: pid_of(client) not in (before, 0), 20)
    assert served.process.poll() is None
    assert not client.call("safe_write", {"path": "a", "content": "x\n"}).get("isError")

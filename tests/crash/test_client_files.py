"""A client's file under kills and beside programs that rewrite it without asking: nobody's change is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_cases import golden, path_of
from perdure.cli.main import main
from perdure.platform import fault_points
from perdure.platform.files import exchange
from perdure.registry.clients.table import CLIENTS, Client
from perdure.storage.files import temp_names

CLIENTS_OF_EACH_FORMAT = pytest.mark.parametrize(
    "client", [CLIENTS[name] for name in ("vscode", "codex", "continue")], ids=lambda one: one.name
)


class Desk:
    """A client's file and a registry, and commands that may be killed or held at a point."""

    def __init__(self, root: Path, client: Client) -> None:
        self.root = root
        self.client = client
        self.path = root / path_of(client).name
        self.path.write_text(golden(client))
        self.registry = root / "mcp.md"
        self.registry.write_text("## weather\ncommand: python\n\n## tides\ncommand: python\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "RW_"))}
        self.environ = {**kept, "PERDURE_HOME": str(root / "home"), "PERDURE_REGISTRY": str(self.registry)}

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def servers(self) -> dict[str, Any]:
        return self.client.text.servers(self.text)

    def start(self, *words: str, fault: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "perdure", *words, self.client.name]
        return subprocess.Popen(
            [*command, "--file", str(self.path), "--apply", "--json"],
            env={**self.environ, "PERDURE_FAULT": fault},
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, fault: str = "") -> int:
        """In a child of this process, which saves a start for each of the many kills; minus the signal if it died."""
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.environ.clear()
                os.environ.update(self.environ)
                os.chdir(self.root)
                os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
                fault_points.arm(fault)
                status = main([*words, self.client.name, "--file", str(self.path), "--apply", "--json"])
                sys.stdout.flush()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def leftovers(self) -> list[str]:
        return [name for name in os.listdir(self.root) if temp_names.parsed(name) is not None]


@pytest.fixture
def desk(tmp_path: Path, client: Client) -> Desk:
    return Desk(tmp_path, client)


def killed_everywhere(desk: Desk, prepare: Callable[[], None], *words: str) -> int:
    """Kill a command at its first point, its second, and so on; after each kill the same command again must finish
    the work. Returns how many points there were."""
    prepare()
    before = desk.text if desk.path.exists() else None
    assert desk.run(*words) == 0
    after = desk.text if desk.path.exists() else None
    for number in range(1, 200):
        prepare()
        code = desk.run(*words, fault=f"*=kill@{number}")
        now = desk.text if desk.path.exists() else None
        if code == 0:
            assert now == after
            return number - 1
        assert code == -signal.SIGKILL
        assert now in (before, after), f"torn at point {number}"
        again = desk.run(*words)
        now = desk.text if desk.path.exists() else None
        assert (again, now) == (0, after), f"not finished after a kill at point {number}"
        assert desk.leftovers() == []
    raise AssertionError("the command never ended")


@pytest.mark.thorough
@pytest.mark.parametrize("client", [CLIENTS["vscode"]], ids=["vscode"])
def test_a_sync_killed_at_any_point_leaves_the_old_file_or_the_new_and_the_next_one_finishes(
    desk: Desk,
) -> None:
    def prepare() -> None:
        desk.path.write_text(golden(desk.client))
        desk.registry.write_text("## weather\ncommand: python\n\n## tides\ncommand: python\n")
        assert desk.run("registry", "sync") in (0, 3)
        desk.registry.write_text("## weather\ncommand: node\n\n## moon\ncommand: python\n")

    def fresh() -> None:
        for kept in (desk.root / "home" / "views").glob("*.json"):
            kept.unlink()
        prepare()

    assert killed_everywhere(desk, fresh, "registry", "sync") > 10
    assert {"weather", "moon"} <= set(desk.servers)
    assert "tides" not in desk.servers


@pytest.mark.thorough
@pytest.mark.parametrize("client", [CLIENTS["cursor"]], ids=["cursor"])
def test_an_install_and_an_uninstall_killed_at_any_point_can_be_made_again(desk: Desk) -> None:
    def without() -> None:
        assert desk.run("uninstall") == 0
        desk.path.write_text(golden(desk.client))

    def with_perdure() -> None:
        without()
        assert desk.run("install") == 0

    assert killed_everywhere(desk, without, "install") > 8
    assert killed_everywhere(desk, with_perdure, "uninstall") > 8
    assert desk.text == golden(desk.client)


@pytest.mark.thorough
@pytest.mark.parametrize("client", [CLIENTS["cursor"]], ids=["cursor"])
def test_a_file_that_only_perdure_wrote_is_gone_after_an_uninstall_killed_at_any_point(desk: Desk) -> None:
    def with_perdure() -> None:
        desk.run("uninstall")
        desk.path.unlink(missing_ok=True)
        assert desk.run("install") == 0

    assert killed_everywhere(desk, with_perdure, "uninstall") > 3
    assert not desk.path.exists()


@CLIENTS_OF_EACH_FORMAT
@pytest.mark.parametrize(
    "where", ["registry.read", "registry.backed_up", "write.sealed", "write.before_exchange"]
)
@pytest.mark.parametrize("style", ["renamed", "in place"])
def test_a_program_that_rewrites_the_file_meanwhile_keeps_its_change_and_we_ours(
    desk: Desk, where: str, style: str
) -> None:
    held = desk.root / "held"
    process = desk.start("registry", "sync", fault=f"{where}=pause:{held}@1")
    while not held.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    theirs = desk.client.text.with_entries(desk.text, {"theirs": {"command": "mine"}})
    if style == "renamed":
        beside = desk.root / "beside"
        beside.write_text(theirs)
        beside.rename(desk.path)
    else:
        desk.path.write_text(theirs)
    held.unlink()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert {"theirs", "weather", "tides", *desk.client.text.servers(golden(desk.client))} == set(desk.servers)
    assert desk.leftovers() == []


@pytest.mark.thorough
@pytest.mark.parametrize("client", [CLIENTS["cursor"]], ids=["cursor"])
def test_many_at_once_and_an_editor_lose_nothing(desk: Desk) -> None:
    """Exports from six registries, each with a server of its own, while another program counts in the file."""
    root = os.open(desk.root, os.O_RDONLY)
    processes = []
    for number in range(6):
        registry = desk.root / f"r{number}.md"
        registry.write_text(f"## server{number}\ncommand: python\n")
        processes.append(desk.start("registry", "--registry", str(registry), "export"))
    count = 0
    while any(process.poll() is None for process in processes):
        count += 1
        found = json.loads(desk.text)
        beside = desk.root / "beside"
        beside.write_text(json.dumps({**found, "count": count}, indent=2))
        exchange(root, beside.name, desk.path.name)
        if json.loads(beside.read_text()) != found:  # written meanwhile: not overwritten by this stale copy
            exchange(root, beside.name, desk.path.name)
        time.sleep(0.01)
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, out + err
    os.close(root)
    found = json.loads(desk.text)
    assert {f"server{number}" for number in range(6)} <= set(found["mcpServers"])
    assert found["count"] > 0
    assert set(json.loads(golden(desk.client))["mcpServers"]) <= set(found["mcpServers"])

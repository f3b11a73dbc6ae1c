"""The official TypeScript clients, from the package registry, in front of a host whose server is killed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import node
import pytest

from perdure.testing.http_client import ServeProcess
from testbed import MODERN, Bed

PACKAGES = {"@modelcontextprotocol/sdk": "1", "@modelcontextprotocol/client": "2"}

pytestmark = pytest.mark.node


@pytest.fixture(scope="session")
def packages() -> Path:
    """Where the clients are installed. Skips where there is no Node.js, or no way to get them."""
    try:
        found = node.installed(node.CACHE / "node", PACKAGES)
    except node.Unavailable as missing:
        pytest.skip(str(missing))
    if (major := node.major_version()) < 20:
        pytest.skip(f"the clients need Node.js 20 or later, this is {major}")
    # A module looks for its packages beside itself.
    shutil.copy(Path(__file__).with_name("drive.mjs"), found / "drive.mjs")
    return found


def drive(packages: Path, line: str, mode: str, **reach: Any) -> dict[str, Any]:
    """What the client saw; `reach` says how it gets at its host."""
    done = subprocess.run(
        ["node", "drive.mjs", json.dumps({"line": line, "mode": mode, **reach})],
        cwd=packages,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def expect(seen: dict[str, Any], line: str, mode: str) -> None:
    assert seen["server"]["name"] == "perdure"
    if line == "v2":
        assert seen["version"] == ("2025-11-25" if mode == "legacy" else MODERN)
    assert {"fake__echo", "health", "telemetry", "mounts"} <= set(seen["tools"])
    assert {"fake://a", "fake://b"} <= set(seen["resources"])
    assert (seen["prompt"], seen["read"]) == ("greet bob", "fake://a revision 0")
    assert seen["echo"] == {"text": "hi"}
    assert "Ada" in seen["asked"]
    assert seen["progress"]
    assert seen["progress"] == [1, 2, 3][: len(seen["progress"])]
    assert seen["lost"]["code"] == -31094
    assert seen["lost"]["data"]["outcome"] == "unknown"
    assert seen["lost"]["data"]["retry"] == "never"
    assert seen["after"] == {"text": "and on"}
    assert seen["replaced"]
    assert seen["fresh"]


every_client = pytest.mark.parametrize(
    ("line", "mode"), [("v1", "legacy"), ("v2", "legacy"), ("v2", "auto"), ("v2", MODERN)]
)
every_server = pytest.mark.parametrize("server", ["handshake", "modern"], ids=lambda era: f"{era}-server")


@every_server
@every_client
def test_the_official_client_works_through_the_death_of_its_server(
    bed: Bed, packages: Path, line: str, mode: str, server: str
) -> None:
    fake = bed.fake(f"--era={server}")
    reach = {"argv": bed.command(fake), "env": bed.environ, "cwd": str(bed.workspace)}
    expect(drive(packages, line, mode, **reach), line, mode)
    assert fake.dispatches.count("slow lost") == 1


@every_server
@every_client
def test_the_official_client_over_http_works_through_the_death_of_its_server(
    bed: Bed, packages: Path, line: str, mode: str, server: str
) -> None:
    fake = bed.fake(f"--era={server}")
    served = ServeProcess(bed.root, "--mount", fake.mount)
    try:
        expect(drive(packages, line, mode, url=f"http://127.0.0.1:{served.port}/mcp"), line, mode)
    finally:
        served.stop()
    assert fake.dispatches.count("slow lost") == 1

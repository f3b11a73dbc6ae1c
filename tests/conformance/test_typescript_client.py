"""The official TypeScript clients, from the package registry, in front of a host whose server is killed."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed import MODERN, Bed

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".bench" / "node"  # kept between runs, never committed
PACKAGES = {"@modelcontextprotocol/sdk": "1", "@modelcontextprotocol/client": "2"}

pytestmark = pytest.mark.node


@pytest.fixture(scope="session")
def packages() -> Path:
    """Where the clients are installed. Skips where there is no Node.js, or no way to get them."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js and npm are not installed")
    major = int(
        subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        .stdout[1:]
        .split(".")[0]
    )
    if major < 20:
        pytest.skip(f"the clients need Node.js 20 or later, this is {major}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the parallel sessions installs, the others wait
        if not all((CACHE / "node_modules" / name / "package.json").exists() for name in PACKAGES):
            (CACHE / "package.json").write_text('{"private": true, "type": "module"}\n')
            wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
            quiet = ["--no-package-lock", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(
                [npm, "install", *quiet, *wanted],
                cwd=CACHE,
                capture_output=True,
                text=True,
                check=False,
                timeout=200,
            )
            if done.returncode:
                pytest.skip(f"npm could not install the official clients: {done.stderr[-300:]}")
        # A module looks for its packages beside itself.
        shutil.copy(Path(__file__).with_name("drive.mjs"), CACHE / "drive.mjs")
    return CACHE


def drive(bed: Bed, packages: Path, line: str, mode: str, server: str) -> dict[str, Any]:
    fake = bed.fake(f"--era={server}")
    wanted = {
        "line": line,
        "mode": mode,
        "argv": bed.command(fake),
        "env": bed.environ,
        "cwd": str(bed.workspace),
    }
    done = subprocess.run(
        ["node", "drive.mjs", json.dumps(wanted)],
        cwd=packages,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert fake.dispatches.count("slow lost") == 1
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize("server", ["handshake", "modern"], ids=lambda era: f"{era}-server")
@pytest.mark.parametrize(
    ("line", "mode"), [("v1", "legacy"), ("v2", "legacy"), ("v2", "auto"), ("v2", MODERN)]
)
def test_the_official_client_works_through_the_death_of_its_server(
    bed: Bed, packages: Path, line: str, mode: str, server: str
) -> None:
    seen = drive(bed, packages, line, mode, server)
    assert seen["server"]["name"] == "perdure"
    if line == "v2":
        assert seen["version"] == ("2025-11-25" if mode == "legacy" else MODERN)
    assert {"fake__echo", "health", "telemetry", "mounts"} <= set(seen["tools"])
    assert {"fake://a", "fake://b"} <= set(seen["resources"])
    assert (seen["prompt"], seen["read"]) == ("greet bob", "fake://a revision 0")
    assert seen["echo"] == {"text": "hi"}
    assert "Ada" in seen["asked"]
    assert seen["progress"][:2] == [1, 2]
    assert seen["lost"]["code"] == -32094
    assert seen["lost"]["data"]["outcome"] == "unknown"
    assert seen["lost"]["data"]["retry"] == "never"
    assert seen["after"] == {"text": "and on"}
    assert seen["replaced"]
    assert seen["fresh"]

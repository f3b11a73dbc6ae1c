"""The peers, each in a virtual environment of its own under `.bench/`, made once by package name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / ".bench"
INSTALL_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Peer:
    """A published package, the requirements that make it run, and the distributions whose versions count."""

    name: str
    requirements: tuple[str, ...]
    distributions: tuple[str, ...]
    oldest_python: tuple[int, int] = (3, 11)

    @property
    def home(self) -> Path:
        return ROOT / self.name

    @property
    def bin(self) -> Path:
        return self.home / "bin"

    @property
    def python(self) -> str:
        return str(self.bin / "python")


AGENTCHECKPOINT = Peer("agentcheckpoint", ("agentcheckpoint==1.0.0", "mcp<2"), ("agentcheckpoint", "mcp"))
FASTMCP = Peer("fastmcp", ("fastmcp>=4,<5",), ("fastmcp", "mcp"))
RESILIENT_WRITE = Peer(
    "resilient-write",
    ("resilient-write==0.3.0", "mcp<2"),
    ("resilient-write", "mcp"),
    oldest_python=(3, 12),
)
DETECT_SECRETS = Peer("detect-secrets", ("detect-secrets==1.5.0",), ("detect-secrets",))


def ensure(peer: Peer) -> None:
    """Make the environment unless a complete one is there for the same requirements."""
    marker = peer.home / ".complete"
    wanted = "\n".join(peer.requirements)
    if marker.is_file() and marker.read_text() == wanted:
        return
    print(f"installing {', '.join(peer.requirements)} into {peer.home}", file=sys.stderr, flush=True)
    shutil.rmtree(peer.home, ignore_errors=True)
    _run(_interpreter(peer.oldest_python), "-m", "venv", str(peer.home))
    _run(peer.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements)
    # The marker comes last: an interrupted install is made again.
    marker.write_text(wanted)


def _interpreter(oldest: tuple[int, int]) -> str:
    """The Python of this run, or a newer one on the path or under pyenv for a peer that needs it."""
    if sys.version_info >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 4)]
    installed = Path.home() / ".pyenv" / "versions"
    places = [str(path.parent) for name in names for path in sorted(installed.glob(f"*/bin/{name}"))]
    for name in names:
        if found := shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", "")])):
            return found
    raise RuntimeError(f"this peer needs Python {oldest[0]}.{oldest[1]} or newer, and there is none")


def versions(peer: Peer) -> str:
    """What is installed, as `name version` pairs."""
    code = "import sys; from importlib.metadata import version as v; print(*(v(n) for n in sys.argv[1:]))"
    found = _run(peer.python, "-c", code, *peer.distributions).split()
    return ", ".join(f"{name} {version}" for name, version in zip(peer.distributions, found, strict=True))


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    for each in (AGENTCHECKPOINT, FASTMCP, RESILIENT_WRITE, DETECT_SECRETS):
        ensure(each)
        print(versions(each))

"""What is measured: the command line of each server, and the directory and environment all of them share."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import peers
from bench.client import Client

SERVERS = Path(__file__).resolve().parent / "servers"
MOUNT = "bench"


@dataclass(frozen=True, slots=True)
class Subject:
    """A server to start, and how it names the backend's tools."""

    name: str
    argv: tuple[str, ...]
    prefix: str = ""

    def tool(self, name: str) -> str:
        return self.prefix + name


class Bench:
    """One scratch directory: home, working directory and marks of every process of a run."""

    def __init__(self, scratch: Path, perdure: Path) -> None:
        self._perdure = str(perdure)
        self._work = scratch / "work"
        self._home = scratch / "home"
        self.marks = scratch / "marks"
        for directory in (self._work, self._home, self.marks):
            directory.mkdir()
        unwanted = ("PYTHON", "XDG_", "PERDURE_", "FASTMCP_", "RW_", "CHECKPOINT_")
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(unwanted)},
            "HOME": str(self._home),
            "CHECKPOINT_DB_PATH": str(scratch / "checkpoints.db"),
            # FastMCP without its log and without its look for a newer version.
            "FASTMCP_LOG_ENABLED": "false",
            "FASTMCP_CHECK_FOR_UPDATES": "off",
        }
        # Isolated and outside of any virtual environment: the backend is the standard library, nothing else.
        base = getattr(sys, "_base_executable", sys.executable)
        self._backend = (base, "-I", str(SERVERS / "echo.py"), str(self.marks))

    def start(self, subject: Subject) -> Client:
        return Client(list(subject.argv), cwd=self._work, env=self._env)

    def direct(self) -> Subject:
        return Subject("direct", self._backend)

    def bare(self) -> Subject:
        return Subject("perdure run", (self._perdure, "run"))

    def mounted(self) -> Subject:
        mount = f"{MOUNT}={shlex.join(self._backend)}"
        return Subject("perdure run", (self._perdure, "run", "--mount", mount), prefix=f"{MOUNT}__")

    def wrapped(self) -> Subject:
        return Subject("perdure wrap", (self._perdure, "wrap", "--", *self._backend))

    def agentcheckpoint(self) -> Subject:
        return Subject("agentcheckpoint", (str(peers.AGENTCHECKPOINT.bin / "agentcheckpoint"),))

    def fastmcp(self, session: str) -> Subject:
        proxy = str(SERVERS / "fastmcp_proxy.py")
        return Subject(f"FastMCP {session}", (peers.FASTMCP.python, proxy, session, *self._backend))

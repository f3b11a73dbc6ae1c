"""A coding client as a trial plays it: it runs hooks around changes, and commands of Perdure."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

from harness.processes import wait_for
from harness.timeline.launcher import NORMAL, Conditions, Ended, Launcher, Process
from perdure.hooks.relay import socket_path

SESSION: Final = "trial"
_START_S: Final = 30.0


class TrialClient:
    def __init__(
        self, launcher: Launcher, root: Path, session: str = SESSION, agent: str | None = None
    ) -> None:
        self.launcher = launcher
        self.root = root
        self.session = session
        self.agent = agent

    def start_hook(self, event: str, conditions: Conditions = NORMAL, **more: Any) -> Process:
        told = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.root), **more}
        if self.agent is not None:
            told["agent_id"] = self.agent
        return self.launcher.start(
            *("hook", "journal", "--client", "claude-code"),
            cwd=self.root if self.root.is_dir() else Path("/"),
            told=json.dumps(told).encode(),
            conditions=conditions,
            environ={"CLAUDE_PROJECT_DIR": str(self.root)},
        )

    def hook(self, event: str, conditions: Conditions = NORMAL, **more: Any) -> Ended:
        return self.start_hook(event, conditions, **more).wait()

    def command(self, *words: str, conditions: Conditions = NORMAL) -> Ended:
        return self.launcher.run(*words, "--json", cwd=self.root, conditions=conditions)


def tool_call(call_id: str, command: str = "make") -> dict[str, Any]:
    return {"tool_name": "Bash", "tool_use_id": call_id, "tool_input": {"command": command}}


def is_acknowledged(ended: Ended) -> bool:
    return ended == Ended(0, "", "")


def is_open(ended: Ended) -> bool:
    """A hook that failed, and kept nobody from working: the client reads its exit code and standard output."""
    return ended.code == 0 and not ended.out and "perdure hook journal: " in ended.err


class ResidentWorker:
    """A worker that takes the hooks of a workspace."""

    def __init__(self, launcher: Launcher, root: Path, conditions: Conditions = NORMAL) -> None:
        self._socket = launcher.home / "hooks" / os.path.basename(socket_path(str(root)))
        self._socket.unlink(missing_ok=True)
        self.process = launcher.start(
            "worker", "--workspace", str(root), cwd=root, told=None, conditions=conditions
        )
        wait_for(lambda: self._socket.exists() or self.process.has_ended(), _START_S)

    def is_running(self) -> bool:
        return not self.process.has_ended()

    def kill(self, after_s: float = 0.0) -> None:
        time.sleep(after_s)
        if self.is_running():
            self.process.kill()
            self.process.wait()

"""What clients talk to: a worker alone, or a whole host whose worker may be killed under it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, Literal, Protocol

import msgspec

from harness.state.events import Outcome
from perdure.present.normalize import arguments as normalized
from perdure.protocol.envelope import ToolError
from perdure.protocol.tools import View
from perdure.storage.errors import StorageError
from perdure.surfaces.state.service import StateService
from perdure.surfaces.state.surface import StateSurface
from perdure.testing.raw_client import Ended, RawClient

Kind = Literal["worker", "run"]
FULL = {"render": "json", "detail": "full"}
PATIENCE_S = 90.0


class Usable(Protocol):
    def use(self, tool: str, arguments: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]: ...


class Subject:
    """One process and the one client it has."""

    def __init__(self, kind: Kind, state: str, folder: str, fault: str = "") -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "CHECKPOINT_"))}
        environ |= {"PERDURE_STATE": state, "PERDURE_HOME": os.path.join(folder, "home")}
        if fault:
            environ["PERDURE_FAULT"] = fault
        command = [sys.executable, "-P", "-m", "perdure", kind, "--surfaces", "state", "--workspace", folder]
        self.client = RawClient(command, env=environ)
        self.client.initialize(timeout=60)

    def use(self, tool: str, arguments: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        """A call, and what its answer says of its effect."""
        try:
            response = self.client.call(tool, {**arguments, **FULL}, timeout=PATIENCE_S)
        except (Ended, OSError):
            return "unknown", {}
        if "error" in response:
            data = response["error"].get("data") or {}
            return ("refused" if data.get("outcome") == "not_started" else "unknown"), data
        answer: dict[str, Any] = response["result"]["structuredContent"]
        if response["result"]["isError"] and "status" not in answer:  # a status is an answer of the store
            fault = answer["context"].get("fault", {})
            return ("unknown" if fault.get("outcome") == "unknown" else "refused"), answer
        return "done", answer

    def done(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A call that must be answered by the store."""
        outcome, answer = self.use(tool, arguments)
        if outcome != "done":
            raise RuntimeError(f"{tool}: {outcome} {answer}")
        return answer

    def worker_pid(self) -> int | None:
        """The process that serves, as the host says."""
        outcome, answer = self.use("health", {})
        rows = answer.get("mounts", []) if outcome == "done" else []
        return next((row.get("pid") for row in rows if row["name"] == "perdure"), None)

    def kill_worker(self) -> bool:
        pid = self.worker_pid()
        with suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def close(self) -> None:
        if self.client.process.poll() is None:
            self.client.kill()


class InProcess:
    """The tools on a service of this very process: where a bug is planted, to see that it is noticed."""

    client = session = "in-process"
    invocation_key = None
    process = None
    force = False
    age_s = 0.0
    view = View("json", "full")

    def __init__(self, service: StateService) -> None:
        self._tools = {tool.spec.name: tool for tool in StateSurface(lambda: service).tools()}
        self.cancelled = threading.Event()
        self.tool = ""

    def use(self, tool: str, arguments: dict[str, Any]) -> tuple[Outcome, dict[str, Any]]:
        found = self._tools[tool]
        try:
            payload = found.run(normalized(found.spec.params, arguments), self)
        except (ToolError, StorageError):
            return "refused", {}
        return "done", msgspec.to_builtins(payload)

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass


def opened(kind: Kind, state: str, folder: str, count: int) -> list[Subject]:
    """Several at once; where one does not start, none is left behind."""
    found: list[Subject] = []
    try:
        for _ in range(count):
            found.append(Subject(kind, state, folder))
    except BaseException:
        for one in found:
            one.close()
        raise
    return found

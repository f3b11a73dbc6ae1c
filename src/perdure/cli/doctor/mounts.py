"""Every mount started once, by a host like any other: same allow list, environment, time limits, all at once.

A host of our own is run for it, so whatever it finds is what a client's host would find. Of a server's words only
what the host itself made of them is shown: no argument and no value of its environment.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.locations import registry_location
from perdure.host.launch import BUILTIN, own_command
from perdure.platform.descriptors import set_blocking
from perdure.platform.polling import READABLE, wait
from perdure.registry.backend import open_backend
from perdure.registry.errors import RegistryError

CHECK: Final = "mounts"
LOOK_EVERY_S: Final = 0.1
LONGEST_S: Final = 120.0
MORE_S: Final = 10.0
CLIENT: Final = "perdure-doctor"
ADVICE: Final = {
    "spawn_failed": "check that the command is installed and on the PATH of the client that starts perdure",
    "startup_timeout": "run its command by hand; a first start that downloads needs a longer startup time limit",
    "handshake_refused": "check that it is an MCP server that speaks on standard input and output",
    "exited": "run its command by hand and read what it says",
    "killed": "run its command by hand; the system may have ended it for want of memory",
    "unset_variable": "set the variable for the client that starts perdure",
    "command_not_allowed": "add it to `## Allowed commands` of the registry, if you trust it",
    "invalid_entry": "mend its section; `perdure registry validate` says where",
    "sign_in_required": "`perdure registry login NAME`",
}


def check(context: DoctorContext) -> Iterator[Finding]:
    yield from _check_registry(context)
    try:
        with Host(context) as host:
            rows = host.settled(min(_longest(context), LONGEST_S))
    except (OSError, HostFailed) as error:
        yield Finding(
            CHECK,
            "error",
            f"no host could be started to try the mounts: {error}",
            "a client's host would not start either",
            "see the other findings; `perdure run --log-level debug` says more",
        )
        return
    mounts = [row for row in rows if row["name"] != BUILTIN]
    for row in rows:
        yield from _judged(row)
    if not mounts:
        yield ok(CHECK, "no server is mounted here")


def _check_registry(context: DoctorContext) -> Iterator[Finding]:
    """Whether the registry's file can be read at all: a host goes on without the servers of one that cannot."""
    location = registry_location(context.settings)
    if location is None or "://" in location:
        return
    try:
        open_backend(location, os.environ).list_servers()
    except RegistryError as error:
        yield Finding(
            CHECK,
            "error",
            f"the registry {location} cannot be read: {error.message}",
            "none of its servers is mounted",
            error.hint or f"mend {location}",
        )


def _longest(context: DoctorContext) -> float:
    return context.settings.timeouts.startup + MORE_S


def _judged(row: dict[str, Any]) -> Iterator[Finding]:
    name, fault = row["name"], row.get("last_fault") or {}
    code = str(fault.get("code", ""))
    if row["state"] == "ready" and not row["restarts"]:
        yield ok(CHECK, f"{name} starts and has {row['tools']} tools")
    elif row["state"] == "ready":
        yield Finding(
            CHECK,
            "warning",
            f"{name} starts, but not at once: {fault.get('class')}/{code}",
            "its first calls wait while it is started again",
            str(fault.get("hint") or ADVICE.get(code, "run its command by hand")),
        )
    elif row["state"] == "untrusted":
        yield Finding(CHECK, "note", str(row["untrusted"]), "", "see trust")
    elif row["state"] == "disabled":
        yield Finding(
            CHECK, "note", f"{name} is disabled", "", "`perdure registry enable NAME`, if you want it"
        )
    else:
        said = f": {fault['detail']}" if fault.get("detail") and _is_ours(code) else ""
        yield Finding(
            CHECK,
            "error",
            f"{name} does not start ({fault.get('class', 'timeout')}/{code or 'startup'}){said}",
            "its tools are missing, or answer that it is not available",
            str(fault.get("hint") or ADVICE.get(code, "run its command by hand and read what it says")),
        )


def _is_ours(code: str) -> bool:
    """Whether the detail is in the host's own words."""
    return code in (
        "spawn_failed",
        "startup_timeout",
        "unset_variable",
        "command_not_allowed",
        "invalid_entry",
        "sign_in_required",
    )


class HostFailed(Exception):
    """The host itself did not come up, or went."""


class Host:
    """A host on a pipe, and just enough of a client to ask for its health."""

    def __init__(self, context: DoctorContext) -> None:
        self._words, self._folder = context.words, context.folder
        # By the environment: a command line is for everyone to read, and a URL may hold a password.
        state = context.settings.state
        self._environ = {**os.environ, "PERDURE_STATE": state} if state is not None else None
        self._id = 0
        self._rest = b""

    def __enter__(self) -> Host:
        self._process = subprocess.Popen(
            own_command("run", *self._words, "--render", "json", "--detail", "full"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a server may say there what is nobody's business
            start_new_session=True,
            env=self._environ,
            cwd=self._folder,
        )
        assert self._process.stdout is not None
        set_blocking(self._process.stdout.fileno(), False)
        return self

    def __exit__(self, *_: object) -> None:
        """Its input ends, so it ends its servers and itself; a host that does not is killed, and its guardian acts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(MORE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def settled(self, seconds: float) -> list[dict[str, Any]]:
        """The rows of all mounts when each has started or failed, or the time is over."""
        until = time.monotonic() + seconds
        info = {"name": CLIENT, "version": "0"}
        self._ask(
            "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}, until
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        roused: set[str] = set()
        while True:
            rows: list[dict[str, Any]] = self._tool("health", {}, until)["mounts"]
            for row in rows:
                if row["state"] == "cold" and row["name"] not in roused:
                    roused.add(row["name"])
                    self._tool("mounts", {"action": "restart", "name": row["name"]}, until)
            if all(_is_settled(row) for row in rows) or time.monotonic() + LOOK_EVERY_S > until:
                return rows
            time.sleep(LOOK_EVERY_S)

    def _tool(self, name: str, arguments: dict[str, Any], until: float) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("tools/call", {"name": name, "arguments": arguments}, until)
        answer: dict[str, Any] = found["structuredContent"]
        return answer

    def _ask(self, method: str, params: dict[str, Any], until: float) -> dict[str, Any]:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        while True:
            frame = msgspec.json.decode(self._line(max(until, time.monotonic() + 1.0)))
            if frame.get("id") == self._id and "method" not in frame:
                if "result" not in frame:
                    raise HostFailed(str(frame["error"].get("message", "it refused")))
                result: dict[str, Any] = frame["result"]
                return result

    def _send(self, frame: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(frame) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise HostFailed("it ended") from None

    def _line(self, until: float) -> bytes:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not wait(out, READABLE, left):
                raise HostFailed("it does not answer")
            data = os.read(out, 1 << 16)
            if not data:
                raise HostFailed("it ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _is_settled(row: dict[str, Any]) -> bool:
    if row["state"] in ("ready", "disabled", "untrusted") or row["circuit"] == "open":
        return True
    fault = row.get("last_fault") or {}
    return bool(row["restarts"]) and fault.get("class") == "timeout"

"""A session with a host that the command starts itself, as a client would: for `call`, `tools` and `doctor`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from perdure.host.launch import own_command
from perdure.testing.raw_client import RawClient

START_S: Final = 60.0
POLL_S: Final = 0.1
# A mount that has started, or will not start without somebody's help.
_SETTLED: Final = frozenset({"ready", "disabled", "untrusted"})


class SessionFailed(Exception):
    """The host did not start, ended, or does not answer."""


class HostSession:
    def __init__(self, client: RawClient) -> None:
        self._client = client

    def request(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The whole response."""
        return self._client.request(method, params, timeout=seconds)

    def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The whole response of a tool call."""
        return self.request("tools/call", {"name": tool, "arguments": arguments}, seconds)

    def mounts(self, seconds: float, *, await_retries: bool = True) -> list[dict[str, Any]]:
        """The rows of `health`, once each server has started or failed, or the time is over. Lazy servers are started.
        Without `await_retries` the first failure of a server counts."""
        until = time.monotonic() + seconds
        started: set[str] = set()
        while True:
            rows: list[dict[str, Any]] = self._host_tool("health", {}, until)["mounts"]
            for row in rows:
                if row["state"] == "cold" and row["name"] not in started:
                    started.add(row["name"])
                    self._host_tool("mounts", {"action": "restart", "name": row["name"]}, until)
            is_settled = all(
                _is_settled(row) or (not await_retries and row.get("last_fault")) for row in rows
            )
            if is_settled or time.monotonic() + POLL_S > until:
                return rows
            time.sleep(POLL_S)

    def _host_tool(self, name: str, arguments: dict[str, Any], until: float) -> dict[str, Any]:
        whole = {"render": "json", "detail": "full", **arguments}
        answer = self.call(name, whole, max(until - time.monotonic(), 1.0))
        if "result" not in answer:
            raise SessionFailed(str(answer["error"].get("message", "it refused")))
        content: dict[str, Any] = answer["result"]["structuredContent"]
        return content

    def tools(self, seconds: float) -> list[dict[str, Any]]:
        """Every listed tool, as `tools/list` defines it."""
        definitions: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        while True:
            result = self.request("tools/list", params, seconds)["result"]
            definitions += result["tools"]
            if not (cursor := result.get("nextCursor")):
                return definitions
            params = {"cursor": cursor}


@contextmanager
def open_session(
    client_name: str, options: Sequence[str], *, state: str | None = None, folder: str | None = None
) -> Iterator[HostSession]:
    """Start `perdure run` with these options. Raises SessionFailed where it does not start, ends, or does not answer.

    `state` goes by the environment: every user can read a command line, and a URL may hold a password.
    """
    environ = {**os.environ, "PERDURE_STATE": state} if state is not None else None
    client = RawClient(own_command("run", *options), environ, folder)
    try:
        client.initialize(capabilities={}, client_info={"name": client_name, "version": "1"}, timeout=START_S)
        yield HostSession(client)
    except TimeoutError:
        raise SessionFailed("it does not answer") from None
    except ConnectionError:
        raise SessionFailed(client.stderr.strip() or "it ended") from None
    finally:
        with suppress(TimeoutError):  # it was killed then
            client.close()


def _is_settled(row: dict[str, Any]) -> bool:
    if row["state"] in _SETTLED or row["circuit"] == "open":
        return True
    fault = row.get("last_fault") or {}
    return bool(row["restarts"]) and fault.get("class") == "timeout"

"""The state surface as tools and documents, declared; the store behind them, opened at the first call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import msgspec

from perdure.present.shape import Shape
from perdure.protocol.calls import Call, KeyStatus
from perdure.protocol.replay import STILL_UNKNOWN
from perdure.protocol.tools import ToolSpec
from perdure.storage.errors import StateError
from perdure.surfaces.declarations import declare_read, declare_write
from perdure.surfaces.port import Resource, Tool
from perdure.surfaces.state import read, shapes, wait, write
from perdure.surfaces.state.guides import GUIDES
from perdure.surfaces.state.limits import LONGEST_WAIT_S
from perdure.surfaces.state.service import StateService
from perdure.surfaces.state.txn import Txn

P = TypeVar("P", bound=msgspec.Struct)
Run = Callable[[StateService, Any, Call], Any]

SAME_FAILURE_S: Final = 1.0


TOOLS: Final[tuple[tuple[ToolSpec, Shape, Run], ...]] = (
    (
        declare_read(
            "get_state",
            "Read shared value",
            "Read a JSON value that all agents share, and its version. Pass that to set_state as expected_version.",
            read.Get,
            conflict=("/key",),
        ),
        shapes.GOT,
        read.get_state,
    ),
    (
        declare_write(
            "set_state",
            "Write shared value",
            "Store JSON under a key all agents see. With expected_version (from get_state) it fails on a "
            "concurrent change; without, it overwrites.",
            write.Set,
            conflict=("/key",),
            destructive=True,
        ),
        shapes.SET,
        write.set_state,
    ),
    (
        declare_write(
            "force_set_state",
            "Overwrite shared value",
            "Overwrite a shared key, whatever its version. Prefer set_state with expected_version: it notices a "
            "concurrent change.",
            write.ForceSet,
            conflict=("/key",),
            destructive=True,
        ),
        shapes.SET,
        write.force_set_state,
    ),
    (
        declare_read(
            "list_state",
            "List shared keys",
            "List shared keys by prefix or pattern, in pages; values=true adds their values.",
            read.List,
        ),
        shapes.LISTED,
        read.list_state,
    ),
    (
        declare_write(
            "delete_state",
            "Delete shared value",
            "Delete a shared key; with expected_version only at that version. state_history still shows it.",
            write.Delete,
            conflict=("/key",),
            destructive=True,
            idempotent=True,
        ),
        shapes.DELETED,
        write.delete_state,
    ),
    (
        declare_read(
            "state_wait",
            "Wait for a change",
            "Wait until another agent changes a key, or a key with a prefix. Use it instead of calling get_state "
            "again and again.",
            wait.Wait,
            deadline_s=LONGEST_WAIT_S + 30,
            waits=True,
        ),
        shapes.WAITED,
        wait.state_wait,
    ),
    (
        declare_write(
            "state_txn",
            "Change several keys",
            "If all compare conditions hold, apply then, else apply else: several keys atomically.",
            Txn,
            conflict=(
                "/then/*/key",
                "/else/*/key",
            ),
            destructive=True,
        ),
        shapes.TRANSACTED,
        write.state_txn,
    ),
    (
        declare_write(
            "state_patch",
            "Patch shared value",
            "Change a shared key in one step, no read needed: merge an object, increment a number, append to a "
            "list, revert to a version.",
            write.Patch,
            conflict=("/key",),
            destructive=True,
        ),
        shapes.PATCHED,
        write.state_patch,
    ),
    (
        declare_read(
            "state_history",
            "Key history",
            "Earlier values of a shared key, newest first, each with its agent, time and tool.",
            read.History,
            conflict=("/key",),
        ),
        shapes.HISTORY,
        read.state_history,
    ),
    (
        declare_write(
            "lease",
            "Lock a name",
            "Lock a name for ttl_s so that one agent works on it: acquire returns a token; renew, release and "
            "set_state (lease_token) need it.",
            write.LeaseCall,
            conflict=("/name",),
        ),
        shapes.LEASE,
        write.lease,
    ),
    (
        declare_write(
            "once",
            "Run once",
            "Make sure a job runs only once among agents: begin answers run, running or done; finish stores its "
            "result.",
            write.Once,
            conflict=("/key",),
        ),
        shapes.ONCE,
        write.once,
    ),
)


class StateSurface:
    """`open_service` opens the store. Where it fails, the next call tries again."""

    name = "state"

    def __init__(self, open_service: Callable[[], StateService]) -> None:
        self._open = open_service
        self._service: StateService | None = None
        self._failure: tuple[float, StateError] | None = None
        self._lock = threading.Lock()

    @property
    def service(self) -> StateService:
        found = self._service
        if found is not None:
            return found
        with self._lock:
            if self._service is None:
                self._service = self._opened()
            return self._service

    def _opened(self) -> StateService:
        """A call that waited behind a failed attempt gets that failure instead of making another attempt."""
        if self._failure is not None and time.monotonic() - self._failure[0] < SAME_FAILURE_S:
            raise self._failure[1]
        try:
            return self._open()
        except StateError as error:
            self._failure = (time.monotonic(), error)
            raise

    def tools(self) -> Sequence[Tool]:
        return tuple(self._tool(spec, shape, run) for spec, shape, run in TOOLS)

    def _tool(self, spec: ToolSpec, shape: Shape, run: Run) -> Tool:
        def handler(params: Any, call: Call) -> Any:
            try:
                outcome = run(self.service, params, call)
            except BaseException:
                self._tell(call)
                raise
            if isinstance(outcome, Future):
                outcome.add_done_callback(lambda _: self._tell(call))
            else:
                self._tell(call)
            return outcome

        is_brief = self._is_brief if not spec.read_only or run is read.get_state else lambda params: False
        return Tool(spec, shape, handler, is_brief)

    def _tell(self, call: Call) -> None:
        if self._service is not None:
            for notice in self._service.backend.take_notices():
                call.log("alert", notice)

    def _is_brief(self, params: Any) -> bool:
        """Not while the store is still to be opened."""
        return self._service is not None and self._service.backend.finds_at_once

    def resources(self) -> Sequence[Resource]:
        return GUIDES

    def probe(self, key: str) -> KeyStatus:
        try:
            return self.service.probe(key)
        except StateError:
            return STILL_UNKNOWN

    def close(self) -> None:
        with self._lock:
            service, self._service = self._service, None
        if service is not None:
            service.close()

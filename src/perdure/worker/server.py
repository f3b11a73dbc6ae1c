"""The worker's loop: one thread reads; calls run on a pool, unless they are brief.

    reader     answers initialize, server/discover, ping, every list, logging, completion, subscriptions; runs brief calls
    pool       every other tools/call, resources/read, perdure/probe
    commit     one thread per store: commits for all calls that wait, and answers them

A slow tool therefore never delays a ping. A request is answered once, or not at all after its cancellation.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, assert_never

import msgspec
from msgspec import Raw

from perdure.platform.limits import raise_file_limit
from perdure.protocol import eras, frames
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import QUEUE_FULL, Fault
from perdure.protocol.frames import Malformed, Notification, Request, RequestId, Response
from perdure.protocol.tool_groups import Profile
from perdure.protocol.tools import DEFAULT_VIEW, View
from perdure.supervise.line_io import Oversize
from perdure.surfaces.port import Surface
from perdure.worker.context import Running
from perdure.worker.diagnostics import DEFAULT_LEVEL, Diagnostics, log_to_diagnostics
from perdure.worker.methods import Answer, Methods
from perdure.worker.pipe import FrameReader, FrameWriter, claim_stdio
from perdure.worker.session import Asked, Refusal, Session, shaped
from perdure.worker.tool_table import ToolTable

MAX_STREAMS: Final = 64
DRAIN_S: Final = 2.0
BRIEF: Final = 8 * 1024
"""A call of more bytes runs on the pool."""
MAX_THREADS: Final = 32
MAX_UNFINISHED: Final = 1024

_encode = msgspec.json.encode


class Server:
    """One client on one pipe."""

    def __init__(
        self,
        tools: ToolTable,
        incoming: Iterator[bytes | Oversize],
        out: FrameWriter,
        *,
        view: View = DEFAULT_VIEW,
        roots: tuple[str, ...] = (),
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._out = out
        self._diagnostics = diagnostics or Diagnostics()
        self._session = Session()
        self._methods = Methods(tools, self._session, view, roots, self._diagnostics)
        self._incoming = incoming
        self._pool = ThreadPoolExecutor(MAX_THREADS, "call")
        self._ledger = threading.Lock()
        self._finished = threading.Condition(self._ledger)
        self._unfinished = 0
        self._is_draining = False
        self._running: dict[RequestId, Running] = {}
        self._keys: dict[Running, str] = {}
        self._streams: dict[RequestId, Asked] = {}

    def serve(self, drain_s: float = DRAIN_S) -> bool:
        """Answer until the end of input, then give running calls a moment to finish. False if some still run."""
        try:
            for frame in self._incoming:
                self._frame(frame)
        except KeyboardInterrupt:
            self._diagnostics.say("info", "interrupted")
        for identity, asked in self._streams.items():
            self._settle(identity, asked, _encode({"_meta": {eras.META_SUBSCRIPTION: identity}}))
        with self._finished:
            self._is_draining = True
            is_drained = self._finished.wait_for(lambda: self._unfinished == 0, drain_s)
            left = tuple(self._running.values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        if not is_drained:
            self._diagnostics.say("warning", "calls were still running at exit")
            for running in left:
                running.cancel()
        return is_drained

    def _frame(self, frame: bytes | Oversize) -> None:
        if isinstance(frame, Oversize):
            identity = frames.salvage_id(frame.head, frame.tail)
            message = "the request is too large: send a large file in pieces (chunk_append)."
            self._out.write(frames.encode_error(identity, frames.INVALID_REQUEST, message))
            return
        match frames.decode(frame):
            case Request() as request:
                self._request(request, len(frame))
            case Notification("notifications/cancelled", params):
                self._cancel(params)
            case Notification() | Response():
                pass  # nothing here waits for either: the worker never asks its client anything
            case Malformed() as bad:
                # An error under the id of a broken response could be taken for the answer to a request.
                if not bad.is_response or bad.id is None:
                    self._out.write(frames.encode_error(bad.id, bad.code, bad.reason))
            case unreachable:
                assert_never(unreachable)

    def _request(self, request: Request, size: int) -> None:
        identity, methods = request.id, self._methods
        with self._ledger:
            is_taken = identity in self._running or identity in self._streams
        if is_taken:
            message = "this request id belongs to a call that still runs: use another id."
            self._refuse(identity, Refusal(frames.INVALID_REQUEST, message))
            return
        asked = self._session.asked(request.method, request.params)
        if isinstance(asked, Refusal):
            self._refuse(identity, asked)
            return
        match request.method:
            case "tools/call":
                self._call(identity, asked, size)
            case "resources/read":
                self._work(identity, asked, lambda: methods.read(asked))
            case eras.PROBE_METHOD:
                self._work(identity, asked, lambda: methods.probe(asked, self._is_running))
            case "subscriptions/listen":
                self._listen(identity, asked)
            case _:
                answer = methods.immediate(asked)
                self._settle(
                    identity,
                    asked,
                    answer or Refusal(frames.METHOD_NOT_FOUND, f"no method {request.method[:128]} here."),
                )

    def _settle(self, identity: RequestId, asked: Asked, answer: Answer) -> None:
        if isinstance(answer, Refusal):
            self._refuse(identity, answer)
        else:
            self._out.write(frames.encode_result(identity, shaped(asked, answer)))

    def _refuse(self, identity: RequestId, refusal: Refusal) -> None:
        self._out.write(frames.encode_error(identity, refusal.code, refusal.message, refusal.data))

    # --- calls ---------------------------------------------------------------------------------------------

    def _call(self, identity: RequestId, asked: Asked, size: int) -> None:
        if (tool := self._methods.tool(asked)) is None:
            self._refuse(identity, Refusal(frames.INVALID_PARAMS, self._methods.describe_unknown(asked)))
            return
        key = asked.invocation_key()
        if (running := self._admit(identity, key)) is None:
            return
        call = self._methods.call(tool, key, asked, running)

        def start() -> None:
            if running.cancelled.is_set():
                self._finish(running)
            else:
                call.start(
                    lambda result: self._answer(running, asked, lambda: _encode(result)),
                    again=lambda: self._run(start),
                )

        if size <= BRIEF and call.is_brief():
            start()
        else:
            self._run(start)

    def _work(self, identity: RequestId, asked: Asked, work: Callable[[], Answer]) -> None:
        if (running := self._admit(identity)) is not None:
            self._run(lambda: self._answer(running, asked, work))

    def _admit(self, identity: RequestId, key: str | None = None) -> Running | None:
        with self._ledger:
            if self._unfinished < MAX_UNFINISHED:
                self._unfinished += 1
                running = self._running[identity] = Running(identity, self._out)
                if key is not None:
                    self._keys[running] = key
                return running
        fault = Fault("resource", "worker_queue_full", hint="retry when a call has finished")
        error = host_error(
            QUEUE_FULL, fault, mount="perdure", call="", attempts=0, outcome="not_started", retry="later"
        )
        self._out.write(frames.encode_raw_error(identity, error))
        return None

    def _run(self, work: Callable[[], None]) -> None:
        """On the pool. Where no further thread can be started, a busy one takes it later."""
        with suppress(RuntimeError):
            self._pool.submit(self._guarded, work)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            # The call has no answer. After the end of this process the host probes for its outcome.
            self._diagnostics.unexpected("call", error)
            os._exit(1)

    def _answer(self, running: Running, asked: Asked, work: Callable[[], Answer]) -> None:
        try:
            answer = work()
        except (Exception, SystemExit) as error:
            incident = self._diagnostics.unexpected(asked.method, error)
            message = f"An error inside Perdure: its log has it as incident {incident}."
            answer = Refusal(frames.INTERNAL_ERROR, message, {"incident": incident})
        # Forgotten before it is answered: a client may use the id again as soon as it reads the answer.
        self._forget(running)
        if isinstance(answer, Refusal):
            running.answer(frames.encode_error(running.id, answer.code, answer.message, answer.data))
        else:
            running.answer(frames.encode_result(running.id, shaped(asked, answer)))
        self._finish(running)

    def _finish(self, running: Running) -> None:
        self._forget(running)
        with self._ledger:
            self._unfinished -= 1
            if self._is_draining and not self._unfinished:
                self._finished.notify_all()

    def _forget(self, running: Running) -> None:
        with self._ledger:
            if self._running.get(running.id) is running:
                del self._running[running.id]
            self._keys.pop(running, None)

    def _is_running(self, key: str) -> bool:
        with self._ledger:
            return key in self._keys.values()

    def _listen(self, identity: RequestId, asked: Asked) -> None:
        """Open a stream that stays silent: nothing the worker lists changes while it lives."""
        if len(self._streams) >= MAX_STREAMS:
            self._refuse(
                identity,
                Refusal(frames.INTERNAL_ERROR, "too many subscription streams are open: end one first."),
            )
            return
        self._streams[identity] = asked
        params = _encode({"notifications": {}, "_meta": {eras.META_SUBSCRIPTION: identity}})
        self._out.write(frames.encode_notification("notifications/subscriptions/acknowledged", params))

    def _cancel(self, raw: Raw | None) -> None:
        try:
            identity = frames.decode_id(frames.members(raw)["requestId"]) if raw is not None else None
        except (ValueError, KeyError):
            return  # a notification has no answer, so a broken one has none either
        if identity is None:
            return
        self._streams.pop(identity, None)
        with self._ledger:
            running = self._running.pop(identity, None)
        if running is not None:
            running.cancel()


def serve_stdio(
    surfaces: Sequence[Surface],
    *,
    tools: Sequence[str] = (),
    profile: Profile = "full",
    view: View = DEFAULT_VIEW,
    roots: tuple[str, ...] = (),
    log_level: str = DEFAULT_LEVEL,
    log_format: str = "text",
) -> int:
    """Serve the given surfaces, or only some of their tools, on stdin and stdout until the client closes the pipe."""
    raise_file_limit()
    source, sink = claim_stdio()
    diagnostics = Diagnostics(log_level, log_format)
    log_to_diagnostics(diagnostics)
    table = ToolTable(surfaces, tools, profile)
    out = FrameWriter(sink)
    gc.freeze()  # loaded modules stay: the collector need not look through them again
    server = Server(table, FrameReader(source), out, view=view, roots=roots, diagnostics=diagnostics)
    if not server.serve():
        sys.stderr.flush()
        os._exit(0)  # the interpreter would wait for the calls that still run
    return 0

"""The worker's loop: who reads answers at once what needs no work; for the rest another thread reads on.

    while reading       initialize, server/discover, ping, every list, logging, completion, subscriptions,
                        a tool that is done, or waits with others, before anybody could be woken
    after handing on    every other tools/call, resources/read, perdure/probe; work for all who wait

A slow tool therefore never delays a ping. A request is answered once, or not at all after its cancellation.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

import msgspec
from msgspec import Raw

from perdure.platform.limits import raise_file_limit
from perdure.protocol import eras, frames, relief
from perdure.protocol.faults import QUEUE_FULL, Fault, host_error
from perdure.protocol.frames import Malformed, Notification, Request, RequestId, Response
from perdure.protocol.tool_groups import Profile
from perdure.protocol.tools import DEFAULT_VIEW, View
from perdure.protocol.waiting import Steps
from perdure.surfaces.port import Surface
from perdure.worker.alarm import Alarm
from perdure.worker.context import Running
from perdure.worker.course import Course, Errands
from perdure.worker.crew import KEPT_S, Crew, Job
from perdure.worker.diagnostics import DEFAULT_LEVEL, Diagnostics
from perdure.worker.logs import log_to_diagnostics
from perdure.worker.methods import Answer, Methods, Work
from perdure.worker.pipe import FrameReader, FrameWriter, Oversize, claim_stdio
from perdure.worker.registry import Registry
from perdure.worker.session import Asked, Refusal, Session, shaped

MAX_STREAMS: Final = 64
DRAIN_S: Final = 2.0
BRIEF: Final = 8 * 1024

_encode = msgspec.json.encode


class Server:
    """One client on one pipe."""

    def __init__(
        self,
        registry: Registry,
        incoming: Iterator[bytes | Oversize],
        out: FrameWriter,
        *,
        view: View = DEFAULT_VIEW,
        roots: tuple[str, ...] = (),
        diagnostics: Diagnostics | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        self._out = out
        self._diagnostics = diagnostics or Diagnostics()
        self._session = Session()
        self._methods = Methods(registry, self._session, view, roots, self._diagnostics)
        self._incoming = incoming
        has_input = incoming.has_more if isinstance(incoming, FrameReader) else lambda: True
        self._crew = Crew(self._next_job, has_input=has_input, alarm=alarm)
        self._errands = Errands(self._crew.end)
        self._ledger = threading.Lock()
        self._running: dict[RequestId, Running] = {}
        self._keys: dict[Running, str] = {}
        self._streams: dict[RequestId, Asked] = {}

    def serve(self, drain_s: float = DRAIN_S) -> None:
        """Answer until the end of input, then give running calls a moment to finish."""
        try:
            self._crew.serve()
        except KeyboardInterrupt:
            self._diagnostics.say("info", "interrupted")
        for identity, asked in self._streams.items():
            self._settle(identity, asked, _encode({"_meta": {eras.META_SUBSCRIPTION: identity}}))
        if not self._crew.drain(drain_s):
            self._diagnostics.say("warning", "calls were still running at exit")
            with self._ledger:
                left = tuple(self._running.values())
            for running in left:
                running.cancel()

    def _next_job(self) -> Job | None:
        for frame in self._incoming:
            if (job := self._frame(frame)) is not None:
                return job
        return None

    def _frame(self, frame: bytes | Oversize) -> Job | None:
        """Answered, or what is left to do."""
        if isinstance(frame, Oversize):
            identity = frames.salvage_id(frame.head, frame.tail)
            message = "the request is too large: send a large file in pieces (chunk_append)."
            self._out.write(frames.encode_error(identity, frames.INVALID_REQUEST, message))
            return None
        match frames.decode(frame):
            case Request() as request:
                return self._request(request, len(frame))
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
        return None

    def _request(self, request: Request, size: int) -> Job | None:
        identity, methods = request.id, self._methods
        with self._ledger:
            is_taken = identity in self._running or identity in self._streams
        if is_taken:
            self._refuse(
                identity,
                Refusal(
                    frames.INVALID_REQUEST,
                    "this request id belongs to a call that still runs: use another id.",
                ),
            )
            return None
        asked = self._session.asked(request.method, request.params)
        if isinstance(asked, Refusal):
            self._refuse(identity, asked)
            return None
        match request.method:
            case "tools/call":
                if (tool := methods.tool(asked)) is None:
                    self._refuse(identity, Refusal(frames.INVALID_PARAMS, methods.describe_unknown(asked)))
                    return None
                key = asked.invocation_key()

                def called(running: Running) -> Steps[Answer]:
                    return methods.call(tool, key, asked, running)

                is_brief = size <= BRIEF and tool.is_brief()
                takes_room = not is_brief or tool.steps is not None
                return self._work(identity, asked, called, key, is_brief=is_brief, takes_room=takes_room)
            case "resources/read":
                return self._work(identity, asked, lambda _: methods.read(asked))
            case eras.PROBE_METHOD:
                return self._work(identity, asked, lambda _: methods.probe(asked, self._is_running))
            case "subscriptions/listen":
                self._listen(identity, asked)
            case _:
                answer = methods.immediate(asked)
                self._settle(
                    identity,
                    asked,
                    answer or Refusal(frames.METHOD_NOT_FOUND, f"no method {request.method[:128]} here."),
                )
        return None

    def _settle(self, identity: RequestId, asked: Asked, answer: Answer) -> None:
        if isinstance(answer, Refusal):
            self._refuse(identity, answer)
        else:
            self._out.write(frames.encode_result(identity, shaped(asked, answer)))

    def _refuse(self, identity: RequestId, refusal: Refusal) -> None:
        self._out.write(frames.encode_error(identity, refusal.code, refusal.message, refusal.data))

    def _work(
        self,
        identity: RequestId,
        asked: Asked,
        work: Work,
        key: str | None = None,
        *,
        is_brief: bool = False,
        takes_room: bool = True,
    ) -> Job | None:
        """Done, or waiting with others; or what is left to do."""
        if takes_room and not self._crew.admits():
            self._turn_away(identity)
            return None
        running = Running(identity, self._out)
        with self._ledger:
            self._running[identity] = running
            if key is not None:
                self._keys[running] = key

        def course() -> Course:
            return Course(self._answered(asked, work, running, takes_room), self._errands)

        return course().advance() if is_brief else lambda: _at_leisure(course())

    async def _answered(self, asked: Asked, work: Work, running: Running, takes_room: bool) -> None:
        if not running.cancelled.is_set():
            answer = await self._guarded(asked, work, running)
            # Forgotten before it is answered: a client may use the id again as soon as it reads the answer.
            self._forget(running)
            if isinstance(answer, Refusal):
                running.answer(frames.encode_error(running.id, answer.code, answer.message, answer.data))
            else:
                running.answer(frames.encode_result(running.id, shaped(asked, answer)))
        self._forget(running)
        if takes_room:
            self._crew.leaves()

    def _turn_away(self, identity: RequestId) -> None:
        fault = Fault("resource", "worker_queue_full", hint="retry when a call has finished")
        error = host_error(
            QUEUE_FULL, fault, mount="perdure", call="", attempts=0, outcome="not_started", retry="later"
        )
        self._out.write(frames.encode_raw_error(identity, error))

    async def _guarded(self, asked: Asked, work: Work, running: Running) -> Answer:
        try:
            return await work(running)
        except (Exception, SystemExit) as error:
            incident = self._diagnostics.unexpected(asked.method, error)
            message = f"An error inside Perdure: its log has it as incident {incident}."
            return Refusal(frames.INTERNAL_ERROR, message, {"incident": incident})

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


def _at_leisure(course: Course) -> None:
    relief.now()
    course.run()


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
    registry = Registry(surfaces, tools, profile)
    out = FrameWriter(sink)
    gc.freeze()  # what was loaded stays: nobody has to look through it again for what can go
    Server(
        registry,
        FrameReader(source),
        out,
        view=view,
        roots=roots,
        diagnostics=diagnostics,
        alarm=Alarm.made(KEPT_S),
    ).serve()
    return 0

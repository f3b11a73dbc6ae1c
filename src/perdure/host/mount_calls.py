"""Calls of mounted servers in the time machine: the workspace is observed before a call is sent and after it has ended.

    effect ToChild  (a call) ──▶ held ──▶ the recorder has observed ──▶ sent
    effect ToClient (its answer) ──▶ held ──▶ the recorder has observed ──▶ sent

The recorder is in the worker and takes the same requests as from a hook (`hooks/relay.py`). The kernel knows nothing of
it: effects are held back between the kernel and the pipes. Nothing waits longer than `ANSWER_S`, and a recorder that is not
there, fails or does not answer changes nothing about the call. A tool that is declared read-only is not observed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from socket import SHUT_WR, socket
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from perdure.hooks.mount import CLIENT
from perdure.hooks.relay import encode_request, socket_path
from perdure.kernel.core import Kernel
from perdure.kernel.events import Effect, Exit, Note, Stop, ToChild, ToClient
from perdure.kernel.state import ForCall, ForPing, InFlight, Invocation
from perdure.platform import sockets
from perdure.platform.process_tree import own_process
from perdure.protocol.frames import members_if_clear
from perdure.supervise.event_loop import EventLoop

ANSWER_S: Final = 6.0
MOST_INPUT: Final = 64 * 1024
"""Of a larger input only the names of the tool and the call are told: one write takes all of it."""
_HEAD: Final = b'{"jsonrpc":"2.0","id":'

_Link = tuple[str, int]


class _Annotations(msgspec.Struct, frozen=True):
    readOnlyHint: bool | None = None


class _Call(NamedTuple):
    """A call that was observed before it was sent. Its mount may be gone when it ends. `tool` is the public name."""

    invocation: Invocation
    tool: str
    cwd: str


class MountCalls:
    """For one session. `perform` carries out an effect that was held back."""

    def __init__(
        self, kernel: Kernel, workspace: str, loop: EventLoop, perform: Callable[[Effect], None]
    ) -> None:
        self._kernel = kernel
        self._workspace = os.path.realpath(workspace)
        self._loop = loop
        self._perform = perform
        self._calls: dict[int, _Call] = {}
        """The calls that were observed before they were sent and have not ended."""
        self._queues: dict[_Link, deque[tuple[Effect, _Observation | None]]] = {}
        """Frames to one process keep their order: those behind a call wait with it."""
        self._answers: dict[_Observation, Effect] = {}

    def take_up(self) -> None:
        """After an upgrade of the host: the calls that its predecessor has sent."""
        for call in self._kernel.state.calls.values():
            if isinstance(call.state, InFlight) and self._may_change_files(call):
                self._begin(call)

    def filter(self, effects: list[Effect]) -> list[Effect]:
        """The effects of one event that are carried out now."""
        ended = self._take_ended()
        now: list[Effect] = []
        for effect in effects:
            match effect:
                case ToChild() if not self._hold_frame(effect):
                    now.append(effect)
                case ToChild():
                    pass
                case ToClient(frame) if (call := _find_answered(ended, frame)) is not None:
                    ended.remove(call)
                    if not self._hold_answer(call, effect):
                        now.append(effect)
                case Stop(mount, generation):
                    now += self._take_queue((mount, generation))
                    now.append(effect)
                case Exit():
                    self.release()
                    now.append(effect)
                case _:
                    now.append(effect)
        for call in ended:  # without an answer: it was cancelled
            self._observe("after", call, _ignore)
        return now

    def release(self) -> None:
        """Nothing is held back any longer: the session ends, or the host is replaced."""
        for link in list(self._queues):
            for effect in self._take_queue(link):
                self._perform(effect)
        answers, self._answers = self._answers, {}
        for observation, effect in answers.items():
            observation.give_up()
            self._perform(effect)

    # --- before a call ---------------------------------------------------------------------------------------

    def _hold_frame(self, effect: ToChild) -> bool:
        link = effect.mount, effect.generation
        purpose = self._purpose(effect.frame)
        if isinstance(purpose, ForPing):
            return False
        observation = None
        call = self._kernel.state.calls.get(purpose.seq) if isinstance(purpose, ForCall) else None
        if call is not None and call.seq not in self._calls and self._may_change_files(call):
            observation = self._observe("before", self._begin(call), lambda: self._advance(link))
        if observation is None and link not in self._queues:
            return False
        self._queues.setdefault(link, deque()).append((effect, observation))
        return True

    def _advance(self, link: _Link) -> None:
        queue = self._queues.get(link)
        while queue:
            effect, observation = queue[0]
            if observation is not None and not observation.is_over:
                return
            queue.popleft()
            self._perform(effect)
        self._queues.pop(link, None)

    def _take_queue(self, link: _Link) -> list[Effect]:
        queue = self._queues.pop(link, deque())
        effects: list[Effect] = []
        while queue:  # `_advance` may be at it
            effect, observation = queue.popleft()
            effects.append(effect)
            if observation is not None:
                observation.give_up()
        return effects

    def _begin(self, call: Invocation) -> _Call:
        spec = self._kernel.specs[call.mount]
        begun = _Call(call, spec.prefix + call.name, spec.cwd or self._workspace)
        self._calls[call.seq] = begun
        return begun

    def _purpose(self, frame: bytes) -> object:
        """Of a request of the host; None for any other frame."""
        if not frame.startswith(_HEAD):
            return None
        digits, _, rest = frame[len(_HEAD) : len(_HEAD) + 40].partition(b",")
        if not digits.isdigit() or not rest.startswith(b'"method"'):
            return None
        route = self._kernel.state.routes.get(int(digits))
        return route.purpose if route is not None else None

    def _may_change_files(self, call: Invocation) -> bool:
        spec = self._kernel.specs.get(call.mount)
        if call.method != "tools/call" or spec is None or spec.builtin:
            return False
        entry = self._kernel.public.tool(spec.prefix + call.name)
        if entry is None:
            return True
        try:
            raw = members_if_clear(Raw(entry.definition)).get("annotations")
            hints = msgspec.json.decode(raw, type=_Annotations) if raw is not None else _Annotations()
        except msgspec.MsgspecError:
            return True
        return hints.readOnlyHint is not True

    # --- after it --------------------------------------------------------------------------------------------

    def _take_ended(self) -> list[_Call]:
        running = self._kernel.state.calls
        return [self._calls.pop(seq) for seq in list(self._calls) if seq not in running]

    def _hold_answer(self, call: _Call, effect: Effect) -> bool:
        observation: _Observation | None = None

        def send() -> None:
            held = self._answers.pop(observation, None) if observation is not None else None
            if held is not None:
                self._perform(held)

        observation = self._observe("after", call, send)
        if observation is not None:
            self._answers[observation] = effect
        return observation is not None

    # --- the recorder ----------------------------------------------------------------------------------------

    def _observe(self, when: str, call: _Call, then: Callable[[], None]) -> _Observation | None:
        """None where no recorder takes it."""
        try:
            connection = sockets.new_local()
        except OSError:
            return None
        try:
            connection.setblocking(False)
            sockets.connect(connection, socket_path(self._workspace))
            request = self._request(when, call)
            if connection.send(request) < len(request):
                raise BlockingIOError
            connection.shutdown(SHUT_WR)
        except (OSError, ValueError):  # ValueError: a path that is not UTF-8
            connection.close()
            return None
        return _Observation(connection, self._loop, then, lambda: self._tell(call.invocation.mount))

    def _request(self, when: str, call: _Call) -> bytes:
        session, params = self._kernel.state.session, call.invocation.params
        arguments = members_if_clear(Raw(params) if params is not None else None).get("arguments")
        payload = {
            "when": when,
            "client": session.client_name,
            "session": session.session_id,
            "process": session.client_process,
            "host": own_process(),
            "tool": call.tool,
            "call_id": f"{session.session_id}.{call.invocation.seq}",
            "cwd": call.cwd,
            "arguments": arguments if arguments is not None and len(bytes(arguments)) <= MOST_INPUT else None,
        }
        return encode_request(
            msgspec.json.encode(payload), client=CLIENT, cwd=self._workspace, project=self._workspace
        )

    def _tell(self, mount: str) -> None:
        """Not as a fault of the mount, which works."""
        detail = (
            f"a call of {mount} went on unobserved: the time machine did not answer within {ANSWER_S:g} s"
        )
        self._perform(Note("fault", {"class": "timeout", "code": "not_observed", "detail": detail}))


class _Observation:
    """A request to the recorder. `then` is called once: when it is answered, and when the time is over."""

    def __init__(
        self,
        connection: socket,
        loop: EventLoop,
        then: Callable[[], None],
        tell_late: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._then = then
        self._tell_late = tell_late
        self.is_over = False
        loop.add_reader(connection.fileno(), self._finish)
        self._timer = loop.call_later(ANSWER_S, self._expire)

    def give_up(self) -> None:
        """Nobody waits for it any longer. The recorder still takes it."""
        if not self.is_over:
            self.is_over = True
            self._timer.cancel()
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()

    def _finish(self) -> None:
        if not self.is_over:
            self.give_up()
            self._then()

    def _expire(self) -> None:
        if not self.is_over:
            self._tell_late()
            self._finish()


def _ignore() -> None:
    pass


def _find_answered(ended: list[_Call], frame: bytes) -> _Call | None:
    """The call among these that a frame answers."""
    for call in ended:
        head = _HEAD + msgspec.json.encode(call.invocation.public_id) + b","
        if frame.startswith(head) and not frame.startswith(b'"method"', len(head)):
            return call
    return None

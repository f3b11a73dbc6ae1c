"""Seeded bugs of sessions, shared servers and the supervisor, one at a time, for the explorer of histories."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw, structs

from harness.seeded_bugs import Function, SeededBugs, after, before, do_nothing, replace, skip_if, wrap
from perdure.kernel.events import ChildFrame, ClientFrame, Stop
from perdure.protocol.frames import encode_request, encode_result
from perdure.serve import http_session, server_pool, shared_server
from perdure.serve.deliveries import Deliveries
from perdure.serve.http_session import HttpSession
from perdure.serve.server_pool import ServerPool
from perdure.serve.shared_server import Answered, NotSent, Sent, SharedServer, Waiting
from perdure.supervise import supervisor
from perdure.supervise.kernel_runner import KernelRunner
from perdure.supervise.supervisor import Supervisor

BUGS: Final = SeededBugs()


# --- the handshake of a shared server --------------------------------------------------------------------------


@BUGS.add("the handshake is sent for every session")
def handshake_is_sent_for_every_session() -> None:
    def greet(self: SharedServer, session: Any, generation: int, identity: int, frame: bytes) -> None:
        self._handshake = Sent(identity, [Waiting(session, generation, identity)])
        self._write(frame)

    replace(SharedServer, "_greet", greet)


@BUGS.add("only the first session gets the handshake's answer")
def only_first_is_greeted() -> None:
    wrap(
        SharedServer,
        "_greeted",
        lambda original: lambda self, waiting, frame: original(self, waiting[:1], frame),
    )


@BUGS.add("the handshake waits for the session that asked first")
def handshake_belongs_to_its_session() -> None:
    def part(self: SharedServer, session: Any) -> None:
        if isinstance(self._handshake, Sent) and self._handshake.id >> shared_server.SHIFT == session.number:
            self._handshake = Sent(-1, self._handshake.waiting)

    before(SharedServer, "part", part)


@BUGS.add("a refused handshake is kept as if it were an answer")
def refused_handshake_is_kept() -> None:
    def greeted(self: SharedServer, waiting: Any, frame: bytes) -> None:
        if isinstance(self._handshake, NotSent):
            self._handshake = Answered(Raw(b"{}"))

    after(SharedServer, "_greeted", greeted)


@BUGS.add("a refused handshake is never tried again")
def refused_handshake_stays_sent() -> None:
    def make(original: Function) -> Function:
        def greeted(self: SharedServer, waiting: Any, frame: bytes) -> None:
            state = self._handshake
            original(self, waiting, frame)
            if isinstance(self._handshake, NotSent):
                self._handshake = state

        return greeted

    wrap(SharedServer, "_greeted", make)


@BUGS.add("a session that left still waits for the handshake")
def left_session_waits() -> None:
    def make(original: Function) -> Function:
        def part(self: SharedServer, session: Any) -> Any:
            kept = list(self._handshake.waiting) if isinstance(self._handshake, Sent) else []
            result = original(self, session)
            if isinstance(self._handshake, Sent):
                self._handshake.waiting[:] = kept
            self.users.update({one.session.number: (one.session, one.generation) for one in kept})
            return result

        return part

    wrap(SharedServer, "part", make)


@BUGS.add("every session says that it is initialized")
def initialized_is_repeated() -> None:
    def send(self: SharedServer, session: Any, generation: int, frame: bytes) -> None:
        self._has_begun = False

    before(SharedServer, "send", send)


@BUGS.add("nobody says that the handshake is done")
def initialized_is_never_sent() -> None:
    def send(self: SharedServer, session: Any, generation: int, frame: bytes) -> None:
        self._has_begun = True

    before(SharedServer, "send", send)


# --- ids, lists, levels, subscriptions, questions --------------------------------------------------------------


@BUGS.add("requests of the process's own share an id")
def own_ids_are_shared() -> None:
    replace(SharedServer, "_own_id", lambda self: 7)


@BUGS.add("an answer goes to another session")
def answer_goes_to_another() -> None:
    def user(self: SharedServer, number: int) -> Any:
        return next(reversed(self.users.values()), None)

    replace(SharedServer, "_user", user)


@BUGS.add("a renumbered session is not found by its old ids")
def old_ids_are_forgotten() -> None:
    def renumber(self: SharedServer, old: int, new: int) -> None:
        self._former.clear()

    after(SharedServer, "renumber", renumber)


@BUGS.add("a renumbered session keeps its old number too")
def old_number_stays() -> None:
    def make(original: Function) -> Function:
        def renumber(self: SharedServer, old: int, new: int) -> None:
            user = self.users.get(old)
            original(self, old, new)
            if user is not None:
                self.users[old] = user

        return renumber

    wrap(SharedServer, "renumber", make)


@BUGS.add("the level is that of the last session that asked")
def level_is_the_last() -> None:
    def tell(self: SharedServer, identity: int | None = None) -> None:
        if self._levels:
            level = list(self._levels.values())[-1]
            number = identity if identity is not None else self._own_id()
            self._write(encode_request(number, "logging/setLevel", b'{"level":"%s"}' % level.encode()))

    replace(SharedServer, "_tell_level", tell)


@BUGS.add("the level of a session that left stays")
def left_level_stays() -> None:
    wrap(
        SharedServer,
        "part",
        lambda original: lambda self, session: _keeping(self, "_levels", original, session),
    )


def _keeping(owner: Any, name: str, original: Function, *arguments: Any) -> Any:
    kept = getattr(owner, name).copy()
    setattr(owner, name, type(kept)())
    result = original(owner, *arguments)
    setattr(owner, name, kept)
    return result


@BUGS.add("a subscription of a session that left stays")
def left_subscription_stays() -> None:
    wrap(
        SharedServer,
        "part",
        lambda original: lambda self, session: _keeping(self, "_subscribers", original, session),
    )


@BUGS.add("one session's unsubscribe ends it for all")
def unsubscribe_ends_for_all() -> None:
    def subscribe(
        self: SharedServer, session: Any, generation: int, identity: int, method: str, frame: bytes
    ) -> None:
        if method == "resources/unsubscribe":
            for numbers in self._subscribers.values():
                numbers.clear()

    before(SharedServer, "_subscribe", subscribe)


@BUGS.add("the last unsubscribe is not sent")
def unsubscribe_is_not_sent() -> None:
    def make(original: Function) -> Function:
        def subscribe(
            self: SharedServer, session: Any, generation: int, identity: int, method: str, frame: bytes
        ) -> None:
            if method == "resources/subscribe":
                original(self, session, generation, identity, method, frame)
            else:
                session.feed(ChildFrame(self.spec.name, generation, encode_result(identity, b"{}")))

        return subscribe

    wrap(SharedServer, "_subscribe", make)


@BUGS.add("a question to a session that left is never answered")
def question_dies_with_its_session() -> None:
    def part(self: SharedServer, session: Any) -> None:
        self._asked = {one: number for one, number in self._asked.items() if number != session.number}

    before(SharedServer, "part", part)


@BUGS.add("a question that was answered is answered again when its session leaves")
def answered_question_is_kept() -> None:
    def make(original: Function) -> Function:
        def send(self: SharedServer, session: Any, generation: int, frame: bytes) -> None:
            kept = dict(self._asked)
            original(self, session, generation, frame)
            self._asked = kept

        return send

    wrap(SharedServer, "send", make)


@BUGS.add("a question is put to every session")
def question_goes_to_all() -> None:
    def question(self: SharedServer, request: Any, frame: bytes) -> None:
        if request.method != "ping":
            for number, user in list(self.users.items()):
                self._asked[request.id] = number
                self._to(user, frame)

    replace(SharedServer, "_question", question)


@BUGS.add("a ping of a server is not answered")
def ping_is_not_answered() -> None:
    skip_if(SharedServer, "_question", lambda self, request, frame: request.method == "ping")


@BUGS.add("a question that nobody waits for is dropped")
def question_is_dropped() -> None:
    skip_if(
        SharedServer,
        "_question",
        lambda self, request, frame: all(one.waits_since("m") is None for one, _ in self.users.values()),
    )


@BUGS.add("a change is told only to the first session")
def change_is_told_to_one() -> None:
    def make(original: Function) -> Function:
        def notice(self: SharedServer, note: Any, frame: bytes) -> None:
            users = self.users
            self.users = dict(list(users.items())[:1])
            original(self, note, frame)
            self.users = users

        return notice

    wrap(SharedServer, "_notice", make)


@BUGS.add("a change is told twice")
def change_is_told_twice() -> None:
    def make(original: Function) -> Function:
        def notice(self: SharedServer, note: Any, frame: bytes) -> None:
            original(self, note, frame)
            original(self, note, frame)

        return notice

    wrap(SharedServer, "_notice", make)


# --- which process serves which session ------------------------------------------------------------------------


@BUGS.add("a delayed start happens though its session left")
def delayed_start_after_leave() -> None:
    def make(original: Function) -> Function:
        def leave(self: ServerPool, session: Any) -> None:
            kept = set(self._delayed)
            original(self, session)
            self._delayed = kept

        return leave

    wrap(ServerPool, "leave", make)


@BUGS.add("a delayed start is forgotten")
def delayed_start_is_forgotten() -> None:
    replace(ServerPool, "_attach_delayed", do_nothing)


@BUGS.add("a delayed start of a generation that was given up happens")
def delayed_start_after_detach() -> None:
    def make(original: Function) -> Function:
        def detach(self: ServerPool, session: Any, mount: str, generation: int, *, force: bool) -> None:
            kept = set(self._delayed)
            original(self, session, mount, generation, force=force)
            self._delayed = kept

        return detach

    wrap(ServerPool, "detach", make)


@BUGS.add("every session starts a process at once")
def starts_are_not_paced() -> None:
    replace(server_pool, "START_EVERY_S", -1.0)


@BUGS.add("a session that leaves stays a user")
def leaver_stays_a_user() -> None:
    def leave(self: ServerPool, session: Any) -> None:
        self._delayed = {one for one in self._delayed if one[0] is not session}

    replace(ServerPool, "leave", leave)


@BUGS.add("a generation that was given up stays a user")
def detached_stays_a_user() -> None:
    skip_if(ServerPool, "detach", lambda self, session, mount, generation, force: not force)


@BUGS.add("a server that no session uses is never ended")
def idle_server_stays() -> None:
    replace(server_pool, "IDLE_S", 1e9)


@BUGS.add("a server without users is not noticed to be idle")
def idle_is_not_noticed() -> None:
    replace(ServerPool, "_left", do_nothing)


@BUGS.add("a process that ends is told to one session only")
def end_is_told_to_one() -> None:
    def make(original: Function) -> Function:
        def ended(self: ServerPool, server: SharedServer, what: Any) -> None:
            server.users = dict(list(server.users.items())[:1])
            original(self, server, what)

        return ended

    wrap(ServerPool, "_ended", make)


@BUGS.add("a process that ended gets new sessions")
def ended_process_gets_sessions() -> None:
    def make(original: Function) -> Function:
        def ended(self: ServerPool, server: SharedServer, what: Any) -> None:
            original(self, server, what)
            self._current[server_pool._key(server.spec)] = server
            server.child.input_open = True

        return ended

    wrap(ServerPool, "_ended", make)


@BUGS.add("a start that fails is told to nobody")
def failed_start_is_not_told() -> None:
    replace(ServerPool, "_lose", do_nothing)


@BUGS.add("a forced stop leaves the process alive")
def forced_stop_does_nothing() -> None:
    def make(original: Function) -> Function:
        def stop(self: Supervisor, child: Any, *, force: bool = False) -> None:
            if not force:
                original(self, child)

        return stop

    wrap(Supervisor, "stop", make)


@BUGS.add("a frame to a server is lost while another session joins")
def frames_are_lost() -> None:
    skip_if(
        ServerPool, "send", lambda self, session, mount, generation, frame: len(self._running[0].users) > 1
    )


@BUGS.add("a generation is told with another session's number")
def losses_name_another_generation() -> None:
    def make(original: Function) -> Function:
        def ended(self: ServerPool, server: SharedServer, what: Any) -> None:
            server.users = {
                number: (session, generation + 1) for number, (session, generation) in server.users.items()
            }
            original(self, server, what)

        return ended

    wrap(ServerPool, "_ended", make)


# --- the supervisor --------------------------------------------------------------------------------------------


@BUGS.add("what a process said last is dropped")
def last_words_are_dropped() -> None:
    def end(self: Supervisor, child: Any, status: int) -> None:
        child.output = b'{"jsonrpc":"2.0","method":"notifications/x"}\n' if child.output else b""

    before(Supervisor, "_end", end)


@BUGS.add("the end of a process is not told")
def exit_is_not_told() -> None:
    skip_if(Supervisor, "_tell", lambda self, hear, *what: getattr(hear, "__name__", "") == "on_exit")


@BUGS.add("the end of a process is told before its last lines")
def exit_comes_first() -> None:
    def make(original: Function) -> Function:
        def end(self: Supervisor, child: Any, status: int) -> None:
            original(self, child, status)
            child.listener.on_exit(child.ended)

        return end

    wrap(Supervisor, "_end", make)


@BUGS.add("the group of a process that ended is not ended")
def group_is_not_ended() -> None:
    def make(original: Function) -> Function:
        def end(self: Supervisor, child: Any, status: int) -> None:
            kill, child.kill = child.kill, do_nothing
            original(self, child, status)
            child.kill = kill

        return end

    wrap(Supervisor, "_end", make)


@BUGS.add("the guardian is not told of an end")
def guardian_is_not_told() -> None:
    def make(original: Function) -> Function:
        def end(self: Supervisor, child: Any, status: int) -> None:
            original(self, child, status)
            self.guardian.remember(child.pid)

        return end

    wrap(Supervisor, "_end", make)


@BUGS.add("a guardian that died is not replaced")
def guardian_is_not_replaced() -> None:
    replace(Supervisor, "_renew_guardian", do_nothing)


@BUGS.add("a new guardian does not know the processes")
def guardian_is_ignorant() -> None:
    def renewed(self: Supervisor) -> None:
        for pid in self.children:
            self.guardian.forget(pid)

    after(Supervisor, "_renew_guardian", renewed)


@BUGS.add("a pipe that broke is not noticed")
def broken_pipe_is_ignored() -> None:
    replace(Supervisor, "_break", lambda self, child: self._close_input(child))


@BUGS.add("a process that closed its pipe lives on")
def broken_process_lives_on() -> None:
    replace(Supervisor, "_give_up_broken", do_nothing)


@BUGS.add("what waits in an outbox is never written")
def outbox_is_not_flushed() -> None:
    replace(Supervisor, "_set_writing", do_nothing)


@BUGS.add("a process is not read again after its lines were taken")
def reading_is_not_resumed() -> None:
    calls = [0]

    def make(original: Function) -> Function:
        def reading(self: Supervisor, child: Any, on: bool) -> None:
            calls[0] += 1
            if not on or calls[0] % 7:
                original(self, child, on)

        return reading

    wrap(Supervisor, "_set_reading", make)


@BUGS.add("an idle process is stopped without a deadline")
def stop_has_no_deadline() -> None:
    replace(supervisor, "TERMINATE_S", 1e9)
    replace(supervisor, "KILL_S", 1e9)


@BUGS.add("the pipes of a process that ended stay open")
def pipes_stay_open() -> None:
    def make(original: Function) -> Function:
        def end(self: Supervisor, child: Any, status: int) -> None:
            original(self, child, status)
            child.output_open = True

        return end

    wrap(Supervisor, "_end", make)


@BUGS.add("an exception costs the lines behind it")
def exception_costs_lines() -> None:
    def make(original: Function) -> Function:
        def tell(self: Supervisor, hear: Function, *what: Any) -> None:
            if getattr(hear, "__name__", "") == "on_line" and b'"method"' in what[0]:
                hear.__self__.child.reader.ready.clear()  # type: ignore[attr-defined]
            original(self, hear, *what)

        return tell

    wrap(Supervisor, "_tell", make)


# --- the kernel runner and the session -------------------------------------------------------------------------


@BUGS.add("an exception on a client's frame is not answered")
def client_exception_is_silent() -> None:
    wrap(
        KernelRunner,
        "_answer_error",
        lambda original: (
            lambda self, event, error: [] if isinstance(event, ClientFrame) else original(self, event, error)
        ),
    )


@BUGS.add("a session that is given up answers nobody")
def given_up_session_is_silent() -> None:
    def abandon(self: HttpSession, error: Exception) -> None:
        self._server_pool.leave(self)
        self.unload()

    replace(HttpSession, "abandon", abandon)


@BUGS.add("a session that is given up stays a user")
def given_up_session_stays() -> None:
    def make(original: Function) -> Function:
        def abandon(self: HttpSession, error: Exception) -> None:
            leave, self._server_pool.leave = self._server_pool.leave, do_nothing  # type: ignore[method-assign]
            original(self, error)
            self._server_pool.leave = leave  # type: ignore[method-assign]

        return abandon

    wrap(HttpSession, "abandon", make)


@BUGS.add("no timer is set")
def timer_is_not_set() -> None:
    replace(KernelRunner, "_set_timer", do_nothing)


@BUGS.add("a timer that was too early is the last")
def early_timer_is_the_last() -> None:
    def make(original: Function) -> Function:
        def wake(self: KernelRunner) -> None:
            original(self)
            self._timer_at = -1.0

        return wake

    wrap(KernelRunner, "_wake", make)


@BUGS.add("a call is sent before its record")
def record_comes_late() -> None:
    wrap(HttpSession, "before_effects", lambda original: lambda self, effects: effects)


@BUGS.add("the record of a delivered call is kept")
def delivered_record_is_kept() -> None:
    def make(original: Function) -> Function:
        def delivered(self: Deliveries, identity: Any) -> None:
            self._saved.pop(identity, None)
            original(self, identity)

        return delivered

    wrap(Deliveries, "delivered", make)


@BUGS.add("an answer that did not arrive is not kept")
def lost_answer_is_not_kept() -> None:
    replace(Deliveries, "keep", do_nothing)


@BUGS.add("an answer is sent to its exchange twice")
def answer_is_sent_twice() -> None:
    def make(original: Function) -> Function:
        def answer(self: HttpSession, identity: Any, frame: bytes) -> None:
            exchange = self.exchanges.get(identity)
            original(self, identity, frame)
            if exchange is not None:
                exchange.answer(frame)

        return answer

    wrap(HttpSession, "_answer", make)


@BUGS.add("a server's question to a client that does not read is lost")
def stopped_server_is_not_let_go() -> None:
    wrap(
        HttpSession,
        "stop_server",
        lambda original: (
            lambda self, effect: original(self, structs.replace(effect, generation=effect.generation + 1))
        ),
    )


@BUGS.add("a restart stops the process of every session")
def stop_is_always_forced() -> None:
    wrap(
        HttpSession,
        "stop_server",
        lambda original: (
            lambda self, effect: original(self, Stop(effect.mount, effect.generation - 1, force=True))
        ),
    )


@BUGS.add("a session that ends goes on")
def ended_session_goes_on() -> None:
    def end(self: HttpSession) -> None:
        self.is_over = True

    replace(http_session.HttpSession, "end", end)

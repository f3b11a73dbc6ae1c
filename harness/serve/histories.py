"""Histories of sessions that share servers: what can happen next, what must hold after it, and how a history ends.

An action is a line of text, so a history that fails can be read, replayed and shortened. Nothing but `run`, `step` and
`wait` lets the event loop work: between them bytes wait in pipes, exits wait to be noticed and timers to be due, so
that a session may leave, or a process die, in the midst of anything.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import msgspec

from harness.kernel.histories import Failure, Tally
from harness.kernel.invariants import Violation, demand
from harness.serve.stage import OUTBOX_BYTES, VERSION, PlayedChild, PlayedSession, ServeStage
from perdure.kernel.events import ChildFrame, ChildLost, Order, Reload, ToChild
from perdure.protocol.eras import LATEST_MODERN, LOG_LEVELS
from perdure.serve.exchange import Exchange, FrameQueue
from perdure.serve.server_pool import IDLE_S, START_EVERY_S, TEND_S
from perdure.serve.shared_server import Answered, SharedServer
from perdure.supervise.supervisor import KILL_S

SCOPE: Final = "sessions that share servers"
ENDINGS: Final = ("answering", "dying", "silent")
MOST_ALIVE: Final = 3
MOST_SESSIONS: Final = 6
MOST_WANTS: Final = 3
LEVELS: Final = ("debug", "error")
URI: Final = "notes://one"
WAITS: Final = ("0.05", "0.11", "1", "4", "31", "70")
PADDING: Final = "x" * 700
TOOLS: Final = [
    {"name": "once", "inputSchema": {"type": "object"}},
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
CAPABILITIES: Final = {"tools": {"listChanged": True}, "logging": {}, "resources": {"subscribe": True}}


class Want:
    """A request of a client, until its answer was delivered or nobody wants it any more."""

    def __init__(self, session: int, identity: str, method: str, params: Any, token: str) -> None:
        self.session = session
        self.identity = identity
        self.method = method
        self.params = params
        self.token = token
        self.exchange: Exchange | None = None
        self.is_done = False
        self.is_cancelled = False


class Server:
    """What the server in one process has heard and not answered."""

    def __init__(self) -> None:
        self.pending: list[Any] = []
        self.ids: set[int] = set()
        self.is_greeted = False
        self.began = 0
        self.level = ""
        self.subscribed: set[str] = set()
        self.questions: dict[str, int] = {}
        self.notices: dict[str, list[tuple[PlayedSession, int]]] = {}
        self.is_shut = False
        self.cancelled: set[int] = set()
        self.said: list[int] = []
        """The ids that it answered."""


class Run:
    def __init__(self) -> None:
        self.stage = ServeStage()
        self.stage.on_heard = self._hear
        self.actions: list[str] = []
        self.wants: list[Want] = []
        self.servers: dict[int, Server] = {}
        self.executions: dict[str, int] = {}
        self.levels: dict[tuple[int, int], str] = {}
        """By session and process: the level that the session's kernel asked for last."""
        self.subscriptions: dict[tuple[int, int], set[str]] = {}
        self.sent: dict[tuple[int, int, int], int] = {}
        """By session, process and id: the generation in which a session's kernel sent a request."""
        self.greeted: set[int] = set()
        self.loses_next: set[int] = set()
        self.reloaded_at = [-1.0]
        self.count = 0
        self.begun: set[int] = set()
        self.generations: dict[tuple[int, int], int] = {}
        self.broken: Violation | None = None
        """What a process heard and must not: it is found inside of code that contains exceptions."""

    # --- what can happen next --------------------------------------------------------------------------------

    def live(self) -> list[int]:
        return [number for number, one in enumerate(self.stage.sessions) if not one.runner.is_stopped]

    def possible(self) -> list[str]:
        live = self.live()
        found = ["run", "step", *(f"wait {seconds}" for seconds in WAITS)]
        if len(live) < MOST_ALIVE and len(self.stage.sessions) < MOST_SESSIONS:
            found.append("open")
        for number in live:
            found += self._of_session(number)
        for child in self.stage.alive:
            found += self._of_child(child)
        if any(not child.is_alive and child.pid in self._unreaped() for child in self.stage.children):
            found.append("reap")
        found.append("roomy" if self.stage.records.is_full else "full")
        found += ["guardian", "reload", "cannot-start" if not self.stage.cannot_start else "can-start"]
        return found

    def _unreaped(self) -> dict[int, Any]:
        return dict(self.stage.pool.supervisor.children)

    def _of_session(self, number: int) -> list[str]:
        found = [f"leave {number}", f"trip {number}", f"restart {number}", f"renumber {number}"]
        if not any(want.session == number and want.method == "initialize" for want in self.wants):
            return [*found, f"init {number}"]
        if number not in self.greeted:
            return found
        running = [want for want in self.wants if want.session == number and not want.is_done]
        if len(running) < MOST_WANTS:
            found += [
                f"call {number} once",
                f"call {number} look",
                f"subscribe {number}",
                f"unsubscribe {number}",
            ]
            found += [f"level {number} {level}" for level in LEVELS]
        if any(want.exchange is not None for want in running):
            found += [f"hangup {number}", f"lose {number}"]
        if any(want.exchange is not None and want.method == "tools/call" for want in running):
            found.append(f"cancel {number}")
        if any(want.exchange is None for want in running):
            found.append(f"retry {number}")
        if self._question(number) is not None:
            found.append(f"reply {number}")
        return found

    def _of_child(self, child: PlayedChild) -> list[str]:
        server, number = self.servers.get(child.number), child.number
        found = [f"die {number}", f"noise {number}", f"ping {number}"]
        found.append(f"hear {number}" if child.is_deaf else f"deaf {number}")
        if server is None:
            return found
        for index, request in enumerate(server.pending[:3]):
            found.append(f"answer {number} {index}")
            if request["method"] != "tools/call":
                found.append(f"refuse {number} {index}")
        if server.is_greeted:
            found += [f"notice {number}", f"log {number}", f"shut {number}"]
            if any(one["method"] == "tools/call" for one in server.pending):
                found += [f"ask {number}", f"roots {number}"]
        return found

    # --- actions ---------------------------------------------------------------------------------------------

    def act(self, action: str) -> None:
        self.actions.append(action)
        verb, *words = action.split()
        try:
            delayed = set(self.stage.pool._delayed)
            shut = [number for number, server in self.servers.items() if server.is_shut]
            getattr(self, "_do_" + verb.replace("-", "_"))(*words)
            self._raise_broken()
            self._settle()
            self.judge(at_rest=verb in ("run", "wait"))
            if verb == "wait" and float(words[0]) >= 1:
                self._judge_wait(delayed, shut)
        except Violation:
            raise
        except Exception:
            raise Violation("no-exception", traceback.format_exc(limit=-3)) from None

    def _raise_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _judge_wait(self, delayed: set[Any], shut: list[int]) -> None:
        """What was due in this time has happened."""
        demand(not delayed & self.stage.pool._delayed, "no-orphan", "a delayed start never comes")
        alive = [number for number in shut if self.stage.children[number].is_alive]
        demand(not alive, "no-leak", "a process that closed its pipe lives on")

    def _do_run(self) -> None:
        self.stage.run_ready()

    def _do_step(self) -> None:
        self.stage.run_once()

    def _do_wait(self, seconds: str) -> None:
        self.stage.advance(float(seconds))

    def _do_reap(self) -> None:
        self.stage.reap()

    def _do_open(self) -> None:
        session = self.stage.open()
        number = len(self.stage.sessions) - 1
        send = session.send_to_server

        def watched(effect: ToChild) -> None:
            self._note_sent(number, effect)
            send(effect)

        session.send_to_server = watched  # type: ignore[method-assign]

    def _do_init(self, number: str) -> None:
        capabilities: dict[str, Any] = {"elicitation": {}} if int(number) % 2 else {}
        params = {
            "protocolVersion": VERSION,
            "capabilities": capabilities,
            "clientInfo": {"name": f"client {number}", "version": "1"},
        }
        self._want(int(number), "initialize", params)

    def _do_call(self, number: str, tool: str) -> None:
        self.count += 1
        token = f"{number}.{self.count}"
        arguments = {"token": token, "padding": PADDING}
        self._want(int(number), "tools/call", {"name": tool, "arguments": arguments}, token)

    def _do_level(self, number: str, level: str) -> None:
        self._want(int(number), "logging/setLevel", {"level": level})

    def _do_subscribe(self, number: str) -> None:
        self._want(int(number), "resources/subscribe", {"uri": URI})

    def _do_unsubscribe(self, number: str) -> None:
        self._want(int(number), "resources/unsubscribe", {"uri": URI})

    def _want(self, number: int, method: str, params: Any, token: str = "") -> None:
        want = Want(number, f"r{len(self.wants)}", method, params, token)
        self.wants.append(want)
        self._post(want)

    def _post(self, want: Want) -> None:
        session = self.stage.sessions[want.session]
        want.exchange, _ = self.stage.post(session, want.identity, want.method, want.params)

    def _open_want(self, number: str, *, left: bool = False, method: str = "") -> Want:
        return next(
            want
            for want in self.wants
            if want.session == int(number)
            and not want.is_done
            and (want.exchange is None) == left
            and want.method.startswith(method)
        )

    def _do_hangup(self, number: str) -> None:
        """The client's connection breaks; it may ask again."""
        want = self._open_want(number)
        exchange, want.exchange = want.exchange, None
        assert exchange is not None
        self.stage.sessions[want.session].give_up(exchange)
        if want.method == "initialize":
            want.is_done = True  # a client opens another session instead

    def _do_lose(self, number: str) -> None:
        """The next answer to this client does not arrive."""
        self.loses_next.add(int(number))

    def _do_retry(self, number: str) -> None:
        self._post(self._open_want(number, left=True))

    def _do_cancel(self, number: str) -> None:
        want = self._open_want(number, method="tools/call")
        want.is_done = want.is_cancelled = True
        session = self.stage.sessions[want.session]
        params = {"requestId": want.identity}
        session.post(
            msgspec.json.encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
            None,
        )
        if want.exchange is not None:
            session.give_up(want.exchange)

    def _do_reply(self, number: str) -> None:
        question = self._question(int(number))
        session = self.stage.sessions[int(number)]
        for frames in self._unread(int(number)):
            kept = [one for one in frames if b"elicitation/create" not in one]
            frames.clear()
            for one in kept:
                frames.append(one)
        answer = {"jsonrpc": "2.0", "id": question, "result": {"action": "decline"}}
        session.post(msgspec.json.encode(answer), None)

    def _question(self, number: int) -> Any:
        for frames in self._unread(number):
            for frame in frames:
                if b"elicitation/create" in frame:
                    return msgspec.json.decode(frame)["id"]
        return None

    def _unread(self, number: int) -> list[FrameQueue]:
        """What a client has on its streams, or gets when it opens its standing one."""
        session = self.stage.sessions[number]
        return [session._kept, *(exchange.frames for exchange in session.exchanges.values())]

    def _do_leave(self, number: str) -> None:
        self.stage.sessions[int(number)].end()
        for want in self.wants:
            if want.session == int(number):
                want.is_done = True

    def _do_renumber(self, number: str) -> None:
        """As where its ids are used up."""
        self.stage.sessions[int(number)]._renumber()

    def _do_trip(self, number: str) -> None:
        """The next event of this session meets a bug of ours."""
        kernel = self.stage.sessions[int(number)].kernel
        handle = kernel.handle

        def fail(*_: Any) -> Any:
            kernel.handle = handle  # type: ignore[method-assign]
            kernel.out.clear()
            raise RuntimeError("a bug of ours")

        kernel.handle = fail  # type: ignore[assignment, method-assign]

    def _do_restart(self, number: str) -> None:
        self.stage.sessions[int(number)].feed(Order("m", "restart"))

    def _do_reload(self) -> None:
        self.reloaded_at.append(self.stage.loop.now)
        self.stage.pool.renew()
        for number in self.live():
            self.stage.sessions[number].feed(Reload())

    def _do_full(self) -> None:
        self.stage.records.is_full = True

    def _do_roomy(self) -> None:
        self.stage.records.is_full = False

    def _do_cannot_start(self) -> None:
        self.stage.cannot_start = True

    def _do_can_start(self) -> None:
        self.stage.cannot_start = False

    def _do_guardian(self) -> None:
        self.stage.guardian.is_dead = True
        self.stage.reap()
        demand(not self.stage.guardian.is_dead, "guarded", "a guardian that died was not replaced")

    # --- what servers do -------------------------------------------------------------------------------------

    def _child(self, number: str) -> tuple[PlayedChild, Server]:
        child = self.stage.children[int(number)]
        return child, self.servers.setdefault(child.number, Server())

    def _do_die(self, number: str) -> None:
        self._child(number)[0].die(256)

    def _do_shut(self, number: str) -> None:
        child, server = self._child(number)
        child.is_output_ended = server.is_shut = True

    def _do_deaf(self, number: str) -> None:
        self._child(number)[0].is_deaf = True

    def _do_hear(self, number: str) -> None:
        self._child(number)[0].is_deaf = False

    def _do_noise(self, number: str) -> None:
        self._child(number)[0].output += b"starting up\n" * 3

    def _do_ping(self, number: str) -> None:
        self._ask(number, "ping")

    def _do_ask(self, number: str) -> None:
        params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        self._ask(number, "elicitation/create", params)

    def _do_roots(self, number: str) -> None:
        self._ask(number, "roots/list")

    def _ask(self, number: str, method: str, params: Any = None) -> None:
        child, server = self._child(number)
        if server.is_shut:
            return
        self.count += 1
        identity = f"q{self.count}"
        server.questions[identity] = 0
        child.say({"id": identity, "method": method, **({"params": params} if params else {})})

    def _do_notice(self, number: str) -> None:
        child, server = self._child(number)
        if server.is_shut:
            return
        self.count += 1
        mark = f"n{self.count}"
        users = [one for s in self.stage.pool.running if s.child is child for one in s.users.values()]
        server.notices[mark] = [(session, generation) for session, generation in users]  # type: ignore[misc]
        params = {"_meta": {"mark": mark}}
        child.say({"method": "notifications/tools/list_changed", "params": params})

    def _do_log(self, number: str) -> None:
        child, server = self._child(number)
        if not server.is_shut:
            child.say({"method": "notifications/message", "params": {"level": "error", "data": "x"}})

    def _do_answer(self, number: str, index: str) -> None:
        child, server = self._child(number)
        request = server.pending.pop(int(index))
        if not server.is_shut:
            if request["method"] == "initialize":
                server.is_greeted = True
            child.say({"id": request["id"], "result": self._result(request)})
            server.said.append(request["id"])

    def _do_refuse(self, number: str, index: str) -> None:
        child, server = self._child(number)
        request = server.pending.pop(int(index))
        if not server.is_shut:
            child.say({"id": request["id"], "error": {"code": -32601, "message": "no"}})

    def _result(self, request: Any) -> Any:
        match request["method"]:
            case "initialize":
                return {
                    "protocolVersion": VERSION,
                    "capabilities": CAPABILITIES,
                    "serverInfo": {"name": "s", "version": "1"},
                }
            case "server/discover":
                return {"supportedVersions": [LATEST_MODERN], "capabilities": CAPABILITIES}
            case "tools/list":
                return {"tools": TOOLS}
            case "resources/list":
                return {"resources": [{"uri": URI, "name": "one"}]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "tools/call":
                token = request["params"]["arguments"]["token"]
                return {"content": [{"type": "text", "text": token}]}
            case _:
                return {}

    def _hear(self, child: PlayedChild, message: Any) -> None:
        try:
            self._judge_heard(child, message)
        except Violation as broken:
            self.broken = self.broken or broken

    def _judge_heard(self, child: PlayedChild, message: Any) -> None:
        """What a process reads: the server's own state, and what must never reach it."""
        server = self.servers.setdefault(child.number, Server())
        method, identity = message.get("method"), message.get("id")
        if method is None:
            known = identity in server.questions
            demand(known, "question-once", f"an answer to {identity}, which was not asked")
            server.questions[identity] += 1
            demand(server.questions[identity] == 1, "question-once", f"{identity} was answered twice")
            return
        if identity is not None:
            demand(identity not in server.ids, "unique-ids", f"the id {identity} came twice: {method}")
            server.ids.add(identity)
            server.pending.append(message)
        match method:
            case "initialize":
                others = [one for one in server.pending if one["method"] == "initialize"]
                demand(len(others) == 1 and not server.is_greeted, "one-handshake", "initialize came twice")
            case "notifications/initialized":
                server.began += 1
                demand(server.is_greeted, "one-handshake", "initialized came before the handshake")
                demand(server.began == 1, "one-handshake", "initialized came twice")
            case "logging/setLevel":
                server.level = message["params"]["level"]
            case "resources/subscribe":
                server.subscribed.add(message["params"]["uri"])
            case "resources/unsubscribe":
                server.subscribed.discard(message["params"]["uri"])
            case "notifications/cancelled":
                cancelled = message["params"]["requestId"]
                server.cancelled.add(cancelled)
                server.pending = [one for one in server.pending if one["id"] != cancelled]
            case "tools/call":
                self._execute(message["params"])
            case _:
                pass

    def _execute(self, params: Any) -> None:
        token = params["arguments"]["token"]
        self.executions[token] = self.executions.get(token, 0) + 1
        if params["name"] == "once":
            demand(self.executions[token] == 1, "never-twice", f"call {token} was made twice")
            saved = any(
                token.encode() in bytes(call.params or b"") for call in self.stage.records.calls.values()
            )
            demand(saved, "recorded", f"call {token} was sent without a record")

    # --- what must hold --------------------------------------------------------------------------------------

    def _note_sent(self, number: int, effect: ToChild) -> None:
        child = self._process_of(number, effect.generation)
        if child is None or not child.input_open:
            return
        if (
            self.generations.get((number, child.number)) != effect.generation
        ):  # it left this process, and joined again
            self.generations[number, child.number] = effect.generation
            self.levels.pop((number, child.number), None)
            self.subscriptions.pop((number, child.number), None)
        message = msgspec.json.decode(effect.frame)
        key = number, child.number
        if "method" in message and "id" in message:
            self.sent[number, child.number, message["id"]] = effect.generation
        match message.get("method"):
            case "logging/setLevel":
                self.levels[key] = message["params"]["level"]
            case "resources/subscribe":
                self.subscriptions.setdefault(key, set()).add(message["params"]["uri"])
            case "resources/unsubscribe":
                self.subscriptions.setdefault(key, set()).discard(message["params"]["uri"])
            case "notifications/initialized":
                self.begun.add(child.number)
            case _:
                pass

    def _process_of(self, number: int, generation: int) -> PlayedChild | None:
        session = self.stage.sessions[number]
        for server in self.stage.pool.running:
            if server.users.get(session.number) == (session, generation):
                return self.stage.children[server.child.pid - 5000]
        return None

    def _settle(self) -> None:
        """Clients take their answers, unless the connection is lost just then."""
        for want in self.wants:
            exchange = want.exchange
            if exchange is None or want.is_done:
                continue
            session = self.stage.sessions[want.session]
            answers = [one for one in exchange.frames if _is_answer(one)]
            demand(len(answers) <= 1, "one-answer", f"{want.identity} was answered twice")
            if not exchange.is_answered:
                continue
            demand(len(answers) == 1, "one-answer", f"{want.identity} is answered with nothing")
            if want.session in self.loses_next and want.method != "initialize":
                self.loses_next.discard(want.session)
                session.sent(exchange, answers[0])(False)
                want.exchange = None
                continue
            self._check_answer(want, msgspec.json.decode(answers[0]))
            session.sent(exchange, answers[0])(True)
            want.is_done = True

    def _check_answer(self, want: Want, answer: Any) -> None:
        demand(answer.get("id") in (want.identity, None), "own-answer", f"{want.identity} got {answer}")
        result = answer.get("result")
        if result is None:
            return
        session = self.stage.sessions[want.session]
        if want.method == "initialize":
            self.greeted.add(want.session)
            session.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', None)
        elif want.method == "tools/call":
            demand(result["content"][0]["text"] == want.token, "own-answer", f"{want.token} got {result}")

    def judge(self, *, at_rest: bool) -> None:
        stage, pool = self.stage, self.stage.pool
        supervised = pool.supervisor.children
        groups = stage.guardian.groups
        demand(groups == set(supervised), "guarded", f"{groups} are guarded, not {set(supervised)}")
        demand(not stage.early_reads, "throttled", "a throttled process was read")
        for server in pool.running:
            for number, (session, generation) in server.users.items():
                assert isinstance(session, PlayedSession)
                demand(
                    not session.runner.is_stopped, "no-ghost", f"session {number} left and is still a user"
                )
                demand(number == session.number, "no-ghost", f"{number} is the number of nobody")
                link = session.kernel.link("m", generation)
                demand(
                    link is not None, "no-ghost", f"generation {generation} was given up and is still a user"
                )
            is_ending = server.is_condemned or not server.child.input_open
            is_idle = is_ending or server.idle_since is not None
            demand(bool(server.users) or is_idle, "no-leak", "no users, and not idle")
            demand(server.open_questions <= len(server.users) * 8, "bounded", "questions are never forgotten")
        self._judge_starts()
        told = [child for child in stage.children if child.pid not in supervised]
        for child in told:
            fds = {child.stdout, child.outbox.fd} & (stage.loop.readers.keys() | stage.loop.writers.keys())
            demand(not fds and not child.input_open and not child.output_open, "no-leak", "a pipe stays open")
            demand(child.is_killed, "no-leak", "the group of a process that ended was not ended")
        if at_rest:
            self._judge_rest()

    def _judge_starts(self) -> None:
        times = [child.started_at for child in self.stage.children]
        is_private = any(server.is_root_sensitive for server in self.stage.pool.running) or any(
            "roots/list" in str(action) or action.startswith("roots") for action in self.actions
        )
        for before, after in pairwise(times):
            between = any(before <= reload <= after for reload in self.reloaded_at)
            if not (between or is_private):
                demand(
                    after - before > START_EVERY_S - 1e-6, "start-rate", "two starts at almost the same time"
                )

    def _judge_rest(self) -> None:
        """Everything that was due has happened: what sessions believe and what is there agree."""
        stage, pool = self.stage, self.stage.pool
        for number in self.live():
            session = stage.sessions[number]
            for mount in session.kernel.state.mounts.values():
                for link in mount.links.values():
                    key = session, mount.name, link.generation
                    is_there = key in pool._delayed or self._process_of(number, link.generation) is not None
                    demand(is_there, "no-orphan", f"session {number} waits for a process that is not there")
        for child in stage.children:
            if child.pid not in pool.supervisor.children and child not in pool.supervisor.draining:
                self._judge_last_words(child)
        for server in pool.running:
            child = stage.children[server.child.pid - 5000]
            known = self.servers.get(child.number)
            if child.is_alive and child.output_open and child.quiet_until <= stage.loop.now:
                is_due = child.is_read or child.next_slice is not None
                demand(is_due, "read", "a process that may say something is not read")
            if known is None or child.is_deaf or not child.input_open or child.status is not None:
                continue
            users = [stage.sessions.index(session) for session, _ in server.users.values()]  # type: ignore[arg-type]
            self._judge_levels(child, known, users)
            self._judge_numbers(server, child, users)
            demand(child.number not in self.begun or known.began, "one-handshake", "initialized never came")
            is_answered = isinstance(server._handshake, Answered)
            demand(known.is_greeted or not is_answered, "one-handshake", "a refusal is kept as an answer")
            if not child.output and not child.reader.ready:
                self._judge_notices(known, server.users)
                self._judge_questions(known, server.open_questions)
                self._judge_answers(child, known)

    def _judge_levels(self, child: PlayedChild, known: Server, users: list[int]) -> None:
        levels = [self.levels[user, child.number] for user in users if (user, child.number) in self.levels]
        if levels:
            wanted = min(levels, key=LOG_LEVELS.index)
            demand(known.level == wanted, "level", f"the process logs {known.level}, not {wanted}")
        wanted_uris: set[str] = set()
        for user in users:
            wanted_uris |= self.subscriptions.get((user, child.number), set())
        demand(known.subscribed == wanted_uris, "subscribed", f"{known.subscribed} instead of {wanted_uris}")

    def _judge_numbers(self, server: SharedServer, child: PlayedChild, users: list[int]) -> None:
        """What is kept by the number of a session is kept by its number now, and for no other."""
        sessions = {user: self.stage.sessions[user] for user in users}
        levels = {one.number for user, one in sessions.items() if (user, child.number) in self.levels}
        demand(set(server._levels) == levels, "level", f"{server._levels} are kept, not of {levels}")
        subscribed = {
            one.number
            for user, one in sessions.items()
            if URI in self.subscriptions.get((user, child.number), set())
        }
        kept = server._subscribers.get(URI, set())
        demand(kept == subscribed, "subscribed", f"{kept} are subscribed, not {subscribed}")
        for session, generation in server.users.values():
            assert isinstance(session, PlayedSession)
            link = session.kernel.link("m", generation)
            is_free = child.outbox.size <= OUTBOX_BYTES
            is_held = link is not None and link.backlog > OUTBOX_BYTES
            demand(not (is_free and is_held), "backlog", "a session still waits for an outbox that drained")

    def _judge_last_words(self, child: PlayedChild) -> None:
        """A session is told of the end of a process after all that it said."""
        known = self.servers.get(child.number)
        for identity in known.said if known is not None else ():
            head = b'"id":%d,' % identity
            for (number, process, sent), generation in self.sent.items():
                if (process, sent) != (child.number, identity):
                    continue
                for event in self.stage.sessions[number].fed:
                    if isinstance(event, ChildFrame) and head in event.frame:
                        break
                    if isinstance(event, ChildLost) and event.generation == generation:
                        raise Violation("last-words", f"the answer to {identity} was not told before the end")

    def _judge_notices(self, known: Server, users: Any) -> None:
        for mark, heard_by in known.notices.items():
            for session in self.stage.sessions:
                fed = getattr(session, "fed", ())
                times = sum(isinstance(one, ChildFrame) and mark.encode() in one.frame for one in fed)
                still = any(
                    session is one and users.get(one.number) == (one, generation)
                    for one, generation in heard_by
                )
                demand(times <= 1, "told-once", f"{mark} was told {times} times")
                demand(times == 1 or not still, "told-once", f"{mark} was never told")

    def _judge_answers(self, child: PlayedChild, known: Server) -> None:
        """A request of a session is with the server, or its answer was told to the session."""
        waiting = {request["id"] for request in known.pending}
        is_greeting = any(request["method"] == "initialize" for request in known.pending)
        for (number, process, identity), generation in self.sent.items():
            if (
                process != child.number
                or identity in waiting | known.cancelled
                or known.is_shut
                or is_greeting
            ):
                continue
            if self._process_of(number, generation) is child:
                head = b'"id":%d,' % identity
                fed = self.stage.sessions[number].fed
                is_told = any(isinstance(one, ChildFrame) and head in one.frame for one in fed)
                demand(is_told, "answered", f"session {number} was never told the answer to {identity}")

    def _judge_questions(self, known: Server, asked: int) -> None:
        """None of them is answered with nothing: it waits with a client, or was answered."""
        waiting = sum(times == 0 for times in known.questions.values())
        demand(waiting <= asked, "question-once", f"{waiting} questions wait, {asked} are known")

    # --- the end ---------------------------------------------------------------------------------------------

    def finish(self, ending: str) -> None:
        """Let servers answer, die or stay silent until every request is answered; then everyone leaves."""
        stage = self.stage
        stage.cannot_start = stage.records.is_full = False
        self.loses_next.clear()
        deaths = 2 if ending == "dying" else 0
        for _ in range(60):
            for child in stage.alive:
                child.is_deaf = False
            stage.run_ready()
            stage.reap()
            self._settle()
            for want in self.wants:
                if not want.is_done and want.exchange is None:
                    if self.stage.sessions[want.session].runner.is_stopped:
                        want.is_done = (
                            True  # the session was given up: a client finds its successor by its records
                        )
                    else:
                        self._post(want)
            for number in self.live():
                if self._question(number) is not None:
                    self._do_reply(str(number))
            self._settle()
            if all(want.is_done for want in self.wants):
                break
            if deaths and stage.alive:
                deaths -= 1
                stage.alive[0].die(256)
            elif ending == "silent":
                stage.advance(20)
                stage.reap()
                self._settle()
                continue
            for child in stage.alive:
                server = self.servers.get(child.number)
                while server is not None and server.pending and not server.is_shut:
                    self._do_answer(str(child.number), "0")
                    stage.run_ready()
            stage.advance(3)
            stage.reap()
        self._settle()
        self._raise_broken()
        self.judge(at_rest=True)
        left = [f"{want.method} {want.identity}" for want in self.wants if not want.is_done]
        demand(not left, "quiescence", f"never answered: {left} ({ending})")
        for number in self.live():
            self._do_leave(str(number))
        self._judge_gone()

    def _judge_gone(self) -> None:
        stage = self.stage
        for child in stage.children:
            child.is_deaf = False
        for _ in range(4):
            stage.advance(IDLE_S + TEND_S + KILL_S)
            stage.reap()
        stage.run_ready()
        self.judge(at_rest=True)
        demand(not stage.alive, "no-leak", f"{len(stage.alive)} processes live on without a session")
        demand(not stage.loop.readers and not stage.loop.writers, "no-leak", "descriptors are still watched")
        demand(
            not stage.pool.running and not stage.pool.supervisor.draining,
            "no-leak",
            "servers are not forgotten",
        )
        delivered = [want.token for want in self.wants if want.is_done and want.token]
        kept = [str(call.params) for call in stage.records.calls.values()]
        for want in self.wants:
            is_kept = any(f'"{want.token}"' in params for params in kept)
            if want.token in delivered and want.exchange is not None and want.exchange.is_answered:
                demand(
                    want.is_cancelled or not is_kept,
                    "recorded",
                    f"the record of {want.token} is never forgotten",
                )


def _is_answer(frame: bytes) -> bool:
    message = msgspec.json.decode(frame)
    return "result" in message or "error" in message


# --- at random -----------------------------------------------------------------------------------------------

WEIGHTS: Final = {
    "run": 9, "step": 5, "open": 4, "init": 9, "call": 6, "answer": 14, "refuse": 0.7, "wait": 3, "leave": 1.2,
    "die": 1.2, "reap": 5, "retry": 4, "hear": 4, "deaf": 0.6, "shut": 0.4, "trip": 0.4, "full": 0.3, "roomy": 3,
    "cannot-start": 0.2, "can-start": 3, "guardian": 0.3, "reload": 0.4, "restart": 0.4, "renumber": 0.5,
    "noise": 0.4, "ping": 0.5, "ask": 2, "reply": 3, "roots": 0.3, "notice": 1, "log": 0.4, "level": 1.5,
    "subscribe": 1.5, "unsubscribe": 1, "hangup": 0.8, "lose": 0.8, "cancel": 0.7,
}  # fmt: skip


def wander(seed: int, tally: Tally) -> None:
    """One random history, its every prefix judged, then run to its end."""
    dice = random.Random(f"serve:{seed}")
    run = Run()
    digest = b"serve"
    ending = ""
    try:
        for _ in range(dice.randrange(15, 70)):
            by_verb: dict[str, list[str]] = {}
            for choice in run.possible():
                by_verb.setdefault(choice.split(" ", 1)[0], []).append(choice)
            verb = dice.choices(list(by_verb), [WEIGHTS.get(verb, 1.0) for verb in by_verb])[0]
            action = dice.choice(by_verb[verb])
            run.act(action)
            digest = blake2b(digest + action.encode(), digest_size=8).digest()
            tally.histories.add(int.from_bytes(digest))
        ending = ENDINGS[seed % 3]
        tally.ends += 1
        finish(run, ending)
    except Violation as broken:
        tally.failure = Failure(SCOPE, list(run.actions), ending, broken.invariant, broken.detail)
    tally.steps += len(run.actions)


def finish(run: Run, ending: str) -> None:
    try:
        run.finish(ending)
    except Violation:
        raise
    except Exception:
        raise Violation("no-exception", traceback.format_exc(limit=-3)) from None


def replay(actions: list[str], ending: str) -> Violation | None:
    """What it leads to; None also where it cannot be played."""
    run = Run()
    try:
        for action in actions:
            if action not in run.possible():
                return None
            run.act(action)
        if ending:
            finish(run, ending)
    except Violation as broken:
        return broken
    return None


def shrink(failure: Failure) -> Failure:
    """Leave out whatever is not needed, largest pieces first."""
    for actions, ending in _smaller(failure.actions, failure.ending):
        broken = replay(actions, ending)
        if broken is not None and broken.invariant == failure.invariant:
            return shrink(Failure(SCOPE, actions, ending, broken.invariant, broken.detail))
    return failure


def _smaller(actions: list[str], ending: str) -> Iterator[tuple[list[str], str]]:
    if ending:
        yield actions, ""
    size = max(1, len(actions) // 2)
    while True:
        for start in range(0, len(actions), size):
            yield actions[:start] + actions[start + size :], ending
        if size == 1:
            return
        size //= 2

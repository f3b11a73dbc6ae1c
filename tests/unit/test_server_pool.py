"""Which process serves which session: none is kept for a session that left, and none takes the time of another."""

from __future__ import annotations

import os
import signal
import time

from perdure.kernel.events import ChildFrame, ChildLost, ChildNoise, ChildStarted
from perdure.protocol.mounts import MountSpec
from perdure.serve.server_pool import START_EVERY_S
from serve_stage import ServeStage, Session

SPEC = MountSpec("m", ("server",))
NOTE = {"method": "notifications/tools/list_changed"}


def test_sessions_share_one_process() -> None:
    async def test(stage: ServeStage) -> None:
        one, other = Session(1), Session(2)
        for session in (one, other):
            stage.board.attach(session, SPEC, 1, gently=False)
        assert len(stage.servers) == 1
        stage.servers[0].say(NOTE)
        await stage.until(lambda: one.heard(ChildFrame) and other.heard(ChildFrame))

    ServeStage.run(test)


def test_a_session_that_ends_before_its_delayed_start_leaves_no_process() -> None:
    async def test(stage: ServeStage) -> None:
        session = Session(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        stage.servers[0].kill()
        await stage.until(lambda: session.heard(ChildLost))
        stage.board.attach(session, SPEC, 2, gently=False)  # within START_EVERY_S: it is delayed
        stage.board.leave(session)
        other = Session(2)
        stage.board.attach(other, SPEC, 1, gently=False)
        await stage.until(lambda: other.heard(ChildStarted))
        assert [one.generation for one in session.heard(ChildStarted)] == [1]
        assert [list(process.users) for process in stage.board.running] == [[2]]

    ServeStage.run(test)


def test_a_generation_that_is_given_up_before_its_delayed_start_is_not_started() -> None:
    async def test(stage: ServeStage) -> None:
        session = Session(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        stage.board.detach(session, "m", 1, force=True)
        stage.board.attach(session, SPEC, 2, gently=False)
        stage.board.detach(session, "m", 2, force=True)
        stage.board.attach(session, SPEC, 3, gently=False)
        began = time.monotonic()
        await stage.until(lambda: time.monotonic() > began + 2 * START_EVERY_S)
        assert [one.generation for one in session.heard(ChildStarted)] == [1, 3]

    ServeStage.run(test)


def test_a_process_found_broken_gets_no_new_session() -> None:
    async def test(stage: ServeStage) -> None:
        one, other = Session(1), Session(2)
        stage.board.attach(one, SPEC, 1, gently=False)
        stage.board.detach(one, "m", 1, force=True)
        stage.board.attach(other, SPEC, 1, gently=False)
        await stage.until(lambda: other.heard(ChildStarted))
        assert len(stage.servers) == 2
        assert not other.heard(ChildLost)

    ServeStage.run(test)


def test_one_killed_process_is_one_fault_for_all_its_sessions() -> None:
    async def test(stage: ServeStage) -> None:
        sessions = [Session(number) for number in (1, 2, 3)]
        for session in sessions:
            stage.board.attach(session, SPEC, 1, gently=False)
        stage.servers[0].kill()
        await stage.until(lambda: all(session.heard(ChildLost) for session in sessions))
        assert stage.board.faults == 1

    ServeStage.run(test)


def test_noise_is_counted_by_the_chunk() -> None:
    async def test(stage: ServeStage) -> None:
        session = Session(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        stage.servers[0].say_bytes(b"x\n" * 20_000)
        await stage.until(lambda: sum(one.lines for one in session.heard(ChildNoise)) == 20_000)
        assert len(session.heard(ChildNoise)) < 2_000

    ServeStage.run(test)


class SlowSession(Session):
    """To take a frame costs it more than the slice of a process."""

    def feed(self, event: object) -> None:
        super().feed(event)  # type: ignore[arg-type]
        if isinstance(event, ChildFrame):
            until = time.thread_time() + 0.002
            while time.thread_time() < until:
                pass


def test_a_flooding_process_gets_one_slice_of_each_round() -> None:
    async def test(stage: ServeStage) -> None:
        flooded, other = SlowSession(1), Session(2)
        stage.board.attach(flooded, SPEC, 1, gently=False)
        stage.board.attach(other, MountSpec("n", ("other",)), 1, gently=False)
        flooding, good = stage.servers
        flooding.say(*[NOTE] * 100)
        good.say(NOTE)
        await stage.until(lambda: other.heard(ChildFrame))
        assert len(flooded.heard(ChildFrame)) < 50
        await stage.until(lambda: len(flooded.heard(ChildFrame)) == 100)

    ServeStage.run(test)


def test_a_throttled_process_is_not_read_until_its_time() -> None:
    async def test(stage: ServeStage) -> None:
        session = Session(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        until = time.monotonic() + 0.05
        stage.board.throttle(session, "m", 1, until)
        stage.servers[0].say(NOTE, NOTE)
        await stage.until(lambda: len(session.heard(ChildFrame)) == 2)
        assert time.monotonic() >= until

    ServeStage.run(test)


def test_the_last_words_of_a_process_come_before_its_end() -> None:
    async def test(stage: ServeStage) -> None:
        session = Session(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        stage.board.throttle(session, "m", 1, time.monotonic() + 0.05)
        stage.servers[0].say(*[NOTE] * 50)
        stage.servers[0].kill()
        await stage.until(lambda: session.heard(ChildLost))
        assert [type(one) for one in session.events] == [ChildStarted, *[ChildFrame] * 50, ChildLost]

    ServeStage.run(test)


class FailingSession(Session):
    def feed(self, event: object) -> None:
        super().feed(event)  # type: ignore[arg-type]
        if isinstance(event, ChildFrame):
            raise RuntimeError("a bug of ours")


def test_an_exception_costs_one_line() -> None:
    async def test(stage: ServeStage) -> None:
        session = FailingSession(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        stage.servers[0].say(NOTE, NOTE, NOTE)
        await stage.until(lambda: len(session.heard(ChildFrame)) == 3)

    ServeStage.run(test)


def test_a_guardian_that_dies_is_replaced() -> None:
    async def test(stage: ServeStage) -> None:
        session = Session(1)
        stage.board.attach(session, SPEC, 1, gently=False)
        first = stage.guardian.pid
        os.kill(first, signal.SIGKILL)
        await stage.until(lambda: stage.board.supervisor.guardian.pid != first)
        assert stage.board.supervisor.guardian.mark == stage.guardian.mark
        os.kill(stage.board.supervisor.guardian.pid, 0)

    ServeStage.run(test)

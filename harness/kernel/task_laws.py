"""The laws of tasks (16a), on both sides of the kernel: what is recorded, what servers are asked, what clients read."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.kernel.invariants import check_error, check_result, demand
from harness.kernel.scopes import TASK_TTL_S
from harness.kernel.world import Child, ClientTask, Pending, ServerTask, Want, World
from perdure.kernel.core import Kernel
from perdure.kernel.state import AtServer, Ended, InCall, Orphaned, Task
from perdure.kernel.task_frames import TERMINAL
from perdure.protocol.faults import OUTCOME_UNKNOWN

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_LOST: Final = {"code": OUTCOME_UNKNOWN, "outcome": "unknown"}


class TaskLaws:
    """Watches the tasks in one step."""

    def __init__(self, world: World, kernel: Kernel) -> None:
        self.world, self.kernel = world, kernel
        self.records: dict[str, Task] = {}
        self.changed: set[str] = set()
        self.told: set[str] = set()

    # --- what is recorded --------------------------------------------------------------------------

    def on_record(self, handle: str, data: bytes) -> None:
        known = self.world.tasks.get(handle)
        if not data:
            is_over = known is None or self.world.now >= known.expires
            demand(is_over, "task-known", f"{handle} is forgotten before its time")
            if known is not None:
                known.record = b""
            return
        task = _decode(data, type=Task)
        self.records[handle] = task
        if known is None:
            return
        if known.record and _decode(known.record, type=Task).seen != task.seen:
            self.changed.add(handle)
        known.record = data
        self._place(known, task)
        if isinstance(task.place, Ended):
            self._observe(known, _decode(task.seen))

    def _place(self, known: ClientTask, task: Task) -> None:
        """Follow a call that its server makes a task of its own, or that has ended."""
        detached = next((want for want in self.world.detached if want.tag == known.tag), None)
        if detached is None or isinstance(task.place, InCall):
            return
        self.world.detached.remove(detached)
        if isinstance(task.place, AtServer):
            known.place = self._server_task(known.mount, known.tag)
        else:
            seen = _decode(task.seen)
            if "result" in seen:
                check_result(self.world, detached, {"resultType": "complete", **seen["result"]})
            elif "error" in seen and not known.is_host_lost:
                check_error(self.world, detached, seen["error"])
            known.is_refused = True  # its call was judged as any other

    def running_on(self, mount: str, generation: int) -> list[str]:
        """The tasks that the host still follows in a generation."""
        return [
            task.tag
            for task in self.world.tasks.values()
            if task.place is not None
            and (task.mount, task.place.generation, task.final) == (mount, generation, b"")
            and not task.is_host_lost
        ]

    def _server_task(self, mount: str, tag: str) -> ServerTask:
        return next(task for task in self.world.server_tasks if (task.mount, task.tag) == (mount, tag))

    # --- what the client reads ----------------------------------------------------------------------

    def on_created(self, want: Want, result: dict[str, Any]) -> None:
        handle = result["taskId"]
        demand(handle not in self.world.tasks, "task-unique", f"{want.tag} got the handle of another task")
        demand(handle in self.records, "task-recorded", f"{want.tag} is told of before it is recorded")
        record = self.records[handle]
        known = ClientTask(handle, want.mount, want.tag, self.world.now + TASK_TTL_S, record=_encode(record))
        if isinstance(record.place, InCall):
            self.world.detached.append(want)
        else:
            known.place = self._server_task(want.mount, want.tag)
        self.world.tasks[handle] = known
        self._observe(known, result)

    def on_answer(self, want: Want, message: dict[str, Any]) -> None:
        known = self.world.tasks[want.tag]
        if "error" in message:
            is_over = self.world.now >= known.expires
            code = message["error"]["code"]
            demand(code != -32602 or is_over, "task-known", f"{known.tag}: {message['error']}")
            is_bounded = "outcome" in message["error"].get("data", {})
            demand(is_bounded or code in (-32602, -32603), "task-honest", f"{known.tag}: {message['error']}")
        elif want.tool == "tasks/get":
            self._observe(known, message["result"])
        elif want.tool == "tasks/cancel" and known.place is None and not known.is_host_lost:
            demand(known.final, "task-honest", f"{known.tag} is acknowledged as cancelled and goes on")

    def on_notification(self, report: dict[str, Any]) -> None:
        handle = report["taskId"]
        demand(handle in self.world.watched(), "task-heard", f"nobody asked to hear of {handle}")
        self.told.add(handle)
        self._observe(self.world.tasks[handle], report)

    def _observe(self, known: ClientTask, report: dict[str, Any]) -> None:
        world, status = self.world, report["status"]
        demand(
            report["taskId"] == known.handle, "task-route", f"{known.handle} is told as {report['taskId']}"
        )
        final = {key: report[key] for key in ("status", "result", "error") if key in report}
        if known.final:
            demand(_encode(final) == known.final, "task-final", f"{known.tag}: {known.final!r}, then {final}")
            return
        if status not in TERMINAL:
            demand(world.knows(known), "task-lost", f"{known.tag} is told as {status}, and nobody has it")
            questions = report.get("inputRequests", {})
            known.inputs = {key: question["params"]["q"] for key, question in questions.items()}
            return
        known.final = _encode(final)
        if status == "completed":
            text = report["result"]["content"][0]["text"]
            times = world.executed.get(known.tag, 0)
            demand(text == known.tag, "own-answer", f"{known.tag} is told the result of {text}")
            demand(times == 1 or known.tag.startswith("convergent"), "exactly-once", f"{known.tag}: {times}")
        elif status == "cancelled":
            demand(known.is_stopped, "task-honest", f"{known.tag} was cancelled, which nobody asked for")
        elif not known.is_refused:
            self._check_loss(known, report["error"])

    def _check_loss(self, known: ClientTask, error: dict[str, Any]) -> None:
        """A task is given up only when its server is lost, with an error that says what is known."""
        said = {"code": error["code"], "outcome": error.get("data", {}).get("outcome")}
        demand(said == _LOST, "task-lost", f"{known.tag} ends with {error}")
        place = known.place
        is_lost = known.is_host_lost or (
            place is not None and self.world.is_gone(place.mount, place.generation)
        )
        demand(is_lost, "task-honest", f"{known.tag} is given up, and its server runs")

    # --- what servers are asked -----------------------------------------------------------------------

    def on_request(self, child: Child, pending: Pending) -> None:
        tasks = [task for task in self.world.tasks.values() if task.mount == child.mount and task.place]
        if pending.tool:
            tasks = [task for task in tasks if task.handle == pending.tool]
        ids = [task.place.id for task in tasks if task.place is not None]
        demand(
            pending.uri in ids, "task-route", f"{child.mount} is asked for {pending.uri}, not one of {ids}"
        )

    # --- after the step ---------------------------------------------------------------------------------

    def check(self) -> None:
        world, state = self.world, self.kernel.state
        missed = (self.changed & world.watched()) - self.told
        demand(not missed, "task-heard", f"the client was not told that {missed} changed")
        for handle, known in world.tasks.items():
            task = state.tasks.get(handle)
            if task is None:
                demand(world.now >= known.expires, "task-known", f"{handle} is forgotten before its time")
                continue
            demand(
                task.seen == _decode(known.record, type=Task).seen, "task-recorded", f"{known.tag} changed"
            )
            match task.place:
                case AtServer(_, generation) if self.kernel.is_own(task):
                    is_gone = world.is_gone(task.mount, generation)
                    demand(not is_gone, "task-lost", f"{known.tag} waits for generation {generation}")
                case InCall():
                    demand(world.knows(known), "task-lost", f"{known.tag} waits for a call that is over")
                case Orphaned(inner) if self.kernel.is_own(task):
                    self._check_asked(task, inner)
                case _:
                    pass

    def _check_asked(self, task: Task, inner: str) -> None:
        link = self.kernel.state.mounts[task.mount].serving_link()
        child = self.world.child(task.mount, link.generation) if link is not None else None
        if child is not None:
            asked = [request.uri for request in child.pending if request.method == "tasks/get"]
            demand(inner in asked, "task-lost", f"{task.handle}: its successor serves and is not asked")

"""Tasks behind several servers: handles of the host's own, routed, kept over losses, and calls that become tasks."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from harness.kernel.stage import ENVELOPE, Stage, tool
from perdure.kernel.events import Effect, Order, Reload, SaveTask, Tick
from perdure.kernel.state import AtServer, Ended, InCall, Orphaned, Task
from perdure.kernel.task_frames import timestamp
from perdure.kernel.tasks import adopt
from perdure.protocol import eras
from perdure.protocol.faults import OUTCOME_UNKNOWN
from perdure.protocol.mounts import Limits, MountSpec

EXTENSION: dict[str, Any] = {"extensions": {eras.TASKS: {}}}
DECLARING: dict[str, Any] = {
    eras.META_CAPABILITIES: {**ENVELOPE[eras.META_CAPABILITIES], **EXTENSION},
}
MADE = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 60000}


def task(status: str = "working", inner: str = "1", **more: Any) -> dict[str, Any]:
    return {"taskId": inner, "status": status, **MADE, **more}


class Tasks(Stage):
    """Two servers of 2026 that both give their first task the id `1`."""

    def __init__(self, *, era: eras.Era = "modern", limits: Limits | None = None, **options: Any) -> None:
        specs = [MountSpec(name, ("x",), prefix=f"{name}__") for name in ("a", "b")]
        self.saved: dict[str, Task | None] = {}
        super().__init__(*specs, limits=limits, epoch=1_700_000_000.0, host="h", **options)
        self.request("d", "server/discover", modern=True)
        for name in ("a", "b"):
            self.serve(name, [tool("slow")], era=era, **(EXTENSION if era == "modern" else {}))

    def _take(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, SaveTask):
                data = effect.data
                self.saved[effect.handle] = msgspec.json.decode(data, type=Task) if data else None
        return super()._take(effects)

    def ask(self, identity: Any, method: str, handle: str, **more: Any) -> None:
        self.request(identity, method, {"taskId": handle, **more}, modern=True, **DECLARING)

    def begin(self, mount: str, identity: Any, inner: str = "1") -> str:
        """A call that its server answers with a task: the handle that the client got."""
        self.call(identity, f"{mount}__slow", modern=True, **DECLARING)
        self.reply(self.got(mount, "tools/call")[-1], {"resultType": "task", **task(inner=inner)})
        handle: str = self.answer(identity)["result"]["taskId"]
        return handle

    def get(self, identity: Any, handle: str) -> dict[str, Any]:
        self.ask(identity, "tasks/get", handle)
        found: dict[str, Any] = self.answer(identity)["result"]
        return found


def test_the_same_id_of_two_servers_becomes_two_handles_each_routed_to_its_own() -> None:
    stage = Tasks()
    first, second = stage.begin("a", 1), stage.begin("b", 2)
    assert first != second
    assert "1" not in (first, second)
    assert isinstance(stage.saved[first], Task)

    stage.ask(3, "tasks/get", second)
    [asked] = stage.got("b", "tasks/get")
    assert asked.params["taskId"] == "1"
    assert not stage.got("a", "tasks/get")
    stage.reply(
        asked, {"resultType": "complete", **task("completed", result={"content": []}), "_meta": {"x": 1}}
    )

    answer = stage.answer(3)["result"]
    assert answer["taskId"] == second
    assert answer["status"] == "completed"
    assert answer["_meta"] == {"x": 1}


def test_an_ended_task_is_answered_from_its_record_without_its_server() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.ask(2, "tasks/get", handle)
    stage.reply(stage.got("a", "tasks/get")[-1], task("completed", result={"content": [{"n": 1}]}))
    stage.lose("a")

    answer = stage.get(3, handle)
    assert (answer["status"], answer["result"]) == ("completed", {"content": [{"n": 1}]})
    assert answer["resultType"] == "complete"
    stage.ask(4, "tasks/cancel", handle)
    assert "taskId" not in stage.answer(4)["result"]


def test_update_and_cancel_go_to_the_server_and_are_acknowledged() -> None:
    stage = Tasks()
    handle = stage.begin("b", 1)
    stage.ask(2, "tasks/update", handle, inputResponses={"k": {"a": 1}})
    [update] = stage.got("b", "tasks/update")
    assert (update.params["taskId"], update.params["inputResponses"]) == ("1", {"k": {"a": 1}})
    stage.reply(update, {"resultType": "complete"})
    stage.ask(3, "tasks/cancel", handle)
    stage.reply(stage.got("b", "tasks/cancel")[-1], {"resultType": "complete"})
    assert [stage.answer(number)["result"]["resultType"] for number in (2, 3)] == ["complete"] * 2


def test_an_unknown_handle_is_refused_and_a_client_without_the_extension_too() -> None:
    stage = Tasks()
    stage.ask(1, "tasks/get", "nope")
    assert stage.answer(1)["error"]["code"] == -32602
    handle = stage.begin("a", 2)
    stage.request(3, "tasks/get", {"taskId": handle}, modern=True)
    error = stage.answer(3)["error"]
    assert error["code"] == eras.MISSING_CAPABILITY
    assert error["data"]["requiredCapabilities"]["extensions"] == {eras.TASKS: {}}
    for number, method in enumerate(("tasks/result", "tasks/list"), 4):
        stage.ask(number, method, handle)
        assert stage.answer(number)["error"]["code"] == -32601


def test_another_owner_does_not_see_the_task() -> None:
    first = Tasks(owner="ann")
    handle = first.begin("a", 1)
    second = Tasks(owner="ben", tasks=first.kernel.state.tasks)
    second.ask(1, "tasks/get", handle)
    assert second.answer(1)["error"]["code"] == -32602


def failed_with_unknown_outcome(answer: dict[str, Any]) -> bool:
    error = answer["error"]
    is_typed = error["code"] == OUTCOME_UNKNOWN and error["data"]["outcome"] == "unknown"
    return answer["status"] == "failed" and is_typed and answer["statusMessage"] == error["message"]


def test_a_task_whose_server_is_lost_and_forgotten_ends_failed_with_a_typed_outcome() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.lose("a")
    saved = stage.saved[handle]
    assert saved is not None
    assert isinstance(saved.place, Orphaned)
    stage.serve("a", [tool("slow")], era="modern", **EXTENSION)
    [asked] = stage.got("a", "tasks/get")
    stage.refuse(asked, -32602, "no such task")
    assert failed_with_unknown_outcome(stage.get(2, handle))


def test_a_task_that_the_successor_still_knows_goes_on() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.lose("a")
    stage.serve("a", [tool("slow")], era="modern", **EXTENSION)
    stage.reply(stage.got("a", "tasks/get")[-1], task("working"))
    assert isinstance(stage.kernel.state.tasks[handle].place, AtServer)
    stage.ask(2, "tasks/get", handle)
    stage.reply(stage.got("a", "tasks/get")[-1], task("completed", result={"content": []}))
    assert stage.answer(2)["result"]["status"] == "completed"


def test_another_task_of_the_successor_under_the_same_id_is_not_taken_for_it() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.lose("a")
    stage.ask(2, "tasks/get", handle)
    stage.serve("a", [tool("slow")], era="modern", **EXTENSION)
    for asked in stage.got("a", "tasks/get"):
        stage.reply(asked, {**task("completed", result={"content": []}), "createdAt": "2026-02-02T00:00:00Z"})
    assert failed_with_unknown_outcome(stage.answer(2)["result"])


def test_a_question_about_a_task_is_answered_where_no_server_will_come_back() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.lose("a")
    stage.ask(2, "tasks/get", handle)
    stage.feed(Order("a", "disable"))
    assert failed_with_unknown_outcome(stage.answer(2)["result"])
    assert failed_with_unknown_outcome(stage.get(3, handle))


def test_a_task_keeps_a_fenced_generation_until_it_has_ended() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.feed(Reload())
    stage.serve("a", [tool("slow")], era="modern", **EXTENSION)
    assert ("a", 1) not in stage.stopped
    stage.ask(2, "tasks/get", handle)
    asked = stage.got("a", "tasks/get")[-1]
    assert asked.generation == 1
    stage.reply(asked, task("completed", result={"content": []}))
    assert stage.answer(2)["result"]["status"] == "completed"
    assert ("a", 1) in stage.stopped


def test_a_task_of_a_lost_fenced_generation_is_asked_of_the_one_that_serves() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.feed(Reload())
    stage.serve("a", [tool("slow")], era="modern", **EXTENSION)
    stage.lose("a", 1)
    [asked] = stage.got("a", "tasks/get")
    assert asked.generation == 2
    stage.refuse(asked, -32602, "no such task")
    assert failed_with_unknown_outcome(stage.get(2, handle))


def test_a_request_that_is_lost_after_its_task_ended_is_answered_from_the_record() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.ask(2, "tasks/get", handle)
    note = {"method": "notifications/tasks", "params": task("completed", result={"content": []})}
    stage.says("a", 1, note)
    stage.lose("a")
    assert stage.answer(2)["result"]["status"] == "completed"
    stage.serve("a", [tool("slow")], era="modern", **EXTENSION)
    assert len(stage.got("a", "tasks/get")) == 1


def test_a_task_is_kept_while_a_request_about_it_is_open() -> None:
    stage = Tasks()
    handle = stage.begin("a", 1)
    stage.now = 50.0
    stage.ask(2, "tasks/get", handle)
    note = {"method": "notifications/tasks", "params": task("completed", result={"content": []})}
    stage.says("a", 1, note)
    stage.now = 61.0
    stage.feed(Tick())
    stage.reply(stage.got("a", "tasks/get")[-1], task("completed", result={"content": []}))
    assert stage.answer(2)["result"]["taskId"] == handle
    stage.feed(Tick())
    assert stage.saved[handle] is None


def test_an_expired_task_makes_room_in_the_same_tick() -> None:
    stage = Tasks(limits=Limits(task_after_s=2.0, task_ttl_s=30.0, tasks=1))
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    stage.reply(stage.got("a", "tools/call")[-1], {"content": []})
    stage.call(2, "a__slow", modern=True, **DECLARING)
    stage.now = 40.0
    stage.feed(Tick())
    assert stage.answer(2)["result"]["resultType"] == "task"


def test_status_notifications_reach_the_stream_that_asked_for_the_task() -> None:
    stage = Tasks()
    first, second = stage.begin("a", 1), stage.begin("b", 2)
    stage.request(
        "s", "subscriptions/listen", {"notifications": {"taskIds": [first, "x"]}}, modern=True, **DECLARING
    )
    [acknowledged] = stage.heard("notifications/subscriptions/acknowledged")
    assert acknowledged["params"]["notifications"] == {"taskIds": [first]}
    streams = [s.params["notifications"].get("taskIds") for s in stage.got("a", "subscriptions/listen")]
    assert streams[-1] == ["1"]

    for mount in ("a", "b"):
        note = {"method": "notifications/tasks", "params": task("completed", result={"content": []})}
        stage.says(mount, 1, note)
    [told] = stage.heard("notifications/tasks")
    assert told["params"]["taskId"] == first
    assert told["params"]["status"] == "completed"
    assert told["params"]["_meta"] == {eras.META_SUBSCRIPTION: "s"}
    assert (
        stage.get(3, second)["status"] == "completed"
    )  # the host heard it, though the client did not ask to


def test_taskIds_without_the_extension_are_refused() -> None:
    stage = Tasks()
    stage.request("s", "subscriptions/listen", {"notifications": {"taskIds": ["x"]}}, modern=True)
    assert stage.answer("s")["error"]["code"] == eras.MISSING_CAPABILITY


# --- a call that becomes a task ----------------------------------------------------------------------------

SOON = Limits(task_after_s=2.0)


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_call_of_any_server_that_runs_long_becomes_a_task(era: eras.Era) -> None:
    stage = Tasks(era=era, limits=SOON)
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    created = stage.answer(1)["result"]
    assert created["resultType"] == "task"
    assert created["status"] == "working"
    assert created["createdAt"] == "2023-11-14T22:13:22Z"
    assert created["ttlMs"] == 3_600_000
    assert stage.get(2, created["taskId"])["status"] == "working"

    stage.reply(stage.got("a", "tools/call")[-1], {"content": [{"type": "text", "text": "done"}]})
    ended = stage.get(3, created["taskId"])
    assert ended["status"] == "completed"
    assert ended["result"]["content"][0]["text"] == "done"
    assert len(stage.answers(1)) == 1


def test_without_the_setting_or_the_extension_a_call_stays_a_call() -> None:
    stage = Tasks()
    stage.call(1, "a__slow", modern=True, **DECLARING)
    other = Tasks(limits=SOON)
    other.call(1, "a__slow", modern=True)
    for one in (stage, other):
        one.wait(100)
        assert not one.answers(1)


def test_a_quick_call_is_answered_as_ever() -> None:
    stage = Tasks(limits=SOON)
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.reply(stage.got("a", "tools/call")[-1], {"content": []})
    stage.wait(10)
    assert stage.answer(1)["result"] == {"content": []}
    assert not stage.saved


def test_the_error_and_the_loss_of_such_a_call_are_those_of_the_task() -> None:
    stage = Tasks(limits=SOON)
    handles = []
    for number in (1, 2):
        stage.call(number, "a__slow", modern=True, **DECLARING)
        stage.wait(2.5)
        handles.append(stage.answer(number)["result"]["taskId"])
    refused, lost = stage.got("a", "tools/call")
    stage.refuse(refused, -32050, "no")
    assert lost.generation == 1
    stage.lose("a")
    assert stage.get(3, handles[0])["error"]["code"] == -32050
    assert failed_with_unknown_outcome(stage.get(4, handles[1]))


def test_cancelling_such_a_task_tells_the_server() -> None:
    stage = Tasks(limits=SOON)
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(1)["result"]["taskId"]
    stage.ask(2, "tasks/cancel", handle)
    assert len(stage.got("a", "notifications/cancelled")) == 1
    assert stage.get(3, handle)["status"] == "cancelled"
    stage.reply(stage.got("a", "tools/call")[-1], {"content": []})
    assert stage.get(4, handle)["status"] == "cancelled"


def test_a_question_in_such_a_task_is_answered_with_tasks_update() -> None:
    stage = Tasks(era="handshake", limits=SOON)
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(1)["result"]["taskId"]
    stage.says("a", 1, {"id": 7, "method": "elicitation/create", "params": {"message": "sure?"}})
    asked = stage.get(2, handle)
    assert asked["status"] == "input_required"
    [(key, question)] = asked["inputRequests"].items()
    assert question == {"method": "elicitation/create", "params": {"message": "sure?"}}

    stage.ask(3, "tasks/update", handle, inputResponses={key: {"action": "accept"}, "other": {}})
    assert stage.sent[-1].message == {"jsonrpc": "2.0", "id": 7, "result": {"action": "accept"}}
    assert stage.get(4, handle)["status"] == "working"


def test_a_question_in_such_a_task_that_is_never_answered_expires() -> None:
    stage = Tasks(era="handshake", limits=Limits(task_after_s=2.0, question_s=60.0))
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(1)["result"]["taskId"]
    stage.says("a", 1, {"id": 7, "method": "elicitation/create", "params": {"message": "sure?"}})
    assert stage.get(2, handle)["status"] == "input_required"

    stage.wait(61)

    assert [sent.message["error"]["code"] for sent in stage.sent if sent.message.get("id") == 7] == [-32600]
    assert stage.get(3, handle)["status"] == "working"


def test_a_question_of_a_2026_server_in_such_a_task_is_answered_with_tasks_update() -> None:
    stage = Tasks(limits=SOON)
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(1)["result"]["taskId"]
    question = {"method": "elicitation/create", "params": {"message": "sure?"}}
    required = {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
    stage.reply(stage.got("a", "tools/call")[-1], required)
    assert stage.get(2, handle)["inputRequests"] == {"q": question}
    assert not stage.heard("elicitation/create")

    stage.ask(3, "tasks/update", handle, inputResponses={"q": {"action": "accept"}})
    again = stage.got("a", "tools/call")[-1]
    assert again.params["inputResponses"] == {"q": {"action": "accept"}}
    assert again.params["requestState"] == "s"
    stage.reply(again, {"resultType": "complete", "content": []})
    assert stage.get(4, handle)["status"] == "completed"


def test_a_server_that_makes_a_task_of_such_a_call_keeps_its_handle() -> None:
    stage = Tasks(limits=SOON)
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(1)["result"]["taskId"]
    stage.reply(stage.got("a", "tools/call")[-1], {"resultType": "task", **task()})
    stage.ask(2, "tasks/get", handle)
    stage.reply(stage.got("a", "tasks/get")[-1], task("completed", result={"content": []}))
    assert stage.answer(2)["result"]["taskId"] == handle
    assert len(stage.answers(1)) == 1


def test_no_call_becomes_a_task_beyond_the_bound() -> None:
    stage = Tasks(limits=Limits(task_after_s=2.0, tasks=1))
    for number in (1, 2):
        stage.call(number, "a__slow", modern=True, **DECLARING)
    stage.wait(5)
    assert [len(stage.answers(number)) for number in (1, 2)] == [1, 0]


def test_an_ended_task_is_forgotten_when_its_time_is_over() -> None:
    stage = Tasks(limits=Limits(task_after_s=2.0, task_ttl_s=30.0))
    stage.call(1, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(1)["result"]["taskId"]
    stage.reply(stage.got("a", "tools/call")[-1], {"content": []})
    stage.now += 31
    stage.ask(2, "tasks/get", handle)
    assert stage.answer(2)["error"]["code"] == -32602
    assert stage.saved[handle] is None


# --- over hosts ---------------------------------------------------------------------------------------------


def test_a_snapshot_keeps_tasks_and_the_calls_in_them() -> None:
    stage = Tasks(limits=SOON)
    made = stage.begin("b", 1)
    stage.call(2, "a__slow", modern=True, **DECLARING)
    stage.wait(2.5)
    handle = stage.answer(2)["result"]["taskId"]
    stage.restored()
    stage.reply(stage.got("a", "tools/call")[-1], {"content": []})
    assert stage.get(3, handle)["status"] == "completed"
    stage.ask(4, "tasks/get", made)
    assert stage.got("b", "tasks/get")[-1].params["taskId"] == "1"


def test_what_a_killed_host_left_is_adopted_and_what_a_running_one_has_is_not() -> None:
    def left(handle: str, place: Any, host: str = "dead", expires: float | None = None) -> Task:
        seen = msgspec.json.encode(task())
        return Task(handle, "a", "a__slow", place, seen, host=host, expires=expires)

    tasks = adopt(
        [
            left("server", AtServer("1", 3)),
            left("call", InCall(7)),
            left("ended", Ended()),
            left("old", Ended(), expires=99.0),
            left("other", InCall(8), host="live"),
        ],
        lambda host: host == "live",
        100.0,
    )
    assert set(tasks) == {"server", "call", "ended"}
    assert tasks["server"].place == Orphaned("1")
    assert failed_with_unknown_outcome(msgspec.json.decode(tasks["call"].seen))


# --- the revision before ------------------------------------------------------------------------------------


class OldTasks(Stage):
    """Two servers of 2025-11-25 with tasks, and a client of that revision."""

    def __init__(self) -> None:
        super().__init__(*[MountSpec(name, ("x",), prefix=f"{name}__") for name in ("a", "b")])
        self.initialize()
        for name in ("a", "b"):
            self.serve(
                name, [tool("slow")], tasks={"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
            )

    def begin(self, mount: str, identity: Any) -> str:
        params = {"name": f"{mount}__slow", "arguments": {}, "task": {"ttl": 60000}}
        self.request(identity, "tools/call", params)
        sent = self.got(mount, "tools/call")[-1]
        assert sent.params["task"] == {"ttl": 60000}
        self.reply(sent, {"task": {"taskId": "1", "status": "working", "createdAt": "t", "ttl": 60000}})
        handle: str = self.answer(identity)["result"]["task"]["taskId"]
        return handle


def test_tasks_of_2025_11_25_have_handles_too() -> None:
    stage = OldTasks()
    first, second = stage.begin("a", 1), stage.begin("b", 2)
    assert first != second
    stage.request(3, "tasks/get", {"taskId": second})
    stage.reply(stage.got("b", "tasks/get")[-1], {"taskId": "1", "status": "completed", "createdAt": "t"})
    assert stage.answer(3)["result"]["taskId"] == second
    stage.request(4, "tasks/result", {"taskId": second})
    stage.reply(stage.got("b", "tasks/result")[-1], {"content": [], "_meta": {}})
    related = stage.answer(4)["result"]["_meta"]["io.modelcontextprotocol/related-task"]
    assert related == {"taskId": second}
    stage.request(5, "tasks/list")
    assert [one["taskId"] for one in stage.answer(5)["result"]["tasks"]] == [first, second]

    stage.says(
        "a", 1, {"method": "notifications/tasks/status", "params": {"taskId": "1", "status": "failed"}}
    )
    assert stage.heard("notifications/tasks/status")[-1]["params"]["taskId"] == first


def test_a_lost_task_of_2025_11_25_ends_failed() -> None:
    stage = OldTasks()
    handle = stage.begin("a", 1)
    stage.lose("a")
    stage.serve("a", [tool("slow")], tasks={})
    stage.refuse(stage.got("a", "tasks/get")[-1], -32602)
    stage.request(2, "tasks/get", {"taskId": handle})
    assert stage.answer(2)["result"]["status"] == "failed"
    stage.request(3, "tasks/result", {"taskId": handle})
    assert stage.answer(3)["error"]["code"] == OUTCOME_UNKNOWN


def test_the_capability_is_told_in_the_way_of_each_era() -> None:
    old = OldTasks()
    assert "tasks" in old.answer("init")["result"]["capabilities"]
    old.request("d", "server/discover", modern=True)
    assert "tasks" not in old.answer("d")["result"]["capabilities"]
    host = Stage(MountSpec("a", ("x",), prefix="a__"), limits=SOON)
    assert eras.TASKS in msgspec.json.decode(host.kernel.public.capabilities("modern"))["extensions"]


def test_a_timestamp_is_that_of_the_calendar() -> None:
    for day in range(40_000):
        wall = day * 86400.0 + day * 13 % 86400
        assert timestamp(wall) == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))

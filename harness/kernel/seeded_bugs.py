"""Seeded bugs of the kernel, one at a time, for the explorer of histories. A trial is a part of the names of scopes."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import msgspec
from msgspec import Raw

from harness.seeded_bugs import Function, SeededBugs, after, before, do_nothing, replace, skip_if, wrap
from perdure.kernel import (
    call_frames,
    calls,
    child_frames,
    client,
    client_frames,
    mounts,
    server_requests,
    subscriptions,
    tasks,
)
from perdure.kernel.call_frames import advice
from perdure.kernel.catalog import Public
from perdure.kernel.client_requests import Incoming
from perdure.kernel.core import Kernel
from perdure.kernel.state import (
    Draining,
    Ended,
    InCall,
    InFlight,
    Invocation,
    Link,
    Live,
    Mount,
    NoStream,
    Open,
    Overdue,
    Parked,
    Preparing,
    Probing,
    Serving,
    Settled,
    Task,
    Waiting,
)
from perdure.kernel.task_frames import changed, text_of
from perdure.protocol.eras import Era
from perdure.protocol.faults import OUTCOME_UNKNOWN, Fault
from perdure.protocol.frames import (
    Members,
    Notification,
    Request,
    Response,
    encode_notification,
    encode_result,
    members,
)
from perdure.protocol.replay import (
    CONVERGENT,
    SAFE_TO_RETRY,
    Completed,
    NeverReplay,
    ProbeAnswer,
    ProbeRequired,
    SafeToRetry,
)

BUGS: Final = SeededBugs()
_MANY: Final = 99
_INVENTED: Final = Raw(b'{"content":[{"type":"text","text":"?"}]}')


def _limit(module: ModuleType, function: str, **limits: float) -> None:
    """Give the kernel other limits while this function runs."""

    def make(original: Function) -> Function:
        def limited(k: Kernel, *args: Any, **options: Any) -> Any:
            kept = k.limits
            k.limits = msgspec.structs.replace(kept, **limits)
            try:
                return original(k, *args, **options)
            finally:
                k.limits = kept

        return limited

    wrap(module, function, make)


# --- replay and probes ---------------------------------------------------------------------------------


@BUGS.add("NeverReplay is replayed")
def never_replay_is_replayed() -> None:
    def dispose(k: Kernel, mount: Mount, call: Invocation, fault: Fault) -> None:
        if isinstance(call.replay, NeverReplay):
            call.replay = CONVERGENT

    before(calls, "settle_lost", dispose)


@BUGS.add("a loss forgets that the call was sent")
def loss_forgets_attempts() -> None:
    def dispose(k: Kernel, mount: Mount, call: Invocation, fault: Fault) -> None:
        call.attempts = 0

    before(calls, "settle_lost", dispose)


@BUGS.add("the replay budget is ignored")
def replay_budget_is_ignored() -> None:
    _limit(calls, "requeue", replays=_MANY, probes=_MANY)


@BUGS.add("the probe budget is ignored")
def probe_budget_is_ignored() -> None:
    _limit(calls, "hold", probes=_MANY)


@BUGS.add("absent is taken for done")
def absent_is_taken_for_done() -> None:
    def make(original: Function) -> Function:
        def read(rule: ProbeRequired, response: Response) -> ProbeAnswer:
            answer: ProbeAnswer = original(rule, response)
            return Completed(_INVENTED) if isinstance(answer, SafeToRetry) else answer

        return read

    wrap(calls, "read_probe", make)


@BUGS.add("unknown is taken for absent")
def unknown_is_taken_for_absent() -> None:
    replace(call_frames, "STILL_UNKNOWN", SAFE_TO_RETRY)


@BUGS.add("a running call that is absent is redone")
def running_call_is_redone() -> None:
    def on_probe_answer(k: Kernel, link: Link, call: Invocation, response: Response) -> None:
        if isinstance(call.state, Probing):
            call.state = msgspec.structs.replace(call.state, may_run=False)

    before(calls, "on_probe_answer", on_probe_answer)


@BUGS.add("a held call is not probed after a fenced loss")
def held_call_is_not_probed() -> None:
    def make(original: Function) -> Function:
        def on_lost(k: Kernel, link: Link, fault: Fault) -> None:
            probe_held = calls.probe_held
            if isinstance(link.stage, Draining):
                replace(calls, "probe_held", do_nothing)
            original(k, link, fault)
            replace(calls, "probe_held", probe_held)

        return on_lost

    wrap(calls, "on_generation_lost", make)


@BUGS.add("an unanswered call is not probed at its deadline")
def overdue_call_is_not_probed() -> None:
    def make(original: Function) -> Function:
        def answer_deadline(k: Kernel, link: Link, call: Invocation, overdue: Overdue) -> None:
            if isinstance(call.replay, ProbeRequired):
                calls.answer_result(k, call, "handshake", _INVENTED)
            else:
                original(k, link, call, overdue)

        return answer_deadline

    wrap(calls, "_answer_deadline", make)


# --- generations ------------------------------------------------------------------------------------------


@BUGS.add("the fence is lost")
def fence_is_lost() -> None:
    def make(original: Function) -> Function:
        def fence(k: Kernel, mount: Mount, candidate: Link) -> None:
            incumbent = mount.serving_link()
            original(k, mount, candidate)
            if incumbent is not None:
                incumbent.stage = Live()

        return fence

    wrap(mounts, "fence", make)


@BUGS.add("a fenced generation gets new work")
def fenced_generation_gets_work() -> None:
    def make(original: Function) -> Function:
        def fence(k: Kernel, mount: Mount, candidate: Link) -> None:
            incumbent = mount.serving_link()
            original(k, mount, candidate)
            if incumbent is not None:
                mount.phase = Serving(incumbent.generation)

        return fence

    wrap(mounts, "fence", make)


@BUGS.add("the incumbent is killed while it drains")
def incumbent_is_killed() -> None:
    def stop_drained(k: Kernel, mount: Mount) -> None:
        for link in list(mount.links.values()):
            if isinstance(link.stage, Draining):
                mounts._retire(k, link)
                mounts._stop(k, mount, link)

    replace(mounts, "stop_drained", stop_drained)


@BUGS.add("a drained generation never leaves")
def drained_generation_stays() -> None:
    replace(mounts, "stop_drained", do_nothing)


@BUGS.add("a candidate's failure takes the incumbent with it")
def candidate_takes_incumbent_down() -> None:
    def refused(k: Kernel, mount: Mount, fault: Fault) -> None:
        if (incumbent := mount.serving_link()) is not None:
            mounts.plan_restart(k, mount, incumbent)

    after(mounts, "keep_incumbent", refused)


@BUGS.add("a dead incumbent's candidate is forgotten")
def candidate_is_forgotten() -> None:
    def promote(k: Kernel, mount: Mount) -> None:
        if isinstance(mount.rollout, Preparing):
            mount.rollout = Settled()

    before(mounts, "promote_candidate", promote)


@BUGS.add("the circuit never opens")
def circuit_never_opens() -> None:
    _limit(mounts, "plan_restart", unproductive_starts=_MANY)


@BUGS.add("restarts do not wait")
def restarts_do_not_wait() -> None:
    _limit(mounts, "plan_restart", backoff_s=0.0)


@BUGS.add("an open circuit queues calls")
def open_circuit_queues_calls() -> None:
    def accept(k: Kernel, call: Invocation) -> None:
        mount = k.state.mounts[call.mount]
        if isinstance(mount.phase, Open):
            mount.phase = Waiting(mount.phase.until)

    before(calls, "accept", accept)


# --- dispatch ---------------------------------------------------------------------------------------------


@BUGS.add("a child id is reused")
def child_id_is_reused() -> None:
    def make(original: Function) -> Function:
        def send(k: Kernel, link: Link, call: Invocation, child_id: int) -> None:
            original(k, link, call, child_id - 1 if call.attempts > 1 else child_id)

        return send

    wrap(calls, "send", make)


@BUGS.add("conflict keys are ignored")
def conflict_keys_are_ignored() -> None:
    def barred_keys(k: Kernel, mount: Mount) -> set[str]:
        return set()

    replace(calls, "_barred_keys", barred_keys)


@BUGS.add("the queue is reversed")
def queue_is_reversed() -> None:
    def reverse(k: Kernel, mount: Mount) -> None:
        mount.queue.reverse()

    before(calls, "dispatch_ready", reverse)
    after(calls, "dispatch_ready", reverse)


@BUGS.add("a replay goes to the end of the queue")
def replay_goes_to_the_end() -> None:
    def make(original: Function) -> Function:
        def requeue(k: Kernel, mount: Mount, call: Invocation, fault: Fault) -> None:
            original(k, mount, call, fault)
            if call.seq in mount.queue:
                mount.queue.remove(call.seq)
                mount.queue.append(call.seq)

        return requeue

    wrap(calls, "requeue", make)


@BUGS.add("the queue has no bound")
def queue_has_no_bound() -> None:
    _limit(calls, "accept", queue=_MANY)


@BUGS.add("replays have no queue bound")
def replays_have_no_queue_bound() -> None:
    _limit(calls, "requeue", queue=_MANY)


@BUGS.add("pending has no bound")
def pending_has_no_bound() -> None:
    _limit(calls, "accept", pending=_MANY)


@BUGS.add("in-flight has no bound")
def in_flight_has_no_bound() -> None:
    _limit(calls, "dispatch_ready", in_flight=_MANY)


@BUGS.add("a full outbox is ignored")
def full_outbox_is_ignored() -> None:
    _limit(calls, "dispatch_ready", outbox_bytes=1 << 40)


# --- answers ----------------------------------------------------------------------------------------------


@BUGS.add("a duplicate id overwrites")
def duplicate_id_overwrites() -> None:
    replace(client_frames, "_outstanding", lambda k, identity: False)


@BUGS.add("a late answer is delivered")
def late_answer_is_delivered() -> None:
    def is_running(k: Kernel, call: Invocation, *reason: str) -> bool:
        return isinstance(call.state, InFlight | Overdue)

    skip_if(calls, "withdraw", is_running)


@BUGS.add("a cancelled call is answered")
def cancelled_call_is_answered() -> None:
    def withdraw(k: Kernel, call: Invocation, *reason: str) -> None:
        k.to_client(encode_result(call.public_id, _INVENTED))

    after(calls, "withdraw", withdraw)


@BUGS.add("the outcome is not_started after dispatch")
def outcome_is_not_started() -> None:
    def answer_unknown(k: Kernel, call: Invocation, fault: Fault) -> None:
        calls.answer_error(k, call, OUTCOME_UNKNOWN, fault, "not_started", advice(call))

    replace(calls, "answer_unknown", answer_unknown)


@BUGS.add("a 2026 result has no resultType")
def result_has_no_result_type() -> None:
    def make(original: Function) -> Function:
        def shape_result(k: Kernel, call: Invocation, era: Era, result: Raw | bytes) -> Raw | bytes:
            unchanged: Raw | bytes = original(k, call, call.era, result)
            return unchanged

        return shape_result

    wrap(calls, "shape_result", make)


@BUGS.add("deadlines are ignored")
def deadlines_are_ignored() -> None:
    def is_no_probe(k: Kernel, call: Invocation) -> bool:
        return not isinstance(call.state, Probing)

    skip_if(calls, "_on_deadline", is_no_probe)


@BUGS.add("a list that waits is never answered")
def waiting_list_is_never_answered() -> None:
    replace(client, "flush_waiters", do_nothing)


# --- notifications and questions ----------------------------------------------------------------------------


@BUGS.add("progress goes back")
def progress_goes_back() -> None:
    def progress(k: Kernel, link: Link, params: Members) -> None:
        for call in k.state.calls.values():
            call.progress = None

    before(calls, "on_progress", progress)


@BUGS.add("a candidate's notification leaks")
def candidate_notification_leaks() -> None:
    def on_child_notification(k: Kernel, link: Link, note: Notification) -> None:
        if note.method == "notifications/message" and not isinstance(link.stage, Live | Draining):
            k.to_client(encode_notification(note.method, note.params, note.extra))

    before(child_frames, "_on_notification", on_child_notification)


@BUGS.add("a candidate's question leaks")
def candidate_question_leaks() -> None:
    def make(original: Function) -> Function:
        def on_child_request(k: Kernel, link: Link, request: Request) -> None:
            stage, link.stage = link.stage, Live()
            original(k, link, request)
            link.stage = stage

        return on_child_request

    wrap(server_requests, "on_child_request", make)


@BUGS.add("a question is not cancelled on loss")
def question_is_not_cancelled() -> None:
    replace(server_requests, "cancel_of", do_nothing)


@BUGS.add("a question is tied to another generation's call")
def question_is_tied_to_another_generation() -> None:
    def is_open_on(call: Invocation, link: Link) -> bool:
        return call.mount == link.mount and isinstance(call.state, InFlight | Parked)

    replace(server_requests, "is_open_on", is_open_on)


@BUGS.add("an answer goes to the newest generation")
def answer_goes_to_newest_generation() -> None:
    def on_client_answer(k: Kernel, response: Response) -> None:
        if isinstance(response.id, int) and (ask := k.state.asks.get(response.id)) is not None:
            newest = k.state.mounts[ask.mount].generation
            k.state.asks[response.id] = msgspec.structs.replace(ask, generation=newest)

    before(server_requests, "on_client_answer", on_client_answer)


@BUGS.add("questions have no bound")
def questions_have_no_bound() -> None:
    _limit(server_requests, "on_child_request", asks=_MANY)


@BUGS.add("a ticket survives its server")
def ticket_survives_its_server() -> None:
    def is_parked(k: Kernel, mount: Mount, call: Invocation, fault: Fault) -> bool:
        return isinstance(call.state, Parked)

    skip_if(calls, "settle_lost", is_parked)


# --- snapshots ----------------------------------------------------------------------------------------------


@BUGS.add("the snapshot forgets the replays")
def snapshot_forgets_replays() -> None:
    def snapshot(k: Kernel) -> None:
        for call in k.state.calls.values():
            call.replays = 0

    before(Kernel, "snapshot", snapshot)


@BUGS.add("the snapshot forgets which ids were used")
def snapshot_forgets_ids() -> None:
    def restore(k: Kernel, data: bytes) -> None:
        k.state.seq -= 1

    after(Kernel, "restore", restore)


# --- what the session keeps -----------------------------------------------------------------------------------


@BUGS.add("a subscription is not handed to the successor")
def subscription_is_not_handed_over() -> None:
    replace(subscriptions, "sync", do_nothing)


@BUGS.add("a log level is not handed to the successor")
def level_is_not_handed_over() -> None:
    def make(original: Function) -> Function:
        def restore(k: Kernel, link: Link) -> None:
            level, k.state.session.log_level = k.state.session.log_level, ""
            original(k, link)
            k.state.session.log_level = level

        return restore

    wrap(subscriptions, "restore", make)


@BUGS.add("a subscription that ended is handed over", "handshake-client-handshake-server-roomy")
def ended_subscription_is_handed_over() -> None:
    def is_unsubscribe(k: Kernel, link: Link, call: Invocation) -> bool:
        return call.method == "resources/unsubscribe"

    skip_if(subscriptions, "on_session_call", is_unsubscribe)


@BUGS.add("what a fenced generation grants stays with it", "handshake-client-handshake-server-roomy")
def late_subscription_is_not_handed_over() -> None:
    def make(original: Function) -> Function:
        def on_session_call(k: Kernel, link: Link, call: Invocation) -> None:
            restore = subscriptions.restore
            replace(subscriptions, "restore", do_nothing)
            original(k, link, call)
            replace(subscriptions, "restore", restore)

        return on_session_call

    wrap(subscriptions, "on_session_call", make)


@BUGS.add("a stream is not renewed for another set of resources")
def stream_is_not_renewed() -> None:
    def has_stream(k: Kernel, link: Link, uris: list[str]) -> bool:
        return not isinstance(link.stream, NoStream)

    skip_if(subscriptions, "_open_stream", has_stream)


@BUGS.add("an update is sent twice")
def update_is_sent_twice() -> None:
    def make(original: Function) -> Function:
        def on_updated(k: Kernel, link: Link, params: Members) -> None:
            original(k, link, params)
            original(k, link, params)

        return on_updated

    wrap(subscriptions, "on_updated", make)


@BUGS.add("a candidate's update is heard")
def candidate_update_is_heard() -> None:
    def on_notification(k: Kernel, link: Link, note: Notification) -> None:
        if note.method == "notifications/resources/updated" and not isinstance(link.stage, Live | Draining):
            subscriptions.on_updated(k, link, members(note.params or b"{}"))

    before(child_frames, "_on_notification", on_notification)


@BUGS.add("servers are not told of changed roots")
def changed_roots_are_not_told() -> None:
    replace(client_frames, "_broadcast", do_nothing)


@BUGS.add("old roots are told after they changed", "levels-and-roots")
def old_roots_are_told() -> None:
    def make(original: Function) -> Function:
        def on_notification(k: Kernel, note: Notification) -> None:
            roots = k.state.session.roots
            original(k, note)
            k.state.session.roots = roots

        return on_notification

    wrap(client_frames, "_on_notification", make)


@BUGS.add("a resource is read from another server")
def resource_is_read_elsewhere() -> None:
    def resource_owner(public: Public, uri: str) -> str:
        return next(iter(public._specs))

    replace(Public, "resource_owner", resource_owner)


@BUGS.add("an idle server leaves with a subscription", "lazy")
def idle_server_leaves_with_subscription() -> None:
    def make(original: Function) -> Function:
        def is_idle(k: Kernel, mount: Mount) -> bool:
            wanted_uris = Kernel.wanted_uris
            replace(Kernel, "wanted_uris", lambda k, mount: [])
            idle: bool = original(k, mount)
            replace(Kernel, "wanted_uris", wanted_uris)
            return idle

        return is_idle

    wrap(mounts, "_is_idle", make)


@BUGS.add("an idle server leaves while it is rolled over", "lazy-rollout")
def idle_server_leaves_during_rollout() -> None:
    def make(original: Function) -> Function:
        def is_idle(k: Kernel, mount: Mount) -> bool:
            rollout, mount.rollout = mount.rollout, Settled()
            idle: bool = original(k, mount)
            mount.rollout = rollout
            return idle

        return is_idle

    wrap(mounts, "_is_idle", make)


@BUGS.add("a question never expires")
def question_never_expires() -> None:
    replace(server_requests, "tick", do_nothing)


# --- tasks -----------------------------------------------------------------------------------------------


@BUGS.add("two tasks get one handle", "tasks")
def two_tasks_get_one_handle() -> None:
    replace(calls, "new_handle", lambda session, number: session)


@BUGS.add("a task stays with a lost server", "tasks")
def task_stays_with_lost_server() -> None:
    replace(tasks, "on_generation_lost", do_nothing)


@BUGS.add("the successor is not asked about a task", "tasks")
def successor_is_not_asked_about_task() -> None:
    replace(tasks, "_ask_successor", do_nothing)


@BUGS.add("the successor's task under the same id is taken", "tasks-same-id")
def successors_task_is_taken() -> None:
    def take_report(k: Kernel, link: Link, task: Task, response: Response) -> None:
        if response.result is not None:
            task.created = text_of(members(response.result), "createdAt")

    before(tasks, "_take_report", take_report)


@BUGS.add("an ended task is forgotten before its time", "tasks")
def ended_task_is_forgotten() -> None:
    def forget(k: Kernel, *_: Any) -> None:
        for handle in [handle for handle, task in k.state.tasks.items() if isinstance(task.place, Ended)]:
            del k.state.tasks[handle]

    before(tasks, "forget_expired", forget)


@BUGS.add("a task is forgotten while a request about it runs", "tasks-lost-host")
def task_is_forgotten_in_use() -> None:
    def make(original: Function) -> Function:
        def forget(k: Kernel) -> None:
            kept, k.state.calls = k.state.calls, {}
            original(k)
            k.state.calls = kept

        return forget

    wrap(tasks, "forget_expired", make)


@BUGS.add("tasks/cancel changes a task that has ended", "tasks")
def ended_task_is_cancelled() -> None:
    def answer(k: Kernel, request: Incoming, handle: str) -> None:
        task = k.state.tasks.get(handle)
        if request.method == "tasks/cancel" and task is not None and isinstance(task.place, Ended):
            task.seen = changed(task, k.now, "cancelled")
            tasks._save(k, task)

    before(tasks, "answer", answer)


@BUGS.add("a task is not recorded", "tasks")
def task_is_not_recorded() -> None:
    replace(tasks, "_save", do_nothing)


@BUGS.add("a request about a task leaves its generation", "tasks-lost-host")
def task_request_leaves_generation() -> None:
    replace(Kernel, "task_link", lambda k, call: None)


@BUGS.add("a fenced generation is stopped with a task", "tasks-lost-host")
def fenced_generation_is_stopped_with_task() -> None:
    def make(original: Function) -> Function:
        def stop_drained(k: Kernel, *args: Any) -> None:
            tasks_at = Kernel.tasks_at
            replace(Kernel, "tasks_at", lambda k, link: [])
            original(k, *args)
            replace(Kernel, "tasks_at", tasks_at)

        return stop_drained

    wrap(mounts, "stop_drained", make)


@BUGS.add("a server is asked for the host's handle", "tasks")
def server_is_asked_for_handle() -> None:
    replace(call_frames, "_inner_task", lambda k, call: call.name)


@BUGS.add("a watched task changes unheard", "tasks-watched")
def watched_task_changes_unheard() -> None:
    replace(tasks, "_announce", do_nothing)


@BUGS.add("a task of a killed host stays open", "tasks-of-calls")
def task_of_killed_host_stays_open() -> None:
    skip_if(tasks, "_set_failed", lambda task, *_: isinstance(task.place, InCall))


@BUGS.add("a lost task ends without its outcome", "tasks")
def lost_task_ends_without_outcome() -> None:
    replace(tasks, "OUTCOME_UNKNOWN", -32603)


@BUGS.add("a cancelled call goes on as its task", "tasks-of-calls")
def cancelled_call_goes_on() -> None:
    replace(calls, "cancel_detached", do_nothing)

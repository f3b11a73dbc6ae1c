"""Bugs to be seeded into the kernel, each as an exact old text and what it becomes."""

from __future__ import annotations

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "NeverReplay is replayed",
        "recovery",
        "            answer_unknown(k, call, fault)\n\n\ndef requeue",
        "            requeue(k, mount, call, fault)\n\n\ndef requeue",
    ),
    Mutant(
        "a loss forgets that the call was sent",
        "recovery",
        '    """What the replay class allows for one call whose attempt was lost (law 3)."""\n',
        "    call.attempts = 0\n",
    ),
    Mutant("the fence is lost", "rollout", "        incumbent.stage = Draining()\n", "        pass\n"),
    Mutant(
        "a fenced generation gets new work",
        "rollout",
        "    mounts.activate(k, mount, candidate)\n",
        "    mounts.activate(k, mount, candidate)\n"
        "    if incumbent is not None:\n"
        "        mount.phase = Serving(incumbent.generation)\n",
    ),
    Mutant(
        "a child id is reused",
        "ledger",
        "    child_id = k.mint()\n    if call.attempts > 0:",
        "    child_id = k.mint() - (1 if call.attempts > 0 else 0)\n    if call.attempts > 0:",
    ),
    Mutant(
        "the replay budget is ignored",
        "recovery",
        "    if call.replays >= budget:",
        "    if call.replays >= budget + 9:",
    ),
    Mutant(
        "the probe budget is ignored",
        "recovery",
        "    if call.probes >= k.limits.probes:",
        "    if call.probes >= k.limits.probes + 9:",
    ),
    Mutant(
        "a late answer is delivered",
        "answering",
        "    finish(k, call, None)\n    k.note(",
        "    if not isinstance(call.state, InFlight):\n        finish(k, call, None)\n    k.note(",
    ),
    Mutant(
        "a duplicate id overwrites",
        "session",
        "        identity in k.state.ids\n",
        "        identity in ()\n",
    ),
    Mutant(
        "absent is taken for done",
        "recovery",
        '        if said.status == "absent":\n            return SAFE_TO_RETRY',
        '        if said.status == "absent":\n'
        '            return Completed(Raw(b\'{"content":[{"type":"text","text":"?"}]}\'))',
    ),
    Mutant(
        "unknown is taken for absent",
        "recovery",
        "    return STILL_UNKNOWN\n\n\ndef _probe_result",
        "    return SAFE_TO_RETRY\n\n\ndef _probe_result",
    ),
    Mutant(
        "a running call that is absent is redone",
        "recovery",
        "        case SafeToRetry() if not call.overdue:",
        "        case SafeToRetry() if True:",
    ),
    Mutant(
        "conflict keys are ignored",
        "ledger",
        "        if barred and not barred.isdisjoint(conflict_keys(k, call)):",
        "        if barred and False:",
    ),
    Mutant(
        "the queue is reversed",
        "ledger",
        "    for seq in list(mount.queue):\n",
        "    for seq in reversed(mount.queue):\n",
    ),
    Mutant(
        "a replay goes to the end of the queue",
        "recovery",
        "    insort(mount.queue, call.seq)",
        "    mount.queue.append(call.seq)",
    ),
    Mutant(
        "a candidate's notification leaks",
        "streams",
        "    public = isinstance(link.stage, Live | Draining)",
        "    public = True",
    ),
    Mutant(
        "a candidate's question leaks",
        "asks",
        "    is_public = isinstance(link.stage, Live | Draining)",
        "    is_public = True",
    ),
    Mutant(
        "a question is not cancelled on loss",
        "recovery",
        "        del k.state.routes[identity]\n    asks.cancel_of(k, link)",
        "        del k.state.routes[identity]",
    ),
    Mutant(
        "a question is tied to another generation's call",
        "asks",
        "            return (call.mount, generation) == (link.mount, link.generation)",
        "            return call.mount == link.mount",
    ),
    Mutant(
        "an answer goes to the newest generation",
        "asks",
        "    link = k.link(ask.mount, ask.generation)\n    if link is None:\n        return",
        "    link = k.link(ask.mount, k.state.mounts[ask.mount].generation)\n    if link is None:\n        return",
    ),
    Mutant(
        "progress goes back",
        "streams",
        "    if call.progress is not None and value <= call.progress:",
        "    if call.progress is not None and value < 0:",
    ),
    Mutant(
        "a cancelled call is answered",
        "answering",
        '    k.note("dispatch", call=call.seq, phase="cancelled")',
        "    k.to_client(encode_result(call.public_id, b'{\"content\":[]}'))",
    ),
    Mutant(
        "the circuit never opens",
        "mounts",
        "    if mount.unproductive >= k.limits.unproductive_starts:",
        "    if mount.unproductive >= 99:",
    ),
    Mutant(
        "restarts do not wait", "mounts", "    if mount.unproductive > 1:", "    if mount.unproductive > 99:"
    ),
    Mutant(
        "an open circuit queues calls",
        "ledger",
        "    if isinstance(mount.phase, Open | Stopped | Disabled):",
        "    if isinstance(mount.phase, Stopped | Disabled):",
    ),
    Mutant(
        "deadlines are ignored",
        "deadlines",
        "        if due <= k.now:\n            _overdue(k, call)",
        "        if due <= k.now and isinstance(call.state, Probing):\n            _overdue(k, call)",
    ),
    Mutant(
        "the queue has no bound",
        "ledger",
        "    if len(mount.queue) > k.limits.queue:",
        "    if len(mount.queue) > 99:",
    ),
    Mutant(
        "replays have no queue bound",
        "recovery",
        "    if len(mount.queue) >= k.limits.queue:",
        "    if len(mount.queue) >= 99:",
    ),
    Mutant(
        "pending has no bound",
        "ledger",
        "    if len(k.state.calls) >= k.limits.pending:",
        "    if len(k.state.calls) >= 99:",
    ),
    Mutant(
        "questions have no bound",
        "asks",
        "    elif len(k.state.asks) >= k.limits.asks:",
        "    elif len(k.state.asks) >= 99:",
    ),
    Mutant(
        "the outcome is not_started after dispatch",
        "recovery",
        '    answering.answer_error(k, call, number, message, fault, "unknown", advice(call))\n\n\ndef unreadable',
        '    answering.answer_error(k, call, number, message, fault, "not_started", advice(call))\n\n\ndef unreadable',
    ),
    Mutant(
        "the snapshot forgets the replays",
        "core",
        "        return msgspec.msgpack.encode(",
        "        for call in self.state.calls.values():\n"
        "            call.replays = 0\n"
        "        return msgspec.msgpack.encode(",
    ),
    Mutant(
        "the snapshot forgets which ids were used",
        "core",
        "        self.state = capsule.state\n",
        "        self.state = capsule.state\n        self.state.seq -= 1\n",
    ),
    Mutant(
        "the incumbent is killed while it drains",
        "mounts",
        "    if not any(recovery.is_on(call, link) for call in k.state.calls.values()):",
        "    if True:",
    ),
    Mutant(
        "a drained generation never leaves",
        "mounts",
        "            retire_if_drained(k, link)\n",
        "            pass\n",
    ),
    Mutant(
        "a list that waits is never answered",
        "welcome",
        "    if k.state.waiters and _settled(k):\n        answer_waiting(k)",
        "    pass",
    ),
    Mutant(
        "a 2026 result has no resultType",
        "answering",
        '    if call.era == "modern" and era == "handshake":\n        result',
        "    if False:\n        result",
    ),
    Mutant(
        "a held call is not probed after a fenced loss",
        "recovery",
        "            resume(k, mount)  # a fenced",
        "            pass  # a fenced",
    ),
    Mutant(
        "an unanswered call is not probed at its deadline",
        "deadlines",
        "        recovery.resume(k, k.state.mounts[call.mount])\n        return",
        "        answering.answer_result(k, call, 'handshake', b'{\"content\":[]}')\n        return",
    ),
    Mutant(
        "a candidate's failure takes the incumbent with it",
        "recovery",
        "            rollout.refused(k, mount, fault)\n            return",
        "            rollout.refused(k, mount, fault)\n            mounts.plan_restart(k, mount, link)\n            return",
    ),
    Mutant(
        "a dead incumbent's candidate is forgotten",
        "rollout",
        "            mount.phase = Starting(generation, deadline)\n            mount.restarts += 1\n            return True",
        "            return False",
    ),
    Mutant(
        "in-flight has no bound",
        "ledger",
        "        if free <= 0 or link.backlog > k.limits.outbox_bytes:",
        "        if link.backlog > k.limits.outbox_bytes:",
    ),
    Mutant(
        "a ticket survives its server",
        "recovery",
        "        answering.finish(k, call, None)\n        return\n    if isinstance(call.state, Probing)",
        "        return\n    if isinstance(call.state, Probing)",
    ),
    Mutant(
        "a full outbox is ignored",
        "ledger",
        "        if free <= 0 or link.backlog > k.limits.outbox_bytes:",
        "        if free <= 0:",
    ),
)

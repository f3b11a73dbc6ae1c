"""The state machine: each rule does something to the real workspace and to the model, and then both are compared."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections import Counter
from functools import cache
from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harness.tree_model import calls, drawn
from harness.tree_model.answers import Done, Evidence, Payload, Refusal, Request
from harness.tree_model.calls import Meddled
from harness.tree_model.compare import (
    agree,
    compare_answer,
    compare_diff,
    compare_disk,
    compare_journal,
    is_spent,
)
from harness.tree_model.foreign import Foreign
from harness.tree_model.inside import Reply
from harness.tree_model.oracle import perform
from harness.tree_model.state import Entry, Model, draft_of
from harness.tree_model.worker import Worker
from harness.tree_model.writes import brought, sent_content

MEMORY: Final = "/dev/shm"
WHOLE_EVERY: Final = 10
"""Steps between two looks at the whole journal; there is one after every start as well."""
OVERLAP: Final = 3


@cache
def _worker() -> Worker:
    """One for all runs of this process; in memory where that is possible, since nothing here is about power cuts."""
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="perdure-tree-model-", dir=where)
    atexit.register(shutil.rmtree, folder)
    return Worker(folder)


class TreeMachine(RuleBasedStateMachine):
    """`steps` counts what was done in all runs together, `lengths` how many steps each of them had."""

    steps: ClassVar[Counter[str]] = Counter()
    lengths: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.step = 0
        self._answers: dict[str, Payload] = {}
        self._checked = 0
        self._worker = _worker()
        self._worker.reset()
        for path, mode, content in drawn.AT_FIRST:
            for edit in (Foreign("replace", path, content), Foreign("chmod", path, mode=mode)):
                edit.happen(self._worker.workspace)
                edit.apply(self.model)
        self._worker.start()

    def teardown(self) -> None:
        self.lengths[self.step] += 1
        self._worker.kill()

    # --- calls ----------------------------------------------------------------------------------------------

    @rule(request=calls.safe_writes())
    def write(self, request: Request) -> None:
        self._call(request)

    @rule(request=calls.edits())
    def edit(self, request: Request) -> None:
        self._call(request)

    @rule(request=calls.transactions())
    def transact(self, request: Request) -> None:
        self._call(request)

    @rule(request=calls.undos())
    def undo(self, request: Request) -> None:
        self._call(request)

    @rule(request=calls.restores())
    def restore(self, request: Request) -> None:
        self._call(request)

    @rule(request=calls.again())
    def repeat(self, request: Request) -> None:
        self._call(request)

    @rule(request=calls.looks())
    def look(self, request: Request) -> None:
        self._call(request)

    def _call(self, request: Request) -> None:
        self._next(request.tool)
        reply = self._worker.call(request, self._key)
        assert reply is not None, "it was killed by itself"
        self._answered(request, reply)

    # --- other programs -----------------------------------------------------------------------------------------

    @rule(edit=calls.foreign_edits())
    def foreign(self, edit: Foreign) -> None:
        self._next("foreign")
        edit.happen(self._worker.workspace)
        edit.apply(self.model)

    @rule(call=calls.meddled(calls.writes(), "replace", "write", "delete"), moment=calls.moments())
    def meanwhile(self, call: Meddled, moment: str) -> None:
        """Another program changes a file in the midst of a call. Its edit stays; the call is done or refused."""
        self._next("meanwhile")
        request, edit = call
        happened: list[bool] = []
        reply = self._worker.call_paused(
            request, self._key, moment, lambda: happened.append(edit.happen(self._worker.workspace))
        )
        if not any(happened):
            self._answered(request, reply)
        elif moment == "commit.planning@1":
            edit.apply(self.model)
            self._answered(request, reply)
        else:
            if reply.is_error and self._is_planned(request):
                self._taken_back(request, reply)
            else:
                self._answered(request, reply)
            edit.apply(self.model)

    def _is_planned(self, request: Request) -> bool:
        """Whether nothing but another program can be in the way of a call."""
        return isinstance(perform(self.model, request, Evidence(False, self._worker.made))[0], Done)

    # --- endings --------------------------------------------------------------------------------------------

    @rule(request=calls.changes(), point=st.integers(1, 20), recovery=st.sampled_from((0, 0, 0, 1, 2, 4, 9)))
    def crash(self, request: Request, point: int, recovery: int) -> None:
        """Killed at the n-th fault point of a call, and perhaps again while it recovers."""
        self._crash(request, point, recovery, None)

    @rule(
        request=calls.changes_of_many(), point=st.integers(1, 60), recovery=st.sampled_from((0, 0, 1, 5, 20))
    )
    def crash_in_many(self, request: Request, point: int, recovery: int) -> None:
        self._crash(request, point, recovery, None)

    @rule(call=calls.meddled(calls.changes_of_one(), "replace", "delete"), point=st.integers(1, 20))
    def crash_and_edit(self, call: Meddled, point: int) -> None:
        """Between the kill and the next start another program changes a file."""
        self._crash(call.request, point, 0, call.edit)

    def _crash(self, request: Request, point: int, recovery: int, edit: Foreign | None) -> None:
        self._next("crash")
        reply = self._worker.call(request, self._key, f"*=kill@{point}")
        if reply is not None:
            self._answered(request, reply)
            return
        self.steps["kills"] += 1
        happened = edit is not None and edit.happen(self._worker.workspace)
        landed = self._worker.applied_watermark()
        self._restart(recovery)
        self._judge(request, edit if happened else None, landed)

    def _judge(self, request: Request, edit: Foreign | None, landed: int) -> None:
        """All of a killed call or nothing: the journal says which, and everything else must agree."""
        undecided: list[Entry] = []
        is_decided = self._worker.look(OVERLAP).head > self.model.head
        answer, after = perform(self.model, request, Evidence(not is_decided, self._worker.made))
        if is_decided:
            self.steps["kills after the fact"] += 1
            assert isinstance(answer, Done), f"expected {answer}, and it was done"
            undecided = [one for one in after.entries if one.seq > max(self.model.head, landed)]
            self.model = after
        elif isinstance(answer, Refusal):
            self._perhaps_kept(answer)
        if edit is not None:
            edit.apply(self.model)
        self.model.ended()
        self.model.recovered(undecided)
        told = self._worker.probe(self._key)
        counts = is_decided and self.model.entry(after.head) is not None
        agree("whether the probe knows it", told is not None, counts)
        if told is not None:
            reply = Reply({"ok": True, **told}, is_error=False)
            compare_answer(answer, reply)
            self._remember(request, reply.payload)

    def _perhaps_kept(self, refusal: Refusal) -> None:
        """It was to be refused, and killed: its payload may have been kept, and a try counted, or not."""
        kept = {draft_of(content): content for content in refusal.beside}
        self.model.drafts |= {name: one for name, one in kept.items() if self._worker.draft(name) is not None}
        if refusal.kept is None or refusal.draft is None or self._worker.draft(refusal.draft) is None:
            return
        self.model.drafts[refusal.draft] = refusal.kept[1]
        self.model.tried(refusal.kept, refusal.left | self.model.left(refusal.kept))

    @rule(how=st.sampled_from(("settle", "visit", "close", "kill", "kill")))
    def rest(self, how: str) -> None:
        """While nothing is asked of it: time passes, another process comes and goes, or it ends, well or badly."""
        self._next(how)
        match how:
            case "settle":
                self._worker.settle()
            case "visit":
                self._worker.visited()
            case "close":
                self._worker.close()
                self._restart(0)
                self.model.ended()
            case "kill":
                self._worker.kill()
                self._restart(0)
                self.model.ended()

    def _restart(self, recovery: int) -> None:
        self._checked = 0
        if recovery:
            if self._worker.start(f"*=kill@{recovery}"):
                return
            self.steps["kills in recovery"] += 1
        assert self._worker.start()

    # --- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def same(self) -> None:
        """The disk is as the model says, and the journal tells the same."""
        compare_disk(self.model, self._worker.workspace)
        count = len(self.model.entries)
        whole = self._checked == 0 or self.step % WHOLE_EVERY == 0
        known = self._worker.look() if whole else self._worker.look(count - self._checked + OVERLAP)
        compare_journal(self.model, known)
        self.model.times |= {int(row["journal_id"]): row["ts"] for row in known.rows}
        self._checked = count
        if whole:
            kept = {identity: self._worker.draft(identity) for identity in self.model.drafts}
            agree("the drafts", kept, self.model.drafts)

    # --- answers ------------------------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        """The invocation key of this step."""
        return f"call {self.step}"

    def _next(self, rule: str) -> None:
        self.step += 1
        self.steps[rule] += 1
        self.steps["steps"] += 1

    def _answered(self, request: Request, reply: Reply) -> None:
        evidence = Evidence(bool(reply.payload.get("conflicts")), self._worker.made)
        answer, after = perform(self.model, request, evidence)
        compare_answer(answer, reply)
        if isinstance(answer, Refusal):
            self.steps["refused"] += 1
            if answer.kept is not None and answer.draft is not None:
                after.tried(answer.kept, {_left(reply)})
        elif request.tool == "diff":
            compare_diff(self.model, request, reply.payload)
        self._remember(request, reply.payload)
        self.model = after

    def _remember(self, request: Request, payload: Payload) -> None:
        """The answer under an idempotency key is the same every time."""
        key = request.arguments.get("idempotency_key")
        if key is None or not payload.get("ok"):
            return
        if payload.get("deduplicated"):
            agree("the same answer again", payload, {**self._answers[key], "deduplicated": True})
        else:
            self._answers[key] = payload

    def _taken_back(self, request: Request, reply: Reply) -> None:
        """It was decided and could not be done: no file and no row is different, and its payload is kept."""
        self.steps["taken back"] += 1
        _, after = perform(self.model, request, Evidence(False, self._worker.made))
        assert reply.payload["error"] in ("conflict", "stale_precondition", "quota_exceeded")
        self.model.abandoned(request.session, after)
        self.model.drafts |= {draft_of(content): content for content in brought(request)}
        if request.tool == "safe_write":
            sent = sent_content(self.model, request.arguments)
            self.model.tried((request.arguments["path"], sent), {_left(reply)})
            self.model.drafts[draft_of(sent)] = sent
            agree("the draft", reply.payload["draft"], draft_of(sent))


def _left(reply: Reply) -> int:
    return -1 if is_spent(reply) else int(reply.payload["retry_budget"])

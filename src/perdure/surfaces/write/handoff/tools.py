"""`handoff_write`, `handoff_read`: a task that stops half-way, left so that the next agent can trust it."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any, Final, get_args

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.msgspec_types import prepare_type
from perdure.protocol.next_step import FILL, call_again, call_tool, then
from perdure.protocol.tools import arg
from perdure.storage.errors import StorageError
from perdure.storage.files.fingerprint import read_seen, seen
from perdure.storage.journal import Filter, Item
from perdure.surfaces.write import guards
from perdure.surfaces.write.checkpoints import KIND as CHECKPOINTS
from perdure.surfaces.write.gate import Checks
from perdure.surfaces.write.handoff.document import (
    REQUIRED,
    GoodFile,
    Handoff,
    Status,
    Step,
    StepStatus,
    faults,
    missing,
    normalized,
)
from perdure.surfaces.write.handoff.step_graph import GraphError, ready_steps
from perdure.surfaces.write.write import EXPECTED, stage_file
from perdure.text import codec, front_matter
from perdure.text.times import format_time
from perdure.workspace.change import PlanFunction
from perdure.workspace.planning import PlannedFile, PlanView, journal_path
from perdure.workspace.workspace import Workspace

KIND: Final = "handoff"
DEFAULT_PATH: Final = "HANDOFF.md"
MOST_BYTES: Final = 1024 * 1024
MOST_ARCHIVED: Final = 100
MOST_FAULTS: Final = 20
OUTSIDE: Final = ""
# Short, because a model reads it at every start. Files may also be given as {path, sha256}.
TEXTS: Final = {"type": "array", "items": {"type": "string"}}
ENVELOPE: Final = {
    "type": "object",
    "properties": {
        "task_id": {"type": "string"},
        "status": {"type": "string", "enum": list(get_args(Status))},
        "summary": {"type": "string"},
        "next_steps": TEXTS,
        "last_good_state": {**TEXTS, "description": "Paths of files to trust; their hashes are added."},
        "agent": {"type": "string"},
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "description": {"type": "string"},
                    "depends_on": TEXTS,
                    "status": {"type": "string", "enum": list(get_args(StepStatus))},
                },
                "additionalProperties": True,
            },
        },
    },
    "required": list(REQUIRED),
    "additionalProperties": True,
}

WHERE = arg(path="relative")


class HandoffWrite(msgspec.Struct, frozen=True):
    envelope: Annotated[
        dict[str, Any],
        arg("Also open_questions[], blockers[], context_hints, any other key.", extra_json_schema=ENVELOPE),
    ]
    body: Annotated[str, arg()] = ""
    path: Annotated[str, WHERE] = DEFAULT_PATH
    archive: Annotated[bool, arg("Keep a copy of the old one.")] = False
    expected_prev_sha256: Annotated[str, EXPECTED] | None = None


class HandoffRead(msgspec.Struct, frozen=True):
    path: Annotated[str, WHERE] = DEFAULT_PATH


def handoff_write(workspace: Workspace, params: HandoffWrite, call: Call) -> dict[str, Any]:
    sent = normalized({"agent": call.client, "next_steps": [], "last_good_state": [], **params.envelope})
    handoff = _checked(sent)
    ready = _ready(handoff.steps)
    sent["last_good_state"] = _hashed(workspace, sent["last_good_state"])
    drift = _drifts(workspace, msgspec.convert(sent["last_good_state"], list[GoodFile]))
    checks = Checks(workspace, call, frozenset({params.path}), always=True)
    checks.sent(params.path, workspace.store.take(_text(sent, params.body)))

    def plan(tree: PlanView) -> dict[str, Any]:
        known = tree.lookup(params.path)
        guards.check_precondition(known, params.expected_prev_sha256)
        before = _before(tree, known)
        if known.now is not None and params.expected_prev_sha256 is None:
            guards.check_seen(workspace, tree, known, call.session)
            _check_same_task(before, handoff, known)
        if params.archive and known.now is not None:
            _archive(workspace, tree, known, call, before)
        envelope = {**sent, **_story(workspace, sent, call)}
        kept = before[0] if before is not None else None
        content = front_matter.join(front_matter.render(envelope, kept), params.body)
        if len(content.encode()) > MOST_BYTES:
            raise refuse(
                "quota_exceeded",
                "too_large",
                "the handoff would be larger than 1 MiB.",
                next_step=call_again(body=FILL),
                suggested_action="split",
                reason_hint="size_limit",
            )
        after = workspace.store.take(content.encode())
        mode = "overwrite" if known.now is not None else "create"
        payload = stage_file(tree, known, after, call, op="handoff", mode=mode)
        return {
            **payload,
            "handoff_path": payload["path"],
            "drift_warnings": drift,
            "ready_steps": ready,
            **_checkpoints(workspace),
            "warnings": [*checks.warnings, *_renamed(params.envelope, sent)],
        }

    return workspace.commit(call, PlanFunction(frozenset({params.path}), plan)).result()


def _text(envelope: dict[str, Any], body: str) -> bytes:
    return front_matter.join(front_matter.render(envelope), body).encode()


def handoff_read(workspace: Workspace, params: HandoffRead, call: Call) -> dict[str, Any]:
    since = workspace.begin_read()
    content, sha256, path = _content(workspace, params.path)
    front, body = front_matter.split(content)
    envelope = front_matter.parse(front)
    handoff = _checked(normalized(envelope))
    workspace.record_read(call.session, path, sha256, since)
    return {
        "handoff_path": params.path,
        "sha256": sha256,
        "envelope": envelope,
        "body": body,
        "drift_warnings": _drifts(workspace, handoff.last_good_state),
        "ready_steps": _ready(handoff.steps),
        **_checkpoints(workspace),
    }


def _checked(envelope: dict[str, Any]) -> Handoff:
    """A normalized envelope as it is declared. All that is wrong with it is named at once."""
    absent, wrong = missing(envelope), faults(envelope)
    if absent:
        needed = ", ".join(
            f"status ({', '.join(get_args(Status))})" if name == "status" else name for name in absent
        )
        raise refuse(
            "policy_violation",
            "missing_fields",
            f"{'; '.join([f'a handoff needs {needed}', *wrong[:MOST_FAULTS]])}.",
            next_step=call_again(envelope=FILL),
            reason_hint="encoding",
            suggested_action="fix_syntax",
            missing_fields=absent,
        )
    if wrong:
        raise _bad_handoff(wrong)
    try:
        return msgspec.convert(envelope, type=prepare_type(Handoff))
    except msgspec.ValidationError as error:
        _, _, where = str(error).partition(" - at ")
        raise _bad_handoff(
            [f"not an accepted value at {where.strip('`').removeprefix('$').lstrip('.')}"]
        ) from None


def _bad_handoff(wrong: list[str]) -> ToolError:
    return refuse(
        "invalid_input",
        "bad_handoff",
        f"{'; '.join(wrong[:MOST_FAULTS])}.",
        next_step=call_again(envelope=FILL),
        reason_hint="syntax",
        suggested_action="fix_syntax",
    )


def _renamed(params: dict[str, Any], sent: dict[str, Any]) -> list[str]:
    """What was written under another word than the one that was sent."""
    pairs = [("status", params.get("status"), sent["status"])]
    for step, written in zip(params.get("steps", ()), sent.get("steps", ()), strict=True):
        pairs.append((f"status of step {written['id']}", step.get("status"), written.get("status")))
    return [f"{where} {before} was written as {after}" for where, before, after in pairs if before != after]


def _hashed(workspace: Workspace, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Files with their whole hash, computed where none was sent. One that cannot be read then is refused."""
    hashed, wrong = [], []
    for file in files:
        actual = _actual(workspace, file["path"])
        sha256 = file.get("sha256", "")
        if not sha256 and actual is None:
            wrong.append(f"{file['path']} does not exist")
        elif not sha256 and actual == OUTSIDE:
            wrong.append(f"{file['path']} is not a file in the workspace")
        is_same = actual is not None and actual != OUTSIDE and actual.startswith(sha256)
        hashed.append({**file, "sha256": actual if is_same else sha256})
    if wrong:
        raise _bad_handoff([f"last_good_state: {'; '.join(wrong[:MOST_FAULTS])}"])
    return hashed


def _ready(steps: list[Step]) -> list[str]:
    try:
        return ready_steps(steps)
    except GraphError as error:
        raise refuse(
            "invalid_input",
            "bad_steps",
            str(error),
            next_step=call_again(envelope=FILL),
            reason_hint="syntax",
            suggested_action="fix_syntax",
        ) from None


def _before(tree: PlanView, known: PlannedFile) -> tuple[str, dict[str, Any]] | None:
    """The YAML of the present handoff, as text and parsed; None if it cannot be read as a handoff."""
    if known.now is None or known.now.size > MOST_BYTES:
        return None
    try:
        front, _ = front_matter.split(codec.decode(tree.data(known)).content)
        return front, front_matter.parse(front)
    except (ToolError, StorageError):
        return None


def _check_same_task(before: tuple[str, dict[str, Any]] | None, handoff: Handoff, known: PlannedFile) -> None:
    if before is None or before[1].get("task_id") in (None, handoff.task_id):
        return
    raise refuse(
        "stale_precondition",
        "other_task",
        f"{known.path} is the handoff of another task.",
        next_step=then(
            call_tool("handoff_read", path=known.path), call_again(expected_prev_sha256=known.sha256)
        ),
        suggested_action="reread",
        path=known.path,
        existing_sha256=known.sha256,
    )


def _story(workspace: Workspace, envelope: dict[str, Any], call: Call) -> dict[str, Any]:
    """What the next agent can check the rest against: where the journal stood, and what this session could not write."""
    rows = workspace.journal.rows(Filter(), 1)
    return {
        "updated_at": envelope.get("updated_at") or format_time(int(time.time() * 1_000_000)),
        "journal_head": str(rows[0].seq) if rows else "0",
        "open_drafts": [draft.id for draft in workspace.journal.drafts(50, call.session)],
    }


def _archive(
    workspace: Workspace,
    tree: PlanView,
    known: PlannedFile,
    call: Call,
    before: tuple[str, dict[str, Any]] | None,
) -> None:
    assert known.now is not None
    name = str((before[1] if before is not None else {}).get("task_id") or "unknown")
    at = workspace.journal.shelf_end(KIND, name) + 1
    now = int(time.time() * 1_000_000)
    workspace.store.record(known.now, by_row=False)
    workspace.journal.shelf_put(
        Item(
            kind=KIND,
            name=name,
            at=at,
            sha=known.now.digest,
            size=known.now.size,
            meta={"path": known.path},
            client=call.client,
            session=call.session,
            created=now,
            updated=now,
        )
    )
    if at > MOST_ARCHIVED:
        workspace.journal.shelf_remove(KIND, name, at - MOST_ARCHIVED)


def _actual(workspace: Workspace, path: str) -> str | None:
    """The hash of a file, None where there is none, OUTSIDE for what is not a file in the workspace, whether it exists
    or not."""
    try:
        with workspace.roots.locate(path) as place:
            if place.found is None:
                return None
            fd = place.open()
            try:
                return seen(fd).sha256
            finally:
                os.close(fd)
    except (ToolError, StorageError):
        return OUTSIDE


def _drifts(workspace: Workspace, files: list[GoodFile]) -> list[dict[str, Any]]:
    """The listed files that differ by now."""
    return [drift for file in files if (drift := _drift(workspace, file)) is not None]


def _drift(workspace: Workspace, good: GoodFile) -> dict[str, Any] | None:
    actual = _actual(workspace, good.path)
    if actual is None:
        return {"path": good.path, "reason": "missing"}
    if actual == OUTSIDE:
        return {"path": good.path, "reason": "invalid_path"}
    if actual.startswith(good.sha256):
        return None
    return {
        "path": good.path,
        "reason": "hash_mismatch",
        "expected_sha256": good.sha256,
        "actual_sha256": actual,
    }


def _checkpoints(workspace: Workspace) -> dict[str, Any]:
    """The key `checkpoint_refs`, where there are any."""
    found = [
        {
            "name": item.name,
            "sha256": item.sha.hex(),
            "bytes": item.size,
            "path": f"perdure://checkpoints/{item.name}",
        }
        for item in workspace.journal.shelf(CHECKPOINTS)[:50]
    ]
    return {"checkpoint_refs": found} if found else {}


def _content(workspace: Workspace, path: str) -> tuple[str, str, str]:
    """The file's text, its hash, and its path in the journal."""
    with workspace.roots.locate(path) as place:
        workspace.check_recovered(journal_path(place))
        if place.found is None:
            raise refuse(
                "not_found",
                "not_found",
                f"there is no handoff at {path}.",
                next_step=call_tool("handoff_write", path=path, envelope=FILL),
                suggested_action="reread",
                path=path,
            )
        fd = place.open()
        try:
            if os.fstat(fd).st_size > MOST_BYTES:
                raise refuse(
                    "invalid_input",
                    "too_large",
                    f"{path} is larger than 1 MiB, the limit for a handoff.",
                    next_step=call_tool("read", path=path, end_line=100),
                    suggested_action="reread",
                    path=path,
                )
            data, expected = read_seen(fd, MOST_BYTES)
        finally:
            os.close(fd)
        name = journal_path(place)
    return codec.decode(data).content, expected.sha256, name

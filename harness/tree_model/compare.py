"""Whether what the product says and leaves is what the model says. Every difference is an `AssertionError`."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any, Final

from harness.tree_model import text
from harness.tree_model.answers import Answer, Payload, Refusal, Request, shown
from harness.tree_model.inside import Look, Reply
from harness.tree_model.reads import sides
from harness.tree_model.state import File, Model
from perdure.storage.files import temp_names

_RECENT: Final = re.compile(r" was changed by .* [0-9]+ s ago \(change [0-9]+\)$")
SAYING: Final = ("deduplicated", "dry_run", "next_cursor")
"""Members that say something by being there."""


def agree(what: str, have: object, want: object) -> None:
    if have != want:
        if isinstance(have, list) and isinstance(want, list):
            have, want = [one for one in have if one not in want], [one for one in want if one not in have]
        raise AssertionError(f"{what}: {have}, and not {want}")


def compare_answer(answer: Answer, reply: Reply) -> None:
    payload = _without_times(reply.payload)
    if isinstance(answer, Refusal):
        _compare_refusal(answer, reply)
        return
    assert not reply.is_error, f"refused: {payload}"
    if answer.payload is None:
        assert payload["conflicts"] or payload.get("dry_run")
        return
    agree("the answer", _of(payload, answer.payload), answer.payload)
    said, wanted = ({name for name in SAYING if name in one} for one in (payload, answer.payload))
    agree("what the answer says by the way", said, wanted)


def _without_times(payload: Payload) -> Payload:
    """Without the warning about a recent change of another agent, which depends on the time."""
    if not isinstance(payload.get("warnings"), list):
        return payload
    return {**payload, "warnings": [one for one in payload["warnings"] if not _RECENT.search(one)]}


def _compare_refusal(answer: Refusal, reply: Reply) -> None:
    payload = reply.payload
    assert reply.is_error, f"expected {answer}, and it was done: {payload}"
    context = payload["context"]
    if is_spent(reply):
        assert -1 in answer.left, f"refused for good too early: {payload}"
        agree("the last error", context["last_error"], answer.error)
    else:
        agree("the error", payload["error"], answer.error)
        agree("its context", {name: context.get(name) for name in answer.context}, answer.context)
        assert payload["retry_budget"] in answer.left, (
            f"retries: {payload['retry_budget']}, not {answer.left}"
        )
    agree("the draft", payload["draft"], answer.draft)


def is_spent(reply: Reply) -> bool:
    return reply.is_error and reply.payload["context"]["reason"] == "retries_spent"


def _of(value: Any, wanted: Any) -> Any:
    """As much of a value as was predicted: times and names of transactions only the product can know."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return {name: _of(value.get(name), inner) for name, inner in wanted.items()}
    if isinstance(value, list) and isinstance(wanted, list) and len(value) == len(wanted):
        return [_of(one, inner) for one, inner in zip(value, wanted, strict=True)]
    return value


def compare_diff(model: Model, request: Request, payload: Payload) -> None:
    """A diff must lead from one content to the other."""
    old, new, _ = sides(model, request)
    diff: str = payload["diff"]
    if text.is_text(old or b"") and text.is_text(new or b""):
        assert text.patched(diff, (old or b"").decode()) == (new or b"").decode(), diff
    else:
        assert ("Binary files" in diff) == (old != new), diff


def compare_journal(model: Model, known: Look) -> None:
    """Its latest rows, as many as were looked at, and the sums over all of them."""
    entries = model.entries
    latest = entries[len(entries) - len(known.rows) :]
    agree("the journal's problems", known.problems, [])
    rows = [shown(one) for one in latest]
    agree("the journal", _of(known.rows, rows), rows)
    agree("what takes back what", known.undoes, [one.undoes for one in latest])
    agree("the journal's head", known.head, model.head)
    sums = {
        "total_writes": len(entries),
        "unique_paths": len({one.path for one in entries}),
        "total_bytes_written": sum(len(one.new or b"") for one in entries),
        "by_mode": dict(Counter(one.mode for one in entries)),
        "by_caller": dict(Counter(one.client for one in entries)),
    }
    agree("the sums", {name: known.sums[name] for name in sums}, sums)


def compare_disk(model: Model, workspace: str) -> None:
    """Every file with its mode, every folder, and nothing of ours left lying."""
    files: dict[str, File] = {}
    folders: set[str] = set()
    for folder, inner, names in os.walk(workspace):
        place = os.path.relpath(folder, workspace)
        for name in names:
            assert temp_names.parsed(name) is None, f"{name} was left behind"
        folders |= {os.path.normpath(f"{place}/{name}") for name in inner}
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode & 0o7777
                files[os.path.normpath(f"{place}/{name}")] = File(file.read(), mode)
    wrong = sorted(path for path in {*files, *model.files} if files.get(path) != model.files.get(path))
    agree(
        "the disk", {path: files.get(path) for path in wrong}, {path: model.files.get(path) for path in wrong}
    )
    agree("the folders", folders, model.folders)

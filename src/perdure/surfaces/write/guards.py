"""What a write must pass before it is decided: its precondition, what the session last saw, elided content."""

from __future__ import annotations

from typing import Any

from perdure.model.envelope import ToolError, refuse
from perdure.model.next_step import FILL, call_again, call_tool, either
from perdure.surfaces.port import Call
from perdure.surfaces.write import elision, hash_prefix, lines
from perdure.surfaces.write.rejecting import Rejected
from perdure.surfaces.write.service import WriteService
from perdure.surfaces.write.store import Content
from perdure.surfaces.write.text import decode
from perdure.surfaces.write.tree import Known, Tree


def check_precondition(known: Known, expected: str | None) -> None:
    """`expected` is the hash the caller has seen, or its beginning; empty for "there must be no file"; None for no
    opinion."""
    if expected is None:
        return
    if expected:
        hash_prefix.check_prefix(expected, "expected_prev_sha256")
    if not (known.sha256 or "").startswith(expected) or bool(known.sha256) != bool(expected):
        raise refuse(
            "stale_precondition",
            "hash_mismatch" if known.now is not None else "file_not_found",
            "the file is not what the caller expected",
            next_step=call_tool("read", path=known.path),
            suggested_action="reread",
            path=known.path,
            expected_prev_sha256=expected,
            actual_prev_sha256=known.sha256,
        )


def check_target(
    service: WriteService,
    tree: Tree,
    known: Known,
    call: Call,
    *,
    mode: str,
    expected: str | None,
    force: bool = False,
) -> list[str]:
    """What stands where a whole file is to be written: `create` takes no existing file, `overwrite` none that changed
    unseen; a precondition settles both. Returns what is to be said about what is replaced."""
    check_precondition(known, expected)
    if expected is not None or known.now is None:
        return []
    if mode == "create":
        raise refuse(
            "stale_precondition",
            "file_already_exists",
            "the file is there already; overwrite it, or give the hash it must have",
            next_step=either(call_again(mode="overwrite"), call_tool("edit", path=known.path, edits=FILL)),
            suggested_action="reread",
            path=known.path,
            existing_sha256=known.sha256,
        )
    check_seen(service, tree, known, call.session)
    return check_unseen(service, known, call.session, force=force)


def check_unseen(service: WriteService, known: Known, session: str, *, force: bool) -> list[str]:
    """For a file that is replaced and that the session has neither read nor written: as the policy says."""
    policy = service.policy.unseen
    if known.now is None or policy == "allow" or service.last_seen(session, known.path) is not None:
        return []
    if policy == "refuse" and not force:
        raise refuse(
            "stale_precondition",
            "unseen",
            "this session has not read the file it would replace; read it first, or give its hash",
            next_step=call_tool("read", path=known.path),
            suggested_action="reread",
            path=known.path,
            existing_sha256=known.sha256,
        )
    size = known.now.size
    return [
        f"replaced {size} byte{'' if size == 1 else 's'} of {known.path} that this session had not read; "
        "undo gives them back"
    ]


def check_seen(service: WriteService, tree: Tree, known: Known, session: str) -> None:
    """The stale guard: nobody's edit is overwritten unseen by a session that had read the file before."""
    last = service.last_seen(session, known.path)
    if last is None or last[0] == known.sha256:
        return
    row = service.journal.last_of(known.path)
    by = (
        row.client
        if row is not None and row.new_sha is not None and row.new_sha.hex() == known.sha256
        else None
    )
    raise refuse(
        "stale_precondition",
        "changed_since_seen",
        "the file changed since this session last saw it",
        next_step=call_tool("read", path=known.path),
        suggested_action="reread",
        path=known.path,
        seen_sha256=last[0],
        actual_prev_sha256=known.sha256,
        changed_by=by or "another program",
        changed_lines=_changed_lines(service, tree, known, last[0]),
    )


def _changed_lines(service: WriteService, tree: Tree, known: Known, seen: str | None) -> list[list[int]]:
    """Which lines of the file are new to the session; none where that cannot be told."""
    try:
        old = decode(service.store.load(seen)).content if seen is not None else ""
        new = decode(tree.data(known)).content
    except ToolError:
        return []
    found = lines.changes(lines.split(old), lines.split(new))
    return [[change.b0 + 1, max(change.b1, change.b0 + 1)] for change in found[:20]]


def check_elision(after: Content, new: bytes, old: bytes, path: str) -> None:
    """Content that stands for content must not replace it. `new` is what `after` holds."""
    if elision.is_clear(new):
        return
    try:
        text, before = decode(new).content, decode(old).content if old else ""
    except ToolError:
        return  # not text
    evidence = elision.evidence(text, before)
    if evidence:
        shown: list[dict[str, Any]] = [{"line": one.line, "rule": one.rule} for one in evidence]
        refused = refuse(
            "blocked",
            "elided_content",
            "the content has placeholders where the rest of the file should be; force writes it as it is",
            next_step=either(call_again(content=FILL), "force:=true if it is meant literally"),
            reason_hint="content_filter",
            suggested_action="ask_user",
            path=path,
            evidence=shown,
        )
        raise Rejected(refused.envelope, path, after)

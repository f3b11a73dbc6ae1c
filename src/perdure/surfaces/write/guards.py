"""What a write must pass before it is decided: its precondition, what the session last saw, elided content."""

from __future__ import annotations

from typing import Any

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, either, then
from perdure.storage.errors import JournalError, StorageError
from perdure.surfaces.write import hash_prefix
from perdure.text import elision, lines
from perdure.text.codec import decode
from perdure.workspace.contents import Content
from perdure.workspace.drafts import Rejected
from perdure.workspace.planning import PlannedFile, PlanView
from perdure.workspace.workspace import Workspace


def check_precondition(known: PlannedFile, expected: str | None) -> None:
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
            _expectation(known, expected),
            next_step=_after_mismatch(known),
            suggested_action="reread",
            path=known.path,
            expected_prev_sha256=expected,
            actual_prev_sha256=known.sha256,
        )


def check_target(
    workspace: Workspace,
    tree: PlanView,
    known: PlannedFile,
    call: Call,
    *,
    mode: str,
    expected: str | None,
    force: bool = False,
) -> list[str]:
    """Check the file that is to be written whole: `create` refuses an existing file, `overwrite` one that changed since the
    session last saw it; a precondition replaces both checks. Returns warnings about the replaced file."""
    check_precondition(known, expected)
    if expected is not None or known.now is None:
        return []
    if mode == "create":
        raise refuse(
            "stale_precondition",
            "file_already_exists",
            f"{known.path} exists already.",
            next_step=either(call_again(mode="overwrite"), call_tool("edit", path=known.path, edits=FILL)),
            suggested_action="reread",
            path=known.path,
            existing_sha256=known.sha256,
        )
    check_seen(workspace, tree, known, call.session)
    return check_unseen(workspace, known, call.session, force=force)


def check_unseen(workspace: Workspace, known: PlannedFile, session: str, *, force: bool) -> list[str]:
    """For a file that is replaced and that the session has neither read nor written: as the policy says."""
    policy = workspace.policy.unseen
    if known.now is None or policy == "allow" or workspace.last_seen(session, known.path) is not None:
        return []
    if policy == "refuse" and not force:
        raise refuse(
            "stale_precondition",
            "unseen",
            f"this session has not read {known.path}, which it would replace.",
            next_step=then(call_tool("read", path=known.path), call_again()),
            suggested_action="reread",
            path=known.path,
            existing_sha256=known.sha256,
        )
    size = known.now.size
    return [
        f"replaced {size} byte{'' if size == 1 else 's'} of {known.path} that this session had not read; "
        "undo gives them back"
    ]


def check_seen(workspace: Workspace, tree: PlanView, known: PlannedFile, session: str) -> None:
    """The stale guard: a session that read a file does not overwrite a later edit of it unseen."""
    last = workspace.last_seen(session, known.path)
    if last is None or last[0] == known.sha256:
        return
    row = workspace.journal.last_of(known.path)
    by = (
        row.client
        if row is not None and row.new_sha is not None and row.new_sha.hex() == known.sha256
        else None
    )
    changed = _changed_lines(workspace, tree, known, last[0])
    raise refuse(
        "stale_precondition",
        "changed_since_seen",
        f"{known.path} was changed by {by or 'another program'} since this session last read it{_lines_of(changed)}.",
        next_step=then(call_tool("read", path=known.path, **_around(changed)), call_again(content=FILL)),
        suggested_action="reread",
        path=known.path,
        seen_sha256=last[0],
        actual_prev_sha256=known.sha256,
        changed_by=by or "another program",
        changed_lines=changed,
    )


def _expectation(known: PlannedFile, expected: str) -> str:
    if known.sha256 is None:
        return f"{known.path} does not exist, and expected_prev_sha256 says that it does."
    if not expected:
        return f"{known.path} exists already (sha256 {known.sha256[:12]}), and expected_prev_sha256 says that it does not."
    return f"{known.path} has sha256 {known.sha256[:12]}, and you expected {expected[:12]}."


def _after_mismatch(known: PlannedFile) -> str:
    if known.sha256 is None:
        return call_again(expected_prev_sha256=None)
    return then(call_tool("read", path=known.path), call_again(expected_prev_sha256=known.sha256))


def _lines_of(changed: list[list[int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in changed[:5]]
    return f" (line{'s' if len(shown) > 1 or '-' in shown[0] else ''} {', '.join(shown)})" if shown else ""


def _around(changed: list[list[int]]) -> dict[str, int]:
    """The lines to read: all that changed, and two around them."""
    if not changed:
        return {}
    return {"start_line": max(1, changed[0][0] - 2), "end_line": changed[-1][1] + 2}


def _changed_lines(
    workspace: Workspace, tree: PlanView, known: PlannedFile, seen: str | None
) -> list[list[int]]:
    """Which lines of the file are new to the session; none where what it saw is not text, or is lost."""
    try:
        old = decode(workspace.store.load(seen)).content if seen is not None else ""
        new = decode(tree.data(known)).content
    except JournalError:
        raise
    except (ToolError, StorageError):
        return []
    found = lines.diff(lines.split(old), lines.split(new))
    return [[change.b_start + 1, max(change.b_end, change.b_start + 1)] for change in found[:20]]


def check_elision(after: Content, new: bytes, old: bytes, path: str) -> None:
    """Content that stands for content must not replace it. `new` is what `after` holds."""
    if elision.has_no_keyword(new):
        return
    try:
        text, before = decode(new).content, decode(old).content if old else ""
    except ToolError:
        return  # not text
    evidence = elision.find_elisions(text, before)
    if evidence:
        shown: list[dict[str, Any]] = [{"line": one.line, "rule": one.rule} for one in evidence]
        refused = refuse(
            "blocked",
            "elided_content",
            f"line {evidence[0].line} of the content stands for code that would be lost ({evidence[0].rule}).",
            next_step=either(
                call_again(content=FILL),
                call_tool("edit", path=path, edits=FILL),
                "force:=true if the line is meant literally",
            ),
            reason_hint="content_filter",
            suggested_action="fix_syntax",
            path=path,
            evidence=shown,
        )
        raise Rejected(refused.envelope, path, after)

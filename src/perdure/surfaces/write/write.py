"""`safe_write`, `edit`, `safe_replace`, `restore`: one file changed, whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Annotated, Any, Literal

import msgspec

from perdure.present.tool_errors import os_refusal
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, then
from perdure.protocol.tools import arg
from perdure.storage.files import metadata
from perdure.storage.journal import Filter, Row
from perdure.surfaces.write import guards
from perdure.surfaces.write.edit_errors import make_tool_error
from perdure.surfaces.write.gate import Checks, Verdict
from perdure.surfaces.write.validate import Validate
from perdure.text import codec, edits
from perdure.text.times import format_time
from perdure.workspace.contents import INLINE, Content
from perdure.workspace.drafts import Rejected, content_or_draft
from perdure.workspace.entries import content_of, names_in, state_after
from perdure.workspace.paths.similar_files import missing_file
from perdure.workspace.planning import PlannedFile, PlanView
from perdure.workspace.undo.changes import sequence
from perdure.workspace.workspace import Workspace

MOST_COMPARED = 8 * 1024 * 1024
"""Up to how many bytes of a file are compared with the content that replaces it, for what is elided there."""
VERSIONS_TOLD = 5
ENCODINGS = Literal["utf-8", "utf-16", "latin-1", "base64"]

# What these mean is said in the server's instructions, and once more where a file is written whole.
PATH = arg(aliases=("file_path",), path="relative")
EXPECTED = FORCE = KEY = CLASSIFY = VALIDATE = arg()


class SafeWrite(msgspec.Struct, frozen=True):
    path: Annotated[
        str, arg("Relative to the workspace, or absolute.", aliases=("file_path",), path="relative")
    ]
    content: Annotated[str, arg()] | None = None
    draft: Annotated[str, arg("Id of a refused payload, instead of content.")] | None = None
    encoding: Annotated[ENCODINGS, arg()] = "utf-8"
    mode: Annotated[Literal["create", "overwrite", "append"], arg()] = "create"
    expected_prev_sha256: Annotated[str, arg('Hash the file must have now; "": no file.')] | None = None
    classify: Annotated[bool, arg("Refuse secrets.")] = True
    classify_reject_at: Annotated[Verdict, arg()] = "high"
    validate: Annotated[Validate, arg("refuse rejects syntax errors.")] = "off"
    force: Annotated[bool, arg("Skip the guards.")] = False
    idempotency_key: Annotated[str, arg("Repeated calls with it run once.")] | None = None


class EditFile(msgspec.Struct, frozen=True):
    path: Annotated[str, PATH]
    edits: Annotated[list[edits.Edit], arg(min_length=1)]
    expected_prev_sha256: Annotated[str, EXPECTED] | None = None
    classify: Annotated[bool, CLASSIFY] = True
    validate: Annotated[Validate, VALIDATE] = "off"
    force: Annotated[bool, FORCE] = False
    idempotency_key: Annotated[str, KEY] | None = None


class SafeReplace(msgspec.Struct, frozen=True):
    path: Annotated[str, PATH]
    old_string: Annotated[str, arg()]
    new_string: Annotated[str, arg()]
    count: Annotated[int, arg("How often it must occur; -1: replace all.")] = 1
    expected_prev_sha256: Annotated[str, EXPECTED] | None = None
    classify: Annotated[bool, CLASSIFY] = True
    classify_reject_at: Annotated[Verdict, arg()] = "high"
    validate: Annotated[Validate, VALIDATE] = "off"
    force: Annotated[bool, FORCE] = False
    idempotency_key: Annotated[str, KEY] | None = None


class Restore(msgspec.Struct, frozen=True):
    path: Annotated[str, PATH]
    journal_id: Annotated[str, arg("From history.")]
    expected_prev_sha256: Annotated[str, EXPECTED] | None = None


Payload = dict[str, Any]


def safe_write(workspace: Workspace, params: SafeWrite, call: Call) -> Future[Payload]:
    checks = Checks(
        workspace,
        call,
        frozenset({params.path}),
        classify=params.classify,
        reject_at=params.classify_reject_at,
        validate=params.validate,
    )
    try:
        sent = sent_content(workspace, params.content, params.draft, params.encoding)
        checks.screen(params.path, sent, params.content if params.encoding != "base64" else None)
    except Rejected as error:
        return checks.reject(error)
    return checks.commit(
        _WriteFile(workspace, params, call, sent),
        idempotency_key=params.idempotency_key,
        arguments=msgspec.to_builtins(params) if params.idempotency_key is not None else None,
        refused_content=(params.path, sent),
    )


class _WriteFile:
    """The plan of `safe_write`: the whole file, or more at its end."""

    def __init__(self, workspace: Workspace, params: SafeWrite, call: Call, sent: Content) -> None:
        self.paths = frozenset({params.path})
        self._workspace = workspace
        self._params = params
        self._call = call
        self._sent = sent

    def stage(self, tree: PlanView) -> Payload:
        workspace, params, sent = self._workspace, self._params, self._sent
        known = tree.lookup(params.path, force=params.force)
        if params.mode == "append":
            guards.check_precondition(known, params.expected_prev_sha256)
            after = tree.derive(known, "append", lambda: _appended(workspace, tree, known, params, sent))
            return stage_file(tree, known, after, self._call, op="write", mode=params.mode)
        warnings = guards.check_target(
            workspace,
            tree,
            known,
            self._call,
            mode=params.mode,
            expected=params.expected_prev_sha256,
            force=params.force,
        )
        if not params.force and sent.data is not None:
            guards.check_elision(sent, sent.data, tree.data(known) if is_small(known) else b"", known.path)
        payload = stage_file(tree, known, sent, self._call, op="write", mode=params.mode)
        payload["warnings"] = warnings
        return payload


def sent_content(workspace: Workspace, content: str | None, draft: str | None, encoding: str) -> Content:
    """Store the content of a call, or find its draft."""
    if (content is None) == (draft is None):
        raise content_or_draft(both=draft is not None)
    if draft is not None:
        return workspace.draft(draft)
    try:
        data = codec.encode_payload(content or "", encoding)
    except ToolError as error:
        if encoding == "base64":
            raise
        # A character that this encoding lacks, and another one has.
        raise Rejected(error.envelope, "", workspace.store.take((content or "").encode())) from None
    return workspace.store.take(data)


def is_small(known: PlannedFile) -> bool:
    return known.now is None or known.now.size <= MOST_COMPARED


def _appended(
    workspace: Workspace, tree: PlanView, known: PlannedFile, params: SafeWrite, sent: Content
) -> Content:
    """The old content and the new after it, in the file's own encoding and line ending."""
    if known.now is None:
        return sent
    added = b"".join(workspace.store.pieces(sent))
    if params.encoding != "base64":
        said = params.content if params.content is not None else codec.decode_payload(added, params.encoding)
        head = next(iter(workspace.store.pieces(known.now)), b"")
        style = codec.detect_style(head, complete=len(head) == known.now.size)
        if style is None and codec.looks_like_wide_unicode(head):
            raise refuse(
                "invalid_input",
                "unmarked_encoding",
                f"{known.path} has two or four bytes to a character, and no byte order mark that says which encoding it is.",
                next_step=call_again(encoding="base64", content=FILL),
                reason_hint="encoding",
                suggested_action="escape",
                path=known.path,
            )
        added = codec.encode_appended(style, said, params.encoding) if said is not None else added
    if known.now.size + len(added) <= INLINE:
        return workspace.store.take(tree.data(known) + added)
    old = known.now

    def pieces() -> Iterator[bytes]:
        yield from workspace.store.pieces(old)
        yield added

    return workspace.store.take_pieces(pieces())


def edit(workspace: Workspace, params: EditFile | SafeReplace, call: Call) -> Future[Payload]:
    checks = Checks(
        workspace,
        call,
        frozenset({params.path}),
        classify=params.classify,
        reject_at=params.classify_reject_at if isinstance(params, SafeReplace) else "high",
        validate=params.validate,
    )
    return checks.commit(
        _EditPassages(workspace, params, call),
        idempotency_key=params.idempotency_key,
        arguments=msgspec.to_builtins(params) if params.idempotency_key is not None else None,
    )


class _EditPassages:
    """The plan of `edit` and `safe_replace`: passages of one file, all or none."""

    def __init__(self, workspace: Workspace, params: EditFile | SafeReplace, call: Call) -> None:
        self.paths = frozenset({params.path})
        self._workspace = workspace
        self._params = params
        self._call = call
        self._edits = (
            params.edits
            if isinstance(params, EditFile)
            else [edits.Edit(params.old_string, params.new_string, params.count)]
        )

    def stage(self, tree: PlanView) -> Payload:
        params = self._params
        known = tree.lookup(params.path, force=params.force)
        if known.now is None:
            raise missing_file(self._workspace.roots[0].fd, known.path)
        guards.check_precondition(known, params.expected_prev_sha256)
        after, edited = tree.derive(known, "edit", lambda: self._edit(tree, known))
        payload = stage_file(tree, known, after, self._call, op="edit", mode="replace")
        return {
            **payload,
            "replacements": edited.replacements,
            "match": edited.match,
            "warnings": edited.warnings,
        }

    def _edit(self, tree: PlanView, known: PlannedFile) -> tuple[Content, edits.EditedText]:
        workspace = self._workspace
        old = tree.data(known)
        before = codec.decode(old)
        try:
            edited = apply_edits(workspace, known, before.content, self._edits)
        except ToolError as error:
            raise placed(error, known.path) from None
        new = codec.encode(before, edited.content)
        after = workspace.store.take(new)
        if not self._params.force:
            guards.check_elision(after, new, old, known.path)
        return after, edited


def apply_edits(
    workspace: Workspace, known: PlannedFile, content: str, wanted: list[edits.Edit]
) -> edits.EditedText:
    policy = workspace.policy
    try:
        return edits.apply(content, wanted)
    except edits.EditError as error:
        raise make_tool_error(error, known.path, policy, policy.retry_budget.default) from None


def restore(workspace: Workspace, params: Restore, call: Call) -> Payload:
    return workspace.commit(call, _RestoreVersion(workspace, params, call)).result()


class _RestoreVersion:
    """The plan of `restore`: a file, link or directory as it was after a row."""

    def __init__(self, workspace: Workspace, params: Restore, call: Call) -> None:
        self.paths = frozenset({params.path})
        self._workspace = workspace
        self._params = params
        self._call = call

    def stage(self, tree: PlanView) -> Payload:
        workspace, params = self._workspace, self._params
        known = self._lookup(tree)
        guards.check_precondition(known, params.expected_prev_sha256)
        row = row_of(workspace, known.path, params.journal_id)
        wanted = state_after(row)
        after = content_of(wanted, workspace.store)
        kind = wanted.kind if wanted is not None else known.kind
        if known.is_directory and kind != "directory" and list(names_in(known.place)):
            raise os_refusal(IsADirectoryError(errno.EISDIR, ""), path=known.path)
        if after is None and known.now is None:
            raise refuse(
                "not_found",
                "nothing_to_restore",
                f"{known.path} did not exist in version {params.journal_id}, and it does not exist now.",
                next_step=then(call_tool("history", path=known.path), call_again(journal_id=FILL)),
                suggested_action="reread",
                path=known.path,
            )
        if known.now is None and (gone := workspace.journal.last_of(known.path)) is not None:
            known.facts = metadata.from_journal(gone.detail)
        elif known.kind != kind:
            known.facts = metadata.from_journal(row.detail)
        mode = "delete" if after is None else "overwrite" if known.now is not None else "create"
        return stage_file(tree, known, after, self._call, op="restore", mode=mode, kind=kind)

    def _lookup(self, tree: PlanView) -> PlannedFile:
        name = self._workspace.journal_name(self._params.path)
        last = self._workspace.journal.last_of(name)
        if last is not None and {"kind", "kind_before"} & last.detail.keys():
            return tree.lookup_entry(name)
        return tree.lookup(self._params.path, force=True)  # the version was written once: it was allowed then


def row_of(workspace: Workspace, path: str, journal_id: str, argument: str = "journal_id") -> Row:
    """The version of a file by its row, or by any row of the change that made it."""
    seq = sequence(journal_id)
    row = workspace.journal.row(seq) if seq is not None else None
    if row is not None and row.path != path and row.txn is not None:
        of_file = (one for one in workspace.journal.transaction(row.txn) if one.path == path)
        row = next(iter(reversed([*of_file])), None)
    if row is None or row.path != path:
        versions = [str(row.seq) for row in workspace.journal.rows(Filter(path=path), VERSIONS_TOLD + 1)]
        raise refuse(
            "not_found",
            "version_not_found",
            _no_version(path, journal_id, versions),
            next_step=then(call_tool("history", path=path), call_again(**{argument: FILL}))
            if versions
            else call_tool("journal_tail"),
            suggested_action="reread",
            path=path,
        )
    return row


def _no_version(path: str, journal_id: str, versions: list[str]) -> str:
    if not versions:
        return f"Perdure has recorded no version of {path}."
    more = " and older ones" if len(versions) > VERSIONS_TOLD else ""
    named = f" {journal_id}" if sequence(journal_id) is not None else " with this journal_id"
    return f"{path} has no version{named}: it has {', '.join(versions[:VERSIONS_TOLD])}{more}."


def stage_file(
    tree: PlanView, known: PlannedFile, after: Content | None, call: Call, *, op: str, mode: str, **more: Any
) -> dict[str, Any]:
    """One step planned, and the payload that tells of it."""
    before = known.sha256
    row = tree.stage(known, after, op=op, mode=mode, key=call.invocation_key, **more)
    return {
        "path": known.path,
        "abs_path": tree.absolute(known),
        "sha256": after.sha256 if after is not None else None,
        "prev_sha256": before,
        "bytes": row.bytes,
        "mode_applied": mode,
        "journal_id": str(row.seq),
        "wrote_at": format_time(row.ts),
        "warnings": [],
    }


def placed(error: ToolError, path: str) -> ToolError:
    context = {"path": path, **error.envelope.context}
    return ToolError(msgspec.structs.replace(error.envelope, context=context))

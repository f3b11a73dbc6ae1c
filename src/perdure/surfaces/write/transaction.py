"""`transaction`: many operations on many files, all of them or none."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again, either
from perdure.protocol.tools import arg
from perdure.storage.errors import JournalError, StorageError, StoreReplaced
from perdure.storage.files import metadata
from perdure.surfaces.write import guards
from perdure.surfaces.write.gate import SECRET_IN_NAME, Checks
from perdure.surfaces.write.validate import Validate
from perdure.surfaces.write.write import CLASSIFY, VALIDATE, apply_edits, is_small, sent_content, stage_file
from perdure.text import anchored_patch, codec, edits, unified_patch
from perdure.workspace.contents import Content
from perdure.workspace.drafts import Rejected, draft_id, save, save_all
from perdure.workspace.paths.similar_files import missing_file
from perdure.workspace.planning import PlannedFile, PlanView
from perdure.workspace.workspace import Workspace, new_transaction_id

MOST_OPS = 1000
DRAFTS_TOLD: Final = 100


class Operation(msgspec.Struct, frozen=True):
    op: Annotated[
        Literal["write", "edit", "patch", "move", "delete"],
        arg("write: content or draft, mode, encoding; edit: edits; patch: patch; move: to."),
    ]
    path: Annotated[str, arg(path="relative")]
    content: Annotated[str, arg()] | None = None
    draft: Annotated[str, arg()] | None = None
    encoding: Annotated[Literal["utf-8", "utf-16", "latin-1", "base64"], arg()] = "utf-8"
    edits: Annotated[list[edits.Edit], arg()] | None = None
    patch: Annotated[str, arg("A diff or apply_patch text; may name more files.")] | None = None
    to: Annotated[str, arg(path="relative")] | None = None
    mode: Annotated[Literal["create", "overwrite"], arg()] = "create"


class Transaction(msgspec.Struct, frozen=True):
    ops: Annotated[
        list[Operation],
        arg(min_length=1, max_length=MOST_OPS),
    ]
    expected: Annotated[dict[str, str], arg("For a path, the sha256 it must have.")] = {}
    message: Annotated[str, arg(max_length=2000)] = ""
    classify: Annotated[bool, CLASSIFY] = True
    validate: Annotated[Validate, VALIDATE] = "off"
    force: Annotated[bool, arg()] = False
    idempotency_key: Annotated[str, arg()] | None = None


def transaction(workspace: Workspace, given: Transaction, call: Call) -> dict[str, Any]:
    sent: list[Content | None] = []
    try:
        problems = [_taken(workspace, number, one, sent) for number, one in enumerate(given.ops)]
        for problem in filter(None, problems):
            raise problem
        return _transacted(workspace, given, sent, call)
    except StoreReplaced:
        raise
    except (ToolError, StorageError) as error:
        raise _keeping(workspace, call, given, sent, tool_error(error)) from None


def _taken(workspace: Workspace, number: int, one: Operation, sent: list[Content | None]) -> ToolError | None:
    """The content of an operation, or why it cannot be had: then those of the others are still to be kept."""
    found: Content | None = None
    problem: ToolError | None = None
    try:
        if one.op == "write":
            found = sent_content(workspace, one.content, one.draft, one.encoding)
    except (ToolError, StorageError) as error:
        found = error.content if isinstance(error, Rejected) else None
        problem = _numbered(tool_error(error), number, one.path)
    sent.append(found)
    return problem


def _numbered(error: ToolError, number: int, path: str) -> ToolError:
    known = error.envelope.context
    message = str(known.get("message", ""))
    if not message.startswith("ops["):
        known = {**known, "message": f"ops[{number}]: {message}"}
    shown = {} if known.get("reason") == SECRET_IN_NAME else {"path": path}
    context = {"operation": number, **shown, **known}
    error.envelope = msgspec.structs.replace(error.envelope, context=context)
    return error


def _keeping(
    workspace: Workspace,
    call: Call,
    given: Transaction,
    sent: list[Content | None],
    error: ToolError,
) -> ToolError:
    """Nothing of it was written, so all that was sent is kept."""
    reason, operation = (error.envelope.context.get(name) for name in ("reason", "operation"))
    payloads = {
        n: (given.ops[n].path if reason != SECRET_IN_NAME else "", content)
        for n, content in enumerate(sent)
        if content is not None
    }
    failed = payloads.get(operation) if operation is not None else None
    if failed is not None and error.envelope.draft is None:
        error = save(workspace, call, error, *failed)
    if payloads and save_all(workspace, call, error, list(payloads.values())):
        drafts = [
            {"operation": n, "draft": draft_id(content)}
            for n, (_, content) in list(payloads.items())[:DRAFTS_TOLD]
        ]
        context = {**error.envelope.context, "drafts": drafts}
        error.envelope = msgspec.structs.replace(error.envelope, context=context)
    return error


def _transacted(
    workspace: Workspace, given: Transaction, sent: list[Content | None], call: Call
) -> dict[str, Any]:
    paths = _paths(given)
    checks = Checks(
        workspace,
        call,
        paths,
        classify=given.classify,
        validate=given.validate,
        told=given.message,
    )
    for number, (one, content) in enumerate(zip(given.ops, sent, strict=True)):
        if content is not None:
            try:
                checks.sent(one.path, content, one.content if one.encoding != "base64" else None)
            except StoreReplaced:
                raise
            except (ToolError, StorageError) as error:
                raise _numbered(tool_error(error), number, one.path) from None

    return checks.commit(
        _RunOperations(workspace, given, call, paths, sent),
        idempotency_key=given.idempotency_key,
        arguments=msgspec.to_builtins(given) if given.idempotency_key is not None else None,
    ).result()


class _RunOperations:
    """The plan of `transaction`: its operations in order, each on what those before it made of the files."""

    def __init__(
        self,
        workspace: Workspace,
        given: Transaction,
        call: Call,
        paths: frozenset[str],
        sent: list[Content | None],
    ) -> None:
        self.paths = paths
        self._workspace = workspace
        self._given = given
        self._call = call
        self._sent = sent
        self._txn = new_transaction_id()

    def stage(self, tree: PlanView) -> dict[str, Any]:
        given = self._given
        step = _Step(self._workspace, tree, self._call, self._txn, given)
        for path, sha256 in given.expected.items():
            known = tree.lookup(path, force=given.force)
            guards.check_precondition(known, sha256)
            step.expected.add(known.path)
        files: list[dict[str, Any]] = []
        for number, (one, content) in enumerate(zip(given.ops, self._sent, strict=True)):
            try:
                files += step.run(one, content)
            except JournalError:
                raise  # it fails the calls of the whole round, not this operation
            except (ToolError, StorageError) as error:
                raise _numbered(tool_error(error), number, one.path) from None
        return {"transaction_id": self._txn, "files": files, "warnings": step.warnings}


def _paths(given: Transaction) -> frozenset[str]:
    """Every path that the operations name."""
    paths = {one.path for one in given.ops} | {one.to for one in given.ops if one.to is not None}
    for one in given.ops:
        if one.patch is not None:
            for file in unified_patch.parse(one.patch, one.path):
                paths |= {file.path, file.to or file.path}
    return frozenset(paths)


def _changes(file: unified_patch.FilePatch) -> bool:
    """Whether a patch does more than move a file."""
    return bool(file.hunks or file.anchored) or file.executable is not None


class _Step:
    """One operation at a time on the tree of the transaction."""

    def __init__(
        self, workspace: Workspace, tree: PlanView, call: Call, txn: str, given: Transaction
    ) -> None:
        self._workspace = workspace
        self._tree = tree
        self._call = call
        self._txn = txn
        self._force = given.force
        self._detail = {"message": given.message} if given.message else {}
        self.expected: set[str] = set()
        self.warnings: list[str] = []

    def run(self, one: Operation, content: Content | None) -> list[dict[str, Any]]:
        match one.op:
            case "write":
                assert content is not None
                return [self._write(one, content)]
            case "edit":
                if not one.edits:
                    raise refuse(
                        "invalid_input",
                        "no_edits",
                        "an operation with op=edit needs edits, a list of {old, new}.",
                        next_step=call_again(ops=FILL),
                        suggested_action="fix_syntax",
                    )
                return [self._edit(one, one.edits)]
            case "patch":
                if one.patch is None:
                    raise refuse(
                        "invalid_input",
                        "no_patch",
                        "an operation with op=patch needs patch, a unified diff.",
                        next_step=call_again(ops=FILL),
                        suggested_action="fix_syntax",
                    )
                return [
                    done for file in unified_patch.parse(one.patch, one.path) for done in self._patch(file)
                ]
            case "move":
                if one.to is None:
                    raise refuse(
                        "invalid_input",
                        "no_target",
                        "an operation with op=move needs `to`, the new path.",
                        next_step=call_again(ops=FILL),
                        suggested_action="fix_syntax",
                    )
                return self._move(one.path, one.to)
            case "delete":
                return [self._put(self._existing(one.path, follow=False), None, "delete", "delete")]

    def _write(self, one: Operation, content: Content) -> dict[str, Any]:
        look = self._new if one.mode == "create" else self._look
        known = look(one.path)
        if not known.changed and known.path not in self.expected:
            self.warnings += guards.check_unseen(
                self._workspace, known, self._call.session, force=self._force
            )
        if not self._force and content.data is not None:
            old = self._tree.data(known) if is_small(known) else b""
            guards.check_elision(content, content.data, old, known.path)
        return self._put(known, content, "write", one.mode)

    def _edit(self, one: Operation, wanted: list[edits.Edit]) -> dict[str, Any]:
        known = self._existing(one.path)
        before = codec.decode(self._tree.data(known))
        edited = apply_edits(self._workspace, known, before.content, wanted)
        self.warnings += edited.warnings
        after = self._changed(known, codec.encode(before, edited.content))
        return {
            **self._put(known, after, "edit", "replace"),
            "replacements": edited.replacements,
            "match": edited.match,
        }

    def _patch(self, file: unified_patch.FilePatch) -> list[dict[str, Any]]:
        if file.op == "create":
            known = self._new(file.path)
            after = self._changed(known, unified_patch.apply(file, "").encode())
            if file.executable is not None:
                known.facts = metadata.made_executable(None, file.executable)
            return [self._put(known, after, "patch", "create")]
        known = self._existing(file.path, follow=file.op != "delete")
        if file.op == "delete":
            unified_patch.apply(file, codec.decode(self._tree.data(known)).content if file.hunks else "")
            return [self._put(known, None, "patch", "delete")]
        done = [self._update(known, file)] if _changes(file) else []
        return [*done, *self._move(file.path, file.to)] if file.to is not None else done

    def _update(self, known: PlannedFile, file: unified_patch.FilePatch) -> dict[str, Any]:
        if file.executable is not None:
            known.facts = metadata.made_executable(known.facts, file.executable)
        if not file.hunks and not file.anchored:
            return self._put(known, known.now, "patch", "replace")
        before = codec.decode(self._tree.data(known))
        if file.hunks:
            after = self._changed(known, codec.encode(before, unified_patch.apply(file, before.content)))
            return self._put(known, after, "patch", "replace")
        patched = anchored_patch.apply(file, before.body)
        after = self._changed(known, codec.encode_body(before.style, patched.body))
        return {**self._put(known, after, "patch", "replace"), "match": patched.match}

    def _changed(self, known: PlannedFile, data: bytes) -> Content:
        """What a file becomes. Content that only stands for content is refused, and kept."""
        after = self._workspace.store.take(data)
        if not self._force:
            guards.check_elision(after, data, self._tree.data(known), known.path)
        return after

    def _move(self, path: str, to: str) -> list[dict[str, Any]]:
        source = self._existing(path, follow=False)
        target = self._look(to)
        if target.now is not None:
            raise refuse(
                "stale_precondition",
                "target_exists",
                f"{target.path} exists already, and a move never replaces a file.",
                next_step=ask_user(
                    f"whether {target.path} may be deleted; then call again with a delete of it before the move."
                ),
                suggested_action="ask_user",
                to=target.path,
            )
        content = source.now
        assert content is not None
        target.facts = source.facts or target.facts
        return [
            self._put(target, content, "move", "move", moved_from=source.path),
            self._put(source, None, "move", "move", moved_to=target.path),
        ]

    def _look(self, path: str, *, follow: bool = True) -> PlannedFile:
        return self._tree.lookup(path, force=self._force, follow=follow)

    def _existing(self, path: str, *, follow: bool = True) -> PlannedFile:
        known = self._look(path, follow=follow)
        if known.now is None:
            raise missing_file(self._workspace.roots[0].fd, known.path, next_step=call_again(ops=FILL))
        return known

    def _new(self, path: str) -> PlannedFile:
        known = self._look(path)
        if known.now is not None:
            raise refuse(
                "stale_precondition",
                "file_already_exists",
                f"{known.path} exists already.",
                next_step=either(call_again(ops=FILL), "mode=overwrite in that operation, or op=edit"),
                suggested_action="reread",
                path=known.path,
                existing_sha256=known.sha256,
            )
        return known

    def _put(
        self, known: PlannedFile, after: Content | None, op: str, mode: str, **detail: str
    ) -> dict[str, Any]:
        done = stage_file(
            self._tree,
            known,
            after,
            self._call,
            op=op,
            mode=mode,
            txn=self._txn,
            detail={**self._detail, **detail},
        )
        return {
            "path": done["path"],
            "op": op,
            **{key: done[key] for key in ("sha256", "prev_sha256", "bytes", "journal_id")},
            **detail,
        }

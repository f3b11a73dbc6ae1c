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


def transaction(workspace: Workspace, params: Transaction, call: Call) -> dict[str, Any]:
    sent: list[Content | None] = []
    try:
        problems = [_taken(workspace, number, operation, sent) for number, operation in enumerate(params.ops)]
        for problem in filter(None, problems):
            raise problem
        return _transacted(workspace, params, sent, call)
    except StoreReplaced:
        raise
    except (ToolError, StorageError) as error:
        raise _keeping(workspace, call, params, sent, tool_error(error)) from None


def _taken(
    workspace: Workspace, number: int, operation: Operation, sent: list[Content | None]
) -> ToolError | None:
    """The content of an operation, or why it cannot be had: then those of the others are still to be kept."""
    found: Content | None = None
    problem: ToolError | None = None
    try:
        if operation.op == "write":
            found = sent_content(workspace, operation.content, operation.draft, operation.encoding)
    except (ToolError, StorageError) as error:
        found = error.content if isinstance(error, Rejected) else None
        problem = _numbered(tool_error(error), number, operation.path)
    sent.append(found)
    return problem


def _numbered(error: ToolError, number: int, path: str) -> ToolError:
    planned = error.envelope.context
    message = str(planned.get("message", ""))
    if not message.startswith("ops["):
        planned = {**planned, "message": f"ops[{number}]: {message}"}
    shown = {} if planned.get("reason") == SECRET_IN_NAME else {"path": path}
    context = {"operation": number, **shown, **planned}
    error.envelope = msgspec.structs.replace(error.envelope, context=context)
    return error


def _keeping(
    workspace: Workspace,
    call: Call,
    params: Transaction,
    sent: list[Content | None],
    error: ToolError,
) -> ToolError:
    """Nothing of it was written, so all that was sent is kept."""
    reason, operation = (error.envelope.context.get(name) for name in ("reason", "operation"))
    payloads = {
        n: (params.ops[n].path if reason != SECRET_IN_NAME else "", content)
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
    workspace: Workspace, params: Transaction, sent: list[Content | None], call: Call
) -> dict[str, Any]:
    paths = _paths(params)
    checks = Checks(
        workspace,
        call,
        paths,
        classify=params.classify,
        validate=params.validate,
        told=params.message,
    )
    for number, (operation, content) in enumerate(zip(params.ops, sent, strict=True)):
        if content is not None:
            try:
                checks.sent(
                    operation.path, content, operation.content if operation.encoding != "base64" else None
                )
            except StoreReplaced:
                raise
            except (ToolError, StorageError) as error:
                raise _numbered(tool_error(error), number, operation.path) from None

    return checks.commit(
        _RunOperations(workspace, params, call, paths, sent),
        idempotency_key=params.idempotency_key,
        arguments=msgspec.to_builtins(params) if params.idempotency_key is not None else None,
    ).result()


class _RunOperations:
    """The plan of `transaction`: its operations in order, each on what those before it made of the files."""

    def __init__(
        self,
        workspace: Workspace,
        params: Transaction,
        call: Call,
        paths: frozenset[str],
        sent: list[Content | None],
    ) -> None:
        self.paths = paths
        self._workspace = workspace
        self._params = params
        self._call = call
        self._sent = sent
        self._txn = new_transaction_id()

    def stage(self, tree: PlanView) -> dict[str, Any]:
        params = self._params
        step = _Step(self._workspace, tree, self._call, self._txn, params)
        for path, sha256 in params.expected.items():
            planned = tree.lookup(path, force=params.force)
            guards.check_precondition(planned, sha256)
            step.expected.add(planned.path)
        files: list[dict[str, Any]] = []
        for number, (operation, content) in enumerate(zip(params.ops, self._sent, strict=True)):
            try:
                files += step.run(operation, content)
            except JournalError:
                raise  # it fails the calls of the whole round, not this operation
            except (ToolError, StorageError) as error:
                raise _numbered(tool_error(error), number, operation.path) from None
        return {"transaction_id": self._txn, "files": files, "warnings": step.warnings}


def _paths(params: Transaction) -> frozenset[str]:
    """Every path that the operations name."""
    paths = {operation.path for operation in params.ops} | {
        operation.to for operation in params.ops if operation.to is not None
    }
    for operation in params.ops:
        if operation.patch is not None:
            for file in unified_patch.parse(operation.patch, operation.path):
                paths |= {file.path, file.to or file.path}
    return frozenset(paths)


def _changes(file: unified_patch.FilePatch) -> bool:
    """Whether a patch does more than move a file."""
    return bool(file.hunks or file.anchored) or file.executable is not None


class _Step:
    """One operation at a time on the tree of the transaction."""

    def __init__(
        self, workspace: Workspace, tree: PlanView, call: Call, txn: str, params: Transaction
    ) -> None:
        self._workspace = workspace
        self._tree = tree
        self._call = call
        self._txn = txn
        self._force = params.force
        self._detail = {"message": params.message} if params.message else {}
        self.expected: set[str] = set()
        self.warnings: list[str] = []

    def run(self, operation: Operation, content: Content | None) -> list[dict[str, Any]]:
        match operation.op:
            case "write":
                assert content is not None
                return [self._write(operation, content)]
            case "edit":
                if not operation.edits:
                    raise refuse(
                        "invalid_input",
                        "no_edits",
                        "an operation with op=edit needs edits, a list of {old, new}.",
                        next_step=call_again(ops=FILL),
                        suggested_action="fix_syntax",
                    )
                return [self._edit(operation, operation.edits)]
            case "patch":
                if operation.patch is None:
                    raise refuse(
                        "invalid_input",
                        "no_patch",
                        "an operation with op=patch needs patch, a unified diff.",
                        next_step=call_again(ops=FILL),
                        suggested_action="fix_syntax",
                    )
                return [
                    done
                    for file in unified_patch.parse(operation.patch, operation.path)
                    for done in self._patch(file)
                ]
            case "move":
                if operation.to is None:
                    raise refuse(
                        "invalid_input",
                        "no_target",
                        "an operation with op=move needs `to`, the new path.",
                        next_step=call_again(ops=FILL),
                        suggested_action="fix_syntax",
                    )
                return self._move(operation.path, operation.to)
            case "delete":
                return [self._put(self._existing(operation.path, follow=False), None, "delete", "delete")]

    def _write(self, operation: Operation, content: Content) -> dict[str, Any]:
        look = self._new if operation.mode == "create" else self._look
        planned = look(operation.path)
        if not planned.changed and planned.path not in self.expected:
            self.warnings += guards.check_unseen(
                self._workspace, planned, self._call.session, force=self._force
            )
        if not self._force and content.data is not None:
            old = self._tree.data(planned) if is_small(planned) else b""
            guards.check_elision(content, content.data, old, planned.path)
        return self._put(planned, content, "write", operation.mode)

    def _edit(self, operation: Operation, wanted: list[edits.Edit]) -> dict[str, Any]:
        planned = self._existing(operation.path)
        before = codec.decode(self._tree.data(planned))
        edited = apply_edits(self._workspace, planned, before.content, wanted)
        self.warnings += edited.warnings
        after = self._changed(planned, codec.encode(before, edited.content))
        return {
            **self._put(planned, after, "edit", "replace"),
            "replacements": edited.replacements,
            "match": edited.match,
        }

    def _patch(self, file: unified_patch.FilePatch) -> list[dict[str, Any]]:
        if file.op == "create":
            planned = self._new(file.path)
            after = self._changed(planned, unified_patch.apply(file, "").encode())
            if file.executable is not None:
                planned.facts = metadata.made_executable(None, file.executable)
            return [self._put(planned, after, "patch", "create")]
        planned = self._existing(file.path, follow=file.op != "delete")
        if file.op == "delete":
            unified_patch.apply(file, codec.decode(self._tree.data(planned)).content if file.hunks else "")
            return [self._put(planned, None, "patch", "delete")]
        done = [self._update(planned, file)] if _changes(file) else []
        return [*done, *self._move(file.path, file.to)] if file.to is not None else done

    def _update(self, planned: PlannedFile, file: unified_patch.FilePatch) -> dict[str, Any]:
        if file.executable is not None:
            planned.facts = metadata.made_executable(planned.facts, file.executable)
        if not file.hunks and not file.anchored:
            return self._put(planned, planned.now, "patch", "replace")
        before = codec.decode(self._tree.data(planned))
        if file.hunks:
            after = self._changed(planned, codec.encode(before, unified_patch.apply(file, before.content)))
            return self._put(planned, after, "patch", "replace")
        patched = anchored_patch.apply(file, before.body)
        after = self._changed(planned, codec.encode_body(before.style, patched.body))
        return {**self._put(planned, after, "patch", "replace"), "match": patched.match}

    def _changed(self, planned: PlannedFile, data: bytes) -> Content:
        """What a file becomes. Content that only stands for content is refused, and kept."""
        after = self._workspace.store.take(data)
        if not self._force:
            guards.check_elision(after, data, self._tree.data(planned), planned.path)
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
        planned = self._look(path, follow=follow)
        if planned.now is None:
            raise missing_file(self._workspace.roots[0].fd, planned.path, next_step=call_again(ops=FILL))
        return planned

    def _new(self, path: str) -> PlannedFile:
        planned = self._look(path)
        if planned.now is not None:
            raise refuse(
                "stale_precondition",
                "file_already_exists",
                f"{planned.path} exists already.",
                next_step=either(call_again(ops=FILL), "mode=overwrite in that operation, or op=edit"),
                suggested_action="reread",
                path=planned.path,
                existing_sha256=planned.sha256,
            )
        return planned

    def _put(
        self, planned: PlannedFile, after: Content | None, op: str, mode: str, **detail: str
    ) -> dict[str, Any]:
        done = stage_file(
            self._tree,
            planned,
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

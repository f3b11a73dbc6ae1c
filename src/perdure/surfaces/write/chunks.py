"""A file too large for one call, sent in pieces that survive any interruption, and composed in one step.

Pieces lie on the shelf under their session's name; place 0 holds what is known of the session itself, and its end,
which every write to the session moves.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool, either
from perdure.protocol.tools import arg
from perdure.storage.errors import StorageError, StoreReplaced
from perdure.storage.journal import Item
from perdure.surfaces.write import guards, hash_prefix
from perdure.surfaces.write.gate import Checks
from perdure.surfaces.write.validate import Validate
from perdure.surfaces.write.write import (
    CLASSIFY,
    EXPECTED,
    KEY,
    PATH,
    VALIDATE,
    stage_file,
)
from perdure.text.times import format_time
from perdure.workspace.change import PlanFunction
from perdure.workspace.contents import Content
from perdure.workspace.drafts import save
from perdure.workspace.planning import PlanView
from perdure.workspace.workspace import Workspace

KIND: Final = "chunk"
SESSION_S: Final = 7 * 86_400
MOST_INDEX: Final = 1_000_000
MOST_SHOWN: Final = 262_144
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

SESSION = arg()
NAMED = arg("A name you choose, [A-Za-z0-9_-]{1,64}.")
TOTAL = arg("Number of chunks; chunk_compose checks it.", ge=1, le=MOST_INDEX)
SEPARATOR = arg("Put between chunks.")


class ChunkWrite(msgspec.Struct, frozen=True):
    session: Annotated[str, NAMED]
    index: Annotated[int, arg("From 1.", ge=1, le=MOST_INDEX)]
    content: Annotated[str, arg()]
    total_expected: Annotated[int, TOTAL] | None = None
    idempotency_key: Annotated[str, KEY] | None = None


class ChunkAppend(msgspec.Struct, frozen=True):
    session: Annotated[str, SESSION]
    content: Annotated[str, arg()]
    total_expected: Annotated[int, TOTAL] | None = None
    idempotency_key: Annotated[str, KEY] | None = None


class ChunkCompose(msgspec.Struct, frozen=True):
    session: Annotated[str, SESSION]
    output_path: Annotated[str, PATH]
    mode: Annotated[Literal["create", "overwrite"], arg("create refuses an existing file.")] = "create"
    separator: Annotated[str, SEPARATOR] = ""
    cleanup: Annotated[bool, arg("Delete the chunks afterwards.")] = False
    expected_prev_sha256: Annotated[str, EXPECTED] | None = None
    classify: Annotated[bool, CLASSIFY] = True
    validate: Annotated[Validate, VALIDATE] = "off"
    idempotency_key: Annotated[str, KEY] | None = None


class ChunkReset(msgspec.Struct, frozen=True):
    session: Annotated[str, SESSION]


class ChunkStatus(msgspec.Struct, frozen=True):
    session: Annotated[str, arg()] | None = None
    have_sha256: Annotated[str, arg("Hash of your copy: resume_at says which chunk to send next.")] | None = (
        None
    )


class ChunkPreview(msgspec.Struct, frozen=True):
    session: Annotated[str, SESSION]
    separator: Annotated[str, SEPARATOR] = ""


def chunk_write(workspace: Workspace, params: ChunkWrite | ChunkAppend, call: Call) -> dict[str, Any]:
    _check_name(params.session)
    if isinstance(params, ChunkWrite):
        _check_index(params.session, params.index, params.total_expected)
    sent = workspace.store.take(params.content.encode())

    def plan(tree: PlanView) -> dict[str, Any]:
        journal = workspace.journal
        known = journal.item(KIND, params.session)
        if known is None:
            journal.shelf_remove(KIND, params.session)  # what an expired session of this name has left
        last = journal.shelf_end(KIND, params.session) if known is not None else 0
        index = params.index if isinstance(params, ChunkWrite) else last + 1
        before = journal.item(KIND, params.session, index) if known is not None else None
        total = params.total_expected or (known.meta["total_expected"] if known is not None else None)
        _check_index(params.session, index, total)
        meta = {"total_expected": total, **_counts(known, writes=1)}
        _shelve(workspace, call, params.session, 0, workspace.store.take(b""), known, meta)
        _shelve(workspace, call, params.session, index, sent, before, {})
        return {
            "session": params.session,
            "index": index,
            "chunk_path": _place(params.session, index),
            "sha256": sent.sha256,
            "bytes": sent.size,
            "journal_id": None,
        }

    return workspace.commit(
        call,
        PlanFunction(frozenset({_place(params.session)}), plan),
        idempotency_key=params.idempotency_key,
        arguments=msgspec.to_builtins(params) if params.idempotency_key is not None else None,
    ).result()


def _shelve(
    workspace: Workspace,
    call: Call,
    session: str,
    at: int,
    content: Content,
    before: Item | None,
    meta: dict[str, Any],
) -> None:
    """In a transaction: one piece, or at place 0 the session, whose end is the end of all its pieces."""
    now = int(time.time() * 1_000_000)
    workspace.store.record(content, by_row=False)
    workspace.journal.shelf_put(
        Item(
            kind=KIND,
            name=session,
            at=at,
            sha=content.digest,
            size=content.size,
            meta=meta,
            client=call.client,
            session=call.session,
            created=before.created if before is not None else now,
            updated=now,
            expires=now + SESSION_S * 1_000_000 if at == 0 else None,
        )
    )


def chunk_compose(workspace: Workspace, params: ChunkCompose, call: Call) -> dict[str, Any]:
    chunks = _complete(workspace, params.session)
    composed = workspace.store.take_pieces(_pieces(workspace, chunks, params.separator))
    checks = Checks(
        workspace,
        call,
        frozenset({params.output_path, _place(params.session)}),
        classify=params.classify,
        validate=params.validate,
    )
    checks.sent(params.output_path, composed)

    try:
        return checks.commit(
            _ComposeFile(workspace, params, call, chunks, composed),
            idempotency_key=params.idempotency_key,
            arguments=msgspec.to_builtins(params) if params.idempotency_key is not None else None,
        ).result()
    except StoreReplaced:
        raise
    except (ToolError, StorageError) as error:
        if workspace.journal.item(KIND, params.session) is not None:
            raise
        # The chunks went with the decision, and then the file did not land.
        raise save(workspace, call, tool_error(error), params.output_path, composed) from None


class _ComposeFile:
    """The plan of `chunk_compose`: the file, and what becomes of the session. The chunks must be those that were read."""

    def __init__(
        self, workspace: Workspace, params: ChunkCompose, call: Call, chunks: list[Item], composed: Content
    ) -> None:
        self.paths = frozenset({params.output_path, _place(params.session)})
        self._workspace = workspace
        self._params = params
        self._call = call
        self._chunks = chunks
        self._composed = composed

    def stage(self, tree: PlanView) -> dict[str, Any]:
        workspace, params, call, chunks = self._workspace, self._params, self._call, self._chunks
        now = [(item.at, item.sha) for item in _complete(workspace, params.session)]
        if now != [(item.at, item.sha) for item in chunks]:
            raise refuse(
                "conflict",
                "chunks_changed",
                f"another call wrote to chunk session {params.session} at the same time.",
                next_step=call_again(),
                suggested_action="retry_later",
            )
        known = tree.lookup(params.output_path)
        warnings = guards.check_target(
            workspace, tree, known, call, mode=params.mode, expected=params.expected_prev_sha256
        )
        mode = "overwrite" if known.now is not None else "create"
        detail = {"chunks": params.session}
        payload = stage_file(tree, known, self._composed, call, op="compose", mode=mode, detail=detail)
        self._update_session()
        return {
            **payload,
            "warnings": warnings,
            "session": params.session,
            "output_path": payload["path"],
            "chunk_count": len(chunks),
            "chunk_hashes": [item.sha.hex() for item in chunks],
            "cleaned_up": params.cleanup,
        }

    def _update_session(self) -> None:
        journal, name = self._workspace.journal, self._params.session
        if self._params.cleanup:
            journal.shelf_remove(KIND, name)
        elif (session := journal.item(KIND, name)) is not None:
            meta = {**session.meta, **_counts(session, composes=1)}
            journal.shelf_put(msgspec.structs.replace(session, meta=meta))


def chunk_reset(workspace: Workspace, params: ChunkReset, call: Call) -> dict[str, Any]:
    _check_name(params.session)

    def plan(tree: PlanView) -> dict[str, Any]:
        items = _items(workspace, params.session)
        workspace.journal.shelf_remove(KIND, params.session)
        removed = sum(item.at > 0 for item in items)
        return {"session": params.session, "removed": removed, "existed": bool(items)}

    return workspace.commit(call, PlanFunction(frozenset({_place(params.session)}), plan)).result()


def chunk_status(workspace: Workspace, params: ChunkStatus, call: Call) -> dict[str, Any]:
    if params.session is None:
        return {"sessions": _sessions(workspace)}
    _check_name(params.session)
    items = _items(workspace, params.session)
    if not items:
        return {"session": params.session, "exists": False}
    chunks = [item for item in items if item.at > 0]
    total = _total(items)
    present = [item.at for item in chunks]
    status: dict[str, Any] = {
        "session": params.session,
        "exists": True,
        "total_expected": total,
        "present_indices": present,
        "missing_indices": _missing(present, total),
        "bytes": sum(item.size for item in chunks),
        "chunks": [{"index": c.at, "sha256": c.sha.hex(), "bytes": c.size} for c in chunks],
        "chunk_dir": _place(params.session),
        "expires_at": format_time(items[0].expires or 0),
    }
    if params.have_sha256 is not None:
        status["resume_at"] = _resume_at(workspace, chunks, params.have_sha256)
    return status


def chunk_preview(workspace: Workspace, params: ChunkPreview, call: Call) -> dict[str, Any]:
    chunks = _complete(workspace, params.session)
    shown = bytearray()
    total = sum(c.size for c in chunks) + len(params.separator.encode()) * (len(chunks) - 1)
    for piece in _pieces(workspace, chunks, params.separator):
        shown += piece[: MOST_SHOWN - len(shown)]
        if len(shown) >= MOST_SHOWN:
            break
    return {
        "session": params.session,
        "chunk_count": len(chunks),
        "chunk_hashes": [item.sha.hex() for item in chunks],
        "total_bytes": total,
        "content": shown.decode("utf-8", "ignore"),
        "truncated": total > len(shown),
        "preview": True,
    }


def counted(workspace: Workspace, only: str | None = None) -> dict[str, Any]:
    """What was done in each session that is still there; one that was cleaned up or has expired is forgotten."""
    return {
        item.name: {
            "chunk_writes": item.meta.get("writes", 0),
            "composes": item.meta.get("composes", 0),
            "first_write": format_time(item.created),
            "last_write": format_time(item.updated),
            "duration_seconds": (item.updated - item.created) / 1_000_000,
        }
        for item in workspace.journal.shelf(KIND)
        if item.at == 0 and only in (None, item.name)
    }


def _counts(session: Item | None, *, writes: int = 0, composes: int = 0) -> dict[str, int]:
    before = session.meta if session is not None else {}
    return {"writes": before.get("writes", 0) + writes, "composes": before.get("composes", 0) + composes}


# --- inside ------------------------------------------------------------------------------------------------


def _check_name(session: str) -> None:
    if not _NAME.fullmatch(session):
        raise refuse(
            "invalid_input",
            "bad_session",
            "session must be 1 to 64 letters, digits, - and _.",
            next_step=call_again(session=FILL),
            suggested_action="fix_syntax",
        )


def _check_index(session: str, index: int, total: int | None) -> None:
    if total is not None and index > total:
        raise refuse(
            "invalid_input",
            "index_exceeds_total_expected",
            f"index {index} is above total_expected, which is {total}.",
            next_step=call_again(total_expected=index),
            suggested_action="fix_syntax",
            reason_hint="encoding",
            session=session,
            index=index,
            total_expected=total,
        )


def _place(session: str, index: int | None = None) -> str:
    return f"perdure://chunks/{session}" + (f"/{index}" if index is not None else "")


def _items(workspace: Workspace, session: str) -> list[Item]:
    """A session and its chunks; nothing where it has expired."""
    items = workspace.journal.shelf(KIND, session)
    return items if items and items[0].at == 0 else []


def _total(items: list[Item]) -> int | None:
    return next((item.meta.get("total_expected") for item in items if item.at == 0), None)


def _missing(present: list[int], total: int | None) -> list[int]:
    last = max(total or 0, max(present, default=0))
    return sorted(set(range(1, last + 1)) - set(present))[:1000]


def _complete(workspace: Workspace, session: str) -> list[Item]:
    """All chunks in order, or why they are not a file."""
    _check_name(session)
    items = _items(workspace, session)
    chunks = [item for item in items if item.at > 0]
    if not chunks:
        raise refuse(
            "not_found",
            "session_not_found",
            f"chunk session {session} does not exist, is empty or has expired.",
            next_step=either(
                call_tool("chunk_append", session=session, content=FILL), "chunk_status to list the sessions"
            ),
            suggested_action="reread",
            session=session,
        )
    present, total = [item.at for item in chunks], _total(items)
    missing = _missing(present, total)
    if len(present) != present[-1]:
        raise refuse(
            "stale_precondition",
            "non_contiguous_chunks",
            f"session {session} has no {_chunks(missing)}.",
            next_step=call_tool("chunk_write", session=session, index=missing[0], content=FILL),
            suggested_action="split",
            session=session,
            have=len(present),
            missing=missing[:100],
        )
    if total is not None and len(chunks) != total:
        raise refuse(
            "stale_precondition",
            "chunk_count_mismatch",
            (
                f"session {session} has no {_chunks(missing)}."
                if missing
                else f"total_expected is {total}, and session {session} has {len(chunks)} chunks."
            ),
            next_step=_next_chunk(session, missing, len(chunks)),
            suggested_action="split" if missing else "fix_syntax",
            session=session,
            total_expected=total,
            have=len(chunks),
            missing=missing[:100],
            unexpected=[at for at in present if at > total][:100],
        )
    return chunks


def _chunks(missing: list[int]) -> str:
    """`chunk 2`, `chunks 2 and 3`."""
    if len(missing) == 1:
        return f"chunk {missing[0]}"
    *first, last = map(str, missing[:20])
    return f"chunks {', '.join(first)} and {last}"


def _next_chunk(session: str, missing: list[int], have: int) -> str:
    """The chunk to send; where none is missing, the last one again with the number of chunks that there are."""
    if missing:
        return call_tool("chunk_write", session=session, index=missing[0], content=FILL)
    return either(
        call_tool("chunk_write", session=session, index=have, content=FILL, total_expected=have),
        call_tool("chunk_reset", session=session),
    )


def _pieces(workspace: Workspace, chunks: list[Item], separator: str) -> Iterator[bytes]:
    between = separator.encode()
    for number, item in enumerate(chunks):
        if number and between:
            yield between
        yield from _intact(workspace, item)


def _intact(workspace: Workspace, item: Item) -> Iterator[bytes]:
    """A chunk's bytes; at its end its hash is known, and a damaged one is named."""
    digest = hashlib.sha256()
    for piece in workspace.store.pieces(workspace.store.find(item.sha.hex())):
        digest.update(piece)
        yield piece
    if digest.digest() != item.sha:
        raise refuse(
            "write_corruption",
            "chunk_damaged",
            f"chunk {item.at} of session {item.name} is damaged in the store.",
            next_step=call_tool("chunk_write", session=item.name, index=item.at, content=FILL),
            suggested_action="split",
            session=item.name,
            index=item.at,
        )


def _resume_at(workspace: Workspace, chunks: list[Item], have: str) -> int | None:
    """The chunk that follows a beginning with this hash; None where no beginning has it."""
    digest = hashlib.sha256()
    if have:
        hash_prefix.check_prefix(have, "have_sha256")
    if digest.hexdigest().startswith(have):
        return 1
    for number, item in enumerate(chunks, 1):
        if item.at != number:
            return None
        for piece in _intact(workspace, item):
            digest.update(piece)
        if digest.hexdigest().startswith(have):
            return number + 1
    return None


def _sessions(workspace: Workspace) -> list[dict[str, Any]]:
    found: dict[str, list[Item]] = {}
    for item in workspace.journal.shelf(KIND):
        found.setdefault(item.name, []).append(item)
    return [
        {
            "session": name,
            "chunks": sum(item.at > 0 for item in items),
            "total_expected": _total(items),
            "bytes": sum(item.size for item in items),
            "client": items[-1].client,
            "updated_at": format_time(max(item.updated for item in items)),
            "expires_at": format_time(items[0].expires or 0),
        }
        for name, items in found.items()
        if items[0].at == 0
    ]

"""The tools that write, said on the model: what `safe_write`, `edit`, `restore` and `transaction` make of the tree."""

from __future__ import annotations

import base64
from typing import Any, Final

from harness.tree_model import text
from harness.tree_model.answers import (
    Payload,
    Refusal,
    Request,
    check_expected,
    existing,
    sha_of,
    shown,
)
from harness.tree_model.state import RETRIES, Entry, Model, View
from harness.tree_model.text import sha256


def sent_content(model: Model, given: Payload) -> bytes:
    if "draft" in given:
        if given["draft"] not in model.drafts:
            raise Refusal("not_found", "draft_not_found")
        return model.drafts[given["draft"]]
    content: str = given["content"]
    return base64.b64decode(content) if given.get("encoding") == "base64" else content.encode()


def brought(request: Request) -> list[bytes]:
    """What the operations of a transaction would write."""
    if request.tool != "transaction":
        return []
    return [one["content"].encode() for one in request.arguments["ops"] if one["op"] == "write"]


def _wrote(view: View, entry: Entry) -> Payload:
    view.land()
    return {
        "path": entry.path,
        "sha256": sha_of(entry.new),
        "prev_sha256": sha_of(entry.old),
        "bytes": len(entry.new or b""),
        "mode_applied": entry.mode,
        "journal_id": str(entry.seq),
        "warnings": [],
    }


# --- one file ------------------------------------------------------------------------------------------------


def safe_write(model: Model, request: Request, sent: bytes) -> Payload:
    given, view = request.arguments, View(model, request.session, request.client)
    path, mode = given["path"], given["mode"]
    warnings = _unseen(model, view, request)
    try:
        wrote = _wrote(view, view.put(path, _written(model, view, request, sent), "write", mode))
        return {**wrote, "warnings": warnings}
    except Refusal as refusal:
        refusal.kept = (path, sent)
        raise


def _unseen(model: Model, view: View, request: Request) -> list[str]:
    """What is said of a file that the session has not read, and replaces."""
    given = request.arguments
    now = view.content(given["path"])
    if now is None or given["mode"] != "overwrite" or given.get("expected_prev_sha256") is not None:
        return []
    if model.last_seen(request.session, given["path"]) is not None:
        return []
    bytes_ = f"{len(now)} byte{'' if len(now) == 1 else 's'}"
    return [f"replaced {bytes_} of {given['path']} that this session had not read; undo gives them back"]


def _written(model: Model, view: View, request: Request, sent: bytes) -> bytes:
    given = request.arguments
    path, now = given["path"], view.content(given["path"])
    expected = given.get("expected_prev_sha256")
    check_expected(view, path, expected)
    if now is not None and expected is None and given["mode"] == "create":
        raise Refusal("stale_precondition", "file_already_exists", path=path, existing_sha256=sha256(now))
    if now is not None and expected is None and given["mode"] == "overwrite":
        _check_seen(model, request.session, path, now)
    if now is not None and given["mode"] == "append":
        binary = "draft" in given and not text.is_text(sent)
        return text.appended(now, sent, as_sent=binary or given.get("encoding") == "base64")
    return sent


def _check_seen(model: Model, session: str, path: str, now: bytes) -> None:
    last = model.last_seen(session, path)
    if last is None or last[0] == now:
        return
    rows = model.of(path)
    by = rows[-1].client if rows and rows[-1].new == now else "another program"
    raise Refusal(
        "stale_precondition",
        "changed_since_seen",
        path=path,
        seen_sha256=sha_of(last[0]),
        actual_prev_sha256=sha256(now),
        changed_by=by,
    )


def edit(model: Model, request: Request) -> Payload:
    given, view = request.arguments, View(model, request.session, request.client)
    if request.tool == "safe_replace":
        wanted = [(given["old_string"], given["new_string"], given["count"])]
    else:
        wanted = [(one["old"], one["new"], one["count"]) for one in given["edits"]]
    after, count = _edited(view, given["path"], wanted, given.get("expected_prev_sha256"))
    entry = view.put(given["path"], after, "edit", "replace")
    return {**_wrote(view, entry), "replacements": count, "match": "exact"}


def _edited(
    view: View, path: str, wanted: list[tuple[str, str, int]], expected: str | None = None
) -> tuple[bytes, int]:
    before = existing(view, path)
    check_expected(view, path, expected)
    if not text.is_text(before):
        raise Refusal("invalid_input", "binary_file")
    try:
        return text.edited(before, wanted)
    except text.Misfit as misfit:
        if str(misfit) in ("empty_old_string", "nothing_to_change"):
            raise Refusal("invalid_input", str(misfit)) from None
        refusal = Refusal("stale_precondition", str(misfit))
        refusal.left = {RETRIES}  # a miss does not count as a try
        raise refusal from None


def restore(model: Model, request: Request) -> Payload:
    given, view = request.arguments, View(model, request.session, request.client)
    path = given["path"]
    check_expected(view, path, given.get("expected_prev_sha256"))
    version = model.entry(given["journal_id"], path)
    if version is None:
        raise Refusal("not_found", "version_not_found", path=path)
    rows = model.of(path)
    if view.content(path) is not None:
        mode = "overwrite" if version.new is not None else "delete"
    elif version.new is None:
        raise Refusal("not_found", "nothing_to_restore", path=path)
    else:
        mode = "create"
        view.give_mode(path, rows[-1].file_mode)
    return _wrote(view, view.put(path, version.new, "restore", mode))


# --- many files ----------------------------------------------------------------------------------------------


def transaction(model: Model, request: Request) -> Payload:
    given, view = request.arguments, View(model, request.session, request.client)
    for path, expected in given.get("expected", {}).items():
        check_expected(view, path, expected)
    view.together()
    files: list[Payload] = []
    for number, one in enumerate(given["ops"]):
        try:
            files += _OPERATIONS[one["op"]](view, one)
        except Refusal as refusal:
            refusal.context |= {"operation": number, "path": one["path"]}
            if one["op"] == "write":
                refusal.kept = (one["path"], one["content"].encode())
            raise
    view.land()
    return {"files": files}


def _file(entry: Entry, **more: Any) -> Payload:
    row = shown(entry)
    return {k: row[k] for k in ("path", "op", "sha256", "prev_sha256", "bytes", "journal_id")} | more


def _op_write(view: View, one: Payload) -> list[Payload]:
    now = view.content(one["path"])
    if one["mode"] == "create" and now is not None:
        raise Refusal("stale_precondition", "file_already_exists", existing_sha256=sha256(now))
    return [_file(view.put(one["path"], one["content"].encode(), "write", one["mode"]))]


def _op_edit(view: View, one: Payload) -> list[Payload]:
    wanted = [(edit["old"], edit["new"], edit["count"]) for edit in one["edits"]]
    after, count = _edited(view, one["path"], wanted)
    entry = view.put(one["path"], after, "edit", "replace")
    return [_file(entry) | {"replacements": count, "match": "exact"}]


def _op_delete(view: View, one: Payload) -> list[Payload]:
    existing(view, one["path"])
    return [_file(view.put(one["path"], None, "delete", "delete"))]


def _op_move(view: View, one: Payload) -> list[Payload]:
    content, to = existing(view, one["path"]), one["to"]
    if view.content(to) is not None:
        raise Refusal("stale_precondition", "target_exists", to=to)
    view.give_mode(to, view.mode(one["path"]))
    return [
        _file(view.put(to, content, "move", "move")),
        _file(view.put(one["path"], None, "move", "move")),
    ]


def _op_patch(view: View, one: Payload) -> list[Payload]:
    path, patch = one["path"], one["patch"]
    if patch.startswith("--- /dev/null"):
        if view.content(path) is not None:
            raise Refusal("stale_precondition", "file_already_exists")
        return [_file(view.put(path, text.patched(patch, "").encode(), "patch", "create"))]
    before = existing(view, path).decode()
    try:
        after = text.patched(patch, before.replace("\r\n", "\n"))
    except text.Misfit as misfit:
        raise Refusal("stale_precondition", str(misfit)) from None
    if "\n+++ /dev/null" in patch:
        return [_file(view.put(path, None, "patch", "delete"))]
    after = after.replace("\n", "\r\n") if text.eol(before) == "crlf" else after
    return [_file(view.put(path, after.encode(), "patch", "replace"))]


_OPERATIONS: Final = {
    "write": _op_write,
    "edit": _op_edit,
    "delete": _op_delete,
    "move": _op_move,
    "patch": _op_patch,
}

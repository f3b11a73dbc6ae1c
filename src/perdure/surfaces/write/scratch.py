"""Material that must not be in the tree: kept out of band under its hash, for its owner alone.

A label is another name for a hash; given to several contents, it stands for the latest. Contents are in the journal's
store, which no tool can read; a listing tells about them and never shows them. An entry's name is the hash of what was
sent; what is stored under it is that, or where the policy says so the same sealed (`sealing.py`).
"""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Annotated, Any, Final, Literal

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, ask_user, call_again, call_tool, then
from perdure.protocol.tools import arg
from perdure.storage import cipher
from perdure.storage.journal import Item
from perdure.surfaces.write import hash_prefix
from perdure.text.codec import encode_payload
from perdure.text.times import format_time
from perdure.workspace.change import PlanFunction
from perdure.workspace.planning import PlanView
from perdure.workspace.workspace import Workspace

KIND: Final = "scratch"
LABEL: Final = "scratch-label"
MOST_LABEL: Final = 200
WHOLE: Final = 64

Encoding = Literal["utf-8", "base64"]
SHA = arg()
BY_LABEL = arg()


class ScratchPut(msgspec.Struct, frozen=True):
    content: Annotated[str, arg()]
    label: Annotated[str, arg("A name for finding it.", max_length=MOST_LABEL)] | None = None
    content_type: Annotated[str, arg(max_length=100)] | None = None
    notes: Annotated[str, arg(max_length=2000)] | None = None
    encoding: Annotated[Encoding, arg()] = "utf-8"
    ttl_s: Annotated[int, arg("Seconds until it is deleted.", ge=1, le=10**9)] | None = None


class ScratchRef(msgspec.Struct, frozen=True):
    sha256: Annotated[str, SHA] | None = None
    label: Annotated[str, BY_LABEL] | None = None


class ScratchGet(msgspec.Struct, frozen=True):
    sha256: Annotated[str, SHA] | None = None
    label: Annotated[str, BY_LABEL] | None = None
    encoding: Annotated[Encoding, arg()] = "utf-8"


def scratch_put(workspace: Workspace, params: ScratchPut, call: Call) -> dict[str, Any]:
    data = encode_payload(params.content, params.encoding)
    name = hashlib.sha256(data).hexdigest()
    is_sealed = workspace.policy.scratch.encrypt
    kept_content = workspace.store.take(cipher.seal(data, name) if is_sealed else data)

    def plan(tree: PlanView) -> dict[str, Any]:
        journal = workspace.journal
        before = journal.item(KIND, name)
        now = int(time.time() * 1_000_000)
        ends = now + params.ttl_s * 1_000_000 if params.ttl_s is not None else None
        told = {"content_type": params.content_type, "notes": params.notes}
        known = before.meta if before is not None else {}
        workspace.store.record(kept_content, by_row=False)
        kept = Item(
            kind=KIND,
            name=name,
            sha=kept_content.digest,
            size=len(data),
            meta={
                "entry": name,
                "sealed": is_sealed,
                "encoding": params.encoding,
                **{key: value if value is not None else known.get(key) for key, value in told.items()},
            },
            client=call.client,
            session=call.session,
            created=before.created if before is not None else now,
            updated=now,
            expires=ends,
        )
        journal.shelf_put(kept)
        for label in journal.shelf(LABEL):
            if _named(label) != name:
                continue
            if label.name == params.label:
                journal.shelf_remove(LABEL, label.name, label.at)  # it becomes the latest of that label
            elif label.sha != kept.sha:
                journal.shelf_put(msgspec.structs.replace(label, sha=kept.sha))
        if params.label is not None:
            last = journal.shelf_end(LABEL, params.label)
            journal.shelf_put(msgspec.structs.replace(kept, kind=LABEL, name=params.label, at=last + 1))
        return {
            "sha256": name,
            "scratch_path": _place(name),
            "bytes": len(data),
            "sealed": is_sealed,
            "deduped": before is not None,
            "journal_id": None,
            "expires_at": format_time(ends) if ends is not None else None,
            "warnings": [],
        }

    return workspace.commit(call, PlanFunction(frozenset({_place(name)}), plan)).result()


def scratch_ref(workspace: Workspace, params: ScratchRef, call: Call) -> dict[str, Any]:
    if params.sha256 is None and params.label is None:
        labels = workspace.journal.shelf(LABEL)
        return {"entries": [_entry(item, labels) for item in workspace.journal.shelf(KIND)]}
    item = _found(workspace, params.sha256, params.label)
    labels = workspace.journal.shelf(LABEL)
    return {
        "entry": {**_entry(item, labels), **({"label": params.label} if params.label else {})},
        "scratch_path": _place(item.name),
        "bin_exists": workspace.store.has(item.sha.hex()),
        "alias_count": _alias_count(item, labels, params),
    }


def scratch_get(workspace: Workspace, params: ScratchGet, call: Call) -> dict[str, Any]:
    if not workspace.scratch_get:
        raise refuse(
            "policy_violation",
            "scratch_get_disabled",
            "the policy does not allow scratch entries to be read back (scratch.get).",
            next_step=ask_user("for the material itself, or to allow scratch.get in the policy."),
            reason_hint="permission",
            suggested_action="ask_user",
        )
    item = _found(workspace, params.sha256, params.label)
    data = workspace.store.load(item.sha.hex())
    if item.meta.get("sealed"):
        data = cipher.unseal(data, item.name)
    try:
        content = data.decode() if params.encoding == "utf-8" else base64.b64encode(data).decode()
    except UnicodeDecodeError:
        raise refuse(
            "invalid_input",
            "not_valid_utf8",
            "the entry is not text.",
            next_step=call_again(encoding="base64"),
            reason_hint="encoding",
            suggested_action="escape",
        ) from None
    entry = _entry(item, workspace.journal.shelf(LABEL))
    return {
        "sha256": item.name,
        "content": content,
        "encoding": params.encoding,
        "bytes": item.size,
        "content_type": entry["content_type"],
        "label": params.label or entry["label"],
    }


def scratch_drop(workspace: Workspace, params: ScratchRef, call: Call) -> dict[str, Any]:
    """By its hash with all its labels; by a label the same."""
    if params.sha256 is None and params.label is None:
        raise refuse(
            "invalid_input",
            "must_provide_sha256_or_label",
            "sha256 or label is missing: give one of them.",
            next_step=then(call_tool("scratch_ref"), call_again(sha256=FILL)),
            suggested_action="fix_syntax",
        )
    item = _found(workspace, params.sha256, params.label)

    def plan(tree: PlanView) -> dict[str, Any]:
        for label in workspace.journal.shelf(LABEL):
            if _named(label) == item.name:
                workspace.journal.shelf_remove(LABEL, label.name, label.at)
        dropped = workspace.journal.shelf_remove(KIND, item.name).rows
        return {"sha256": item.name, "dropped": bool(dropped)}

    return workspace.commit(call, PlanFunction(frozenset({_place(item.name)}), plan)).result()


def _found(workspace: Workspace, sha256: str | None, label: str | None) -> Item:
    if sha256 is None and label is None:
        raise refuse(
            "invalid_input",
            "must_provide_sha256_or_label",
            "sha256 or label is missing: give one of them.",
            next_step=then(call_tool("scratch_ref"), call_again(sha256=FILL)),
            suggested_action="fix_syntax",
        )
    if sha256 is not None:
        sha256 = _whole_hash(workspace, sha256)
    if sha256 is None and label is not None:
        aliases = workspace.journal.shelf(LABEL, label)
        sha256 = _named(aliases[-1]) if aliases else ""
    item = workspace.journal.item(KIND, sha256 or "")
    if item is None:
        raise refuse(
            "not_found",
            "not_found",
            "there is no scratch entry with this hash or label, or it has expired.",
            next_step=then(call_tool("scratch_ref"), call_again(sha256=FILL, label=None)),
            suggested_action="reread",
        )
    return item


def _whole_hash(workspace: Workspace, sha256: str) -> str:
    """The hash of the entry that begins with these digits."""
    if not hash_prefix.is_prefix(sha256):
        raise refuse(
            "invalid_input",
            "not_a_lowercase_sha256_hex",
            "sha256 must be at least the first 8 of 64 lower-case hex digits; scratch_ref lists the entries.",
            next_step=then(call_tool("scratch_ref"), call_again(sha256=FILL)),
            reason_hint="syntax",
            suggested_action="fix_syntax",
        )
    if len(sha256) == WHOLE:
        return sha256
    names = sorted({item.name for item in workspace.journal.shelf(KIND) if item.name.startswith(sha256)})
    if len(names) > 1:
        raise refuse(
            "invalid_input",
            "ambiguous_sha256",
            f"{len(names)} scratch entries begin with {sha256}; give more digits.",
            next_step=then(call_tool("scratch_ref"), call_again(sha256=FILL)),
            suggested_action="fix_syntax",
            matches=names[:10],
        )
    return names[0] if names else sha256


def _alias_count(item: Item, labels: list[Item], params: ScratchRef) -> int:
    """How many entries a label stands for, or how many labels an entry has."""
    if params.sha256 is None:
        return sum(label.name == params.label for label in labels)
    return sum(_named(label) == item.name for label in labels)


def _entry(item: Item, labels: list[Item]) -> dict[str, Any]:
    named = [label for label in labels if _named(label) == item.name]
    last = max(named, key=lambda label: label.updated, default=None)
    return {
        "sha256": item.name,
        "label": last.name if last is not None else None,
        "content_type": item.meta.get("content_type"),
        "bytes": item.size,
        "encoding": item.meta.get("encoding"),
        "notes": item.meta.get("notes"),
        "created_at": format_time(item.created),
        "expires_at": format_time(item.expires) if item.expires is not None else None,
    }


def _named(label: Item) -> str:
    """The entry that a label stands for; older ones say it by their content alone."""
    return str(label.meta.get("entry") or label.sha.hex())


def _place(sha256: str) -> str:
    return f"perdure://scratch/{sha256}"

"""The frames of a call, computed and never sent from here: its params as the server must see them, its probe, its answer."""

from __future__ import annotations

from posixpath import normpath

import msgspec
from msgspec import Raw

from perdure.kernel.child_requests import envelope
from perdure.kernel.context import Context
from perdure.kernel.extensions import ADDRESSED, with_addresses
from perdure.kernel.state import AtServer, Invocation, Link, Orphaned
from perdure.protocol import eras
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import Fault, Outcome, Retry
from perdure.protocol.frames import INVALID_PARAMS, Members, Response, encode_members, members
from perdure.protocol.replay import (
    SAFE_TO_RETRY,
    STILL_UNKNOWN,
    Completed,
    Convergent,
    NeverReplay,
    ProbeAnswer,
    ProbeRequired,
    pointed,
    pointer,
)
from perdure.protocol.tool_groups import GROUP_NAMES

_encode = msgspec.json.encode


class _Probed(msgspec.Struct):
    status: str = ""
    result: Raw = Raw(b"null")  # `Raw | None` would take nothing but null


class _ProbeResult(msgspec.Struct):
    structuredContent: _Probed | None = None


# --- to the server ---------------------------------------------------------------------------------------


def child_params(k: Context, link: Link, call: Invocation, child_id: int) -> bytes | Members | None:
    """The client's params as this child must see them; untouched where nothing has to differ."""
    spec = k.specs[link.mount]
    crossing = call.era != link.era
    is_about_task = call.method in eras.TASK_METHODS
    uri = k.public.addresses().inner(link.mount, call.name) if call.method in ADDRESSED else call.name
    named = (
        is_about_task
        or uri != call.name
        or (bool(spec.prefix) and call.method in ("tools/call", "prompts/get", "completion/complete"))
    )
    if not (crossing or named or call.token is not None or spec.builtin or call.inputs is not None):
        return call.params
    params = call_params(call)
    meta: Members = members(params["_meta"]) if "_meta" in params else {}
    if call.method in ("tools/call", "prompts/get"):
        params["name"] = Raw(_encode(call.name))
    elif is_about_task:
        params["taskId"] = Raw(_encode(_inner_task(k, call)))
    elif uri != call.name:
        params["uri"] = Raw(_encode(uri))
    elif call.method == "completion/complete" and spec.prefix:
        params["ref"] = _inner_reference(params.get("ref", Raw(b"{}")), call.name)
    if link.era == "handshake":
        for key in eras.ENVELOPE_KEYS:
            meta.pop(key, None)
        if call.era == "modern":
            params.pop(
                "task", None
            )  # of the revision before; here it would make a task that the client cannot read
    elif call.era == "handshake":
        meta.update(envelope(k))
    if call.token is not None:
        meta["progressToken"] = Raw(_encode(child_id))
    if spec.builtin:
        meta[eras.META_INVOCATION] = Raw(_encode(invocation_key(k, call)))
        meta[eras.META_CALLER] = Raw(_encode(_caller(k)))
        if k.now > call.accepted_at:  # it waited here, or another worker had it before
            meta[eras.META_AGE] = Raw(_encode(round((k.now - call.accepted_at) * 1000)))
    if call.inputs is not None:
        params.update(members(call.inputs))
    if meta:
        params["_meta"] = encode_members(meta)
    else:
        params.pop("_meta", None)
    return params


def _inner_task(k: Context, call: Invocation) -> str:
    """The server's own id of a task that a call is about."""
    task = k.state.tasks.get(call.name)  # None: expired, and forgotten by another session
    return task.place.inner if task is not None and isinstance(task.place, AtServer | Orphaned) else call.name


def call_params(call: Invocation) -> Members:
    return members(call.params) if call.params is not None else {}


def _caller(k: Context) -> dict[str, object]:
    session = k.state.session
    caller: dict[str, object] = {"name": session.client_name, "session": session.session_id}
    if session.client_process:
        caller["process"] = session.client_process
    enabled = k.groups
    if len(enabled) < len(GROUP_NAMES):
        caller["disabled_groups"] = [name for name in GROUP_NAMES if name not in enabled]
    return caller


def _inner_reference(raw: Raw, name: str) -> Raw:
    reference = members(raw)
    if "name" in reference:
        reference["name"] = Raw(_encode(name))
    return encode_members(reference)


def invocation_key(k: Context, call: Invocation) -> str:
    """The name under which the worker commits the effect, and by which a probe finds it."""
    return f"{k.state.session.session_id}.{call.seq}"


def conflict_keys_at(call: Invocation, pointers: tuple[str, ...]) -> tuple[str, ...]:
    try:
        raw_arguments = members(call_params(call).get("arguments", Raw(b"{}")))
        # Only what a key can be made of is read: beside it may stand a file's whole content.
        wanted = {name for path in pointers for name in path.split("/")[1:2]}
        arguments = {name: msgspec.json.decode(raw_arguments[name]) for name in wanted & raw_arguments.keys()}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    keys = set()
    for path in pointers:
        for value in pointed(arguments, path):
            text = value if isinstance(value, str) else _encode(value).decode()
            keys.add(normpath(text.removeprefix("file://")))
    return tuple(sorted(keys))


# --- a probe ---------------------------------------------------------------------------------------------


def probe_question(k: Context, call: Invocation, rule: ProbeRequired) -> tuple[str, Members]:
    if not rule.tool:
        key = Raw(_encode(invocation_key(k, call)))
        return eras.PROBE_METHOD, {"key": key, "tool": Raw(_encode(call.name))}
    lost = msgspec.json.decode(members(call.params or b"{}").get("arguments", Raw(b"{}")))
    arguments = {name: pointer(lost, path) for name, path in rule.arguments.items()}
    return "tools/call", {"name": Raw(_encode(rule.tool)), "arguments": Raw(_encode(arguments))}


def read_probe(rule: ProbeRequired, response: Response) -> ProbeAnswer:
    """Only a clear answer decides; an error, or anything else, leaves it unknown (law 4)."""
    if response.result is None:
        return STILL_UNKNOWN
    try:
        if rule.tool:
            probed = msgspec.json.decode(response.result, type=_ProbeResult).structuredContent or _Probed()
        else:
            probed = msgspec.json.decode(response.result, type=_Probed)
        if probed.status == "absent":
            return SAFE_TO_RETRY
        if probed.status == "done":
            return Completed(_probe_result(probed.result, response.result))
    except (msgspec.MsgspecError, ValueError):
        pass
    return STILL_UNKNOWN


def _probe_result(result: Raw, whole: Raw) -> Raw:
    """The lost call's result: the probe's `result` member as a tool result, or the probe's own."""
    text = bytes(result)
    if text == b"null":
        members(whole)
        return Raw(bytes(whole))
    if text[:1] == b"{":
        result_members = members(text)
        if "content" in result_members:
            return Raw(text)
    content: Members = {"content": Raw(_encode([{"type": "text", "text": text.decode()}]))}
    if text[:1] == b"{":
        content["structuredContent"] = Raw(text)
    return encode_members(content)


# --- to the client ---------------------------------------------------------------------------------------


def shape_result(k: Context, call: Invocation, era: eras.Era, result: Raw | bytes) -> Raw | bytes:
    """The result as a client of the call's era must see it; untouched where nothing has to differ."""
    if call.era == "modern" and era == "handshake":
        result = eras.modern_result(call.method, result, k.public.identity(call.mount))
    if call.replays > 0 or call.probes > 0:
        result = _say_outcome(call, result)
    addresses = k.public.addresses()
    if call.mount in addresses.renamed:
        result = with_addresses(result, lambda uri: addresses.public(call.mount, uri))
    return result


def _say_outcome(call: Invocation, result: Raw | bytes) -> Raw:
    """A recovered call says so: how it was settled and how often it was sent."""
    result_members = members(result)
    try:
        meta = members(result_members["_meta"]) if "_meta" in result_members else {}
    except ValueError:
        return Raw(result)  # a `_meta` that is no object is the server's to explain
    outcome: Outcome = "replayed" if call.replays > 0 else "probed_done"
    meta["perdure/outcome"] = Raw(_encode({"outcome": outcome, "attempts": call.attempts}))
    return encode_members({**result_members, "_meta": encode_members(meta)})


def modern_error(error: Raw) -> Raw:
    """2026-07-28 retired the code for a missing resource; its clients know it as invalid params."""
    try:
        error_members = members(error)
    except ValueError:
        return error
    if bytes(error_members.get("code", Raw(b""))) == str(eras.RESOURCE_NOT_FOUND).encode():
        error_members["code"] = Raw(str(INVALID_PARAMS).encode())
        return encode_members(error_members)
    return error


def error_of(
    call: Invocation, number: int, fault: Fault, outcome: Outcome, retry: Retry, cause: Fault | None = None
) -> Raw:
    return host_error(
        number,
        fault,
        mount=call.mount,
        call=call.name or call.method,
        attempts=call.attempts,
        outcome=outcome,
        retry=retry,
        cause=cause,
    )


def advice(call: Invocation) -> Retry:
    match call.replay:
        case Convergent():
            return "safe"
        case ProbeRequired():
            return "after_probe"
        case NeverReplay():
            return "never"

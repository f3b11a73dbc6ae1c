"""The tools that change one key, a lease or a once-key: arguments checked, then decided in a round."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Annotated, Any, Literal

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_tool
from perdure.protocol.tools import arg
from perdure.storage.state import Name
from perdure.storage.state_rounds import Payload, Step
from perdure.storage.state_values import BadValue, parsed, written
from perdure.surfaces.state import leases
from perdure.surfaces.state.keys import ANY, delete_key, mismatch, set_key, wrote
from perdure.surfaces.state.limits import (
    bad_argument,
    bad_json,
    checked_ttl,
    expiry,
    json_value,
    named,
    sized,
    unlisted,
)
from perdure.surfaces.state.patch import appended, incremented, merged
from perdure.surfaces.state.service import StateService
from perdure.surfaces.state.txn import Plan, Txn

Outcome = Payload | Future[Payload]


class Set(msgspec.Struct, frozen=True):
    key: str
    value: Annotated[str, arg("JSON", json_text=True)]
    expected_version: Annotated[int, arg("-1: overwrite; 0: create only.")] = ANY
    ttl_s: float | None = None
    lease: Annotated[str | None, arg("Write only while lease_token holds it.")] = None
    lease_token: int | None = None
    namespace: str = unlisted("default")


class ForceSet(msgspec.Struct, frozen=True):
    key: str
    value: Annotated[str, arg("JSON", json_text=True)]
    ttl_s: float | None = None
    namespace: str = unlisted("default")


class Delete(msgspec.Struct, frozen=True):
    key: str
    expected_version: int = ANY
    namespace: str = unlisted("default")


class Patch(msgspec.Struct, frozen=True):
    key: str
    op: Literal["merge", "increment", "append", "revert"]
    value: Annotated[str, arg("JSON; for revert, the version to return to", json_text=True)]
    expected_version: int = ANY
    namespace: str = unlisted("default")


class LeaseCall(msgspec.Struct, frozen=True):
    action: Literal["acquire", "renew", "release", "status"]
    name: str
    owner: Annotated[str | None, arg("Default: client and session.")] = None
    ttl_s: Annotated[float, arg("Seconds.")] = 60
    token: Annotated[int | None, arg("From acquire; for renew and release.")] = None
    namespace: str = unlisted("default")


class Once(msgspec.Struct, frozen=True):
    action: Literal["begin", "finish", "status"]
    key: str
    token: Annotated[int | None, arg("From begin; finish needs it.")] = None
    outcome: Annotated[str | None, arg("JSON", json_text=True)] = None
    ttl_s: Annotated[float, arg("Seconds until another agent may begin.")] = 3600
    namespace: str = unlisted("default")


def set_state(service: StateService, params: Set, call: Call) -> Outcome:
    name = named("key", params.namespace, params.key)
    if (refused := _refused_value(service, params.key, params.value)) is not None:
        return refused
    _check_expected(params.expected_version)
    ttl_s = checked_ttl(params.ttl_s)
    if (params.lease is None) != (params.lease_token is None):
        raise bad_argument(
            "lease_token",
            "give lease and lease_token together: the lease and the token that acquire answered.",
        )
    guard = named("lease", params.namespace, params.lease, what="lease") if params.lease is not None else None

    def decide(step: Step) -> Payload:
        token = params.lease_token
        if guard is not None and token is not None and not leases.holds(step, guard, token):
            return leases.stale_token(step, guard, token, params.key)
        return set_key(step, name, params.value, params.expected_version, expiry(ttl_s, step.now))

    return service.commit(call, frozenset(filter(None, (name, guard))), decide)


def force_set_state(service: StateService, params: ForceSet, call: Call) -> Outcome:
    return set_state(
        service, Set(params.key, params.value, ttl_s=params.ttl_s, namespace=params.namespace), call
    )


def delete_state(service: StateService, params: Delete, call: Call) -> Outcome:
    name = named("key", params.namespace, params.key)
    _check_expected(params.expected_version)
    return service.commit(
        call, frozenset({name}), lambda step: delete_key(step, name, params.expected_version)
    )


def state_txn(service: StateService, params: Txn, call: Call) -> Outcome:
    plan = Plan(params, service.limits)
    return service.commit(call, plan.names, plan.decide)


def state_patch(service: StateService, params: Patch, call: Call) -> Outcome:
    name = named("key", params.namespace, params.key)
    given = json_value(params.value, service.limits)
    _check_expected(params.expected_version)
    if params.op == "revert":
        given = _version_value(service, name, given)

    def decide(step: Step) -> Payload:
        refused = mismatch(step, name, params.expected_version)
        if refused is not None:
            return refused
        entry = step.live(name)
        try:
            before = parsed(entry.value) if entry is not None else None
            value = given if params.op == "revert" else written(_PATCHES[params.op](before, given))
            parsed(value)  # what was appended may be nested too deep where it stands now
        except BadValue as error:
            raise bad_json(str(error)) from None
        expires = entry.expires if entry is not None else None
        made = step.put(name, sized(value, service.limits), expires)
        return {**wrote(made), "value": value}

    return service.commit(call, frozenset({name}), decide)


_PATCHES = {"merge": merged, "increment": incremented, "append": appended}


def _version_value(service: StateService, name: Name, version: Any) -> str:
    if type(version) is not int:
        raise bad_argument(
            "value", "for revert, value must be the number of a version (state_history lists them)."
        )
    for change in service.backend.history(name, 1000):
        if change.entry.version == version and change.entry.value is not None:
            return change.entry.value
    raise refuse(
        "not_found",
        "version_not_found",
        f"{name[2]} has no kept value of version {version}.",
        next_step=call_tool("state_history", key=name[2]),
    )


def lease(service: StateService, params: LeaseCall, call: Call) -> Outcome:
    name = named("lease", params.namespace, params.name, what="name")
    ttl_s = checked_ttl(params.ttl_s) or 0
    if params.action == "status":
        found = service.backend.find(name)
        entry = found.entry if found.entry is not None and found.entry.is_live(found.now) else None
        return leases.lease_status(entry, name, found.revision, params.token)
    if params.action == "acquire":
        owner = params.owner or f"{call.client}:{call.session}"
        named("lease", params.namespace, owner, what="owner")
        return service.commit(
            call, frozenset({name}), lambda step: leases.acquire(step, name, owner, ttl_s, params.token)
        )
    token = _given_token(params.action, "acquire", params.token)
    if params.action == "renew":
        return service.commit(call, frozenset({name}), lambda step: leases.renew(step, name, ttl_s, token))
    return service.commit(call, frozenset({name}), lambda step: leases.release(step, name, token))


def once(service: StateService, params: Once, call: Call) -> Outcome:
    name = named("once", params.namespace, params.key)
    ttl_s = checked_ttl(params.ttl_s) or 0
    if params.action == "status":
        found = service.backend.find(name)
        entry = found.entry
        if entry is not None and not entry.is_live(found.now):
            entry = msgspec.structs.replace(entry, value=None)
        return leases.once_status(entry, name, found.revision, params.token)
    if params.action == "begin":
        return service.commit(call, frozenset({name}), lambda step: leases.begin(step, name, ttl_s))
    if params.outcome is not None:
        json_value(params.outcome, service.limits, "outcome")
    token = _given_token("finish", "begin", params.token)
    return service.commit(
        call, frozenset({name}), lambda step: leases.finish(step, name, token, params.outcome)
    )


def _refused_value(service: StateService, key: str, value: str) -> Payload | None:
    """Clients of these tools know a status for text that is not JSON."""
    sized(value, service.limits)
    try:
        parsed(value)
    except BadValue as error:
        revision = service.backend.revision()
        return {"status": "error", "key": key, "message": f"Invalid JSON: {error}", "revision": revision}
    return None


def _check_expected(version: int) -> None:
    if version < ANY:
        raise bad_argument(
            "expected_version",
            "expected_version must be -1 (overwrite), 0 (create only) or the version that was read.",
        )


def _given_token(action: str, given_by: str, token: int | None) -> int:
    if token is None:
        raise bad_argument("token", f"{action} needs token: the number that {given_by} answered.")
    return token

"""Compare, then write many keys or none of them: one decision over one step."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from perdure.present.normalize import arguments
from perdure.protocol.tools import arg
from perdure.storage.state import Name
from perdure.storage.state_limits import StateLimits
from perdure.storage.state_rounds import Payload, Step
from perdure.storage.state_values import canonical, parsed
from perdure.surfaces.state.keys import delete_key
from perdure.surfaces.state.leases import holds
from perdure.surfaces.state.limits import (
    MOST_OPS,
    bad_argument,
    checked_ttl,
    expiry,
    json_value,
    named,
    unlisted,
)


# Its one condition besides the key; for `lease_token`, the key names the lease.
class Compare(msgspec.Struct, frozen=True):
    key: str
    version: int | None = None
    exists: bool | None = None
    value: Annotated[str | None, arg(json_text=True)] = None
    lease_token: int | None = None


class Op(msgspec.Struct, frozen=True):
    op: Literal["set", "delete"]
    key: str
    value: Annotated[str | None, arg(json_text=True)] = None
    ttl_s: float | None = None


class Txn(msgspec.Struct, frozen=True):
    compare: Annotated[list[Compare], arg("Each: key and one condition.")] = []
    then: list[Op] = []
    otherwise: Annotated[list[dict[str, Any]], arg("As then.")] = msgspec.field(
        name="else", default_factory=list
    )
    namespace: str = unlisted("default")


class Plan:
    """A transaction whose arguments are sound; `decide` runs in a round."""

    def __init__(self, params: Txn, limits: StateLimits) -> None:
        self._namespace = params.namespace
        if not (params.compare or params.then or params.otherwise):
            raise bad_argument(
                "then", "a transaction needs compare or then: at least one condition or one write."
            )
        otherwise = [arguments(Op, one) for one in params.otherwise]
        for shown, many in (("compare", params.compare), ("then", params.then), ("else", otherwise)):
            if len(many) > MOST_OPS:
                raise bad_argument(shown, f"{shown} has {len(many)} members; it may have {MOST_OPS}.")
        self._checks = [(self._subject(one), one) for one in params.compare]
        self._expected = {
            id(one): canonical(json_value(one.value, limits))
            for _, one in self._checks
            if one.value is not None
        }
        self._then = self._ops("then", params.then, limits)
        self._else = self._ops("else", otherwise, limits)
        self.names = frozenset(name for name, _ in (*self._checks, *self._then, *self._else))

    def decide(self, step: Step) -> Payload:
        failed = [problem for name, one in self._checks if (problem := self._problem(step, name, one))]
        chosen = self._else if failed else self._then
        results = [_run(step, name, op) for name, op in chosen]
        payload: Payload = {
            "status": "conflict" if failed else "ok",
            "succeeded": not failed,
            "revision": step.next_revision if step.changes else step.revision,
            "results": results,
        }
        return {**payload, "failed": failed} if failed else payload

    def _subject(self, one: Compare) -> Name:
        given = [x for x in (one.version, one.exists, one.value, one.lease_token) if x is not None]
        if len(given) != 1:
            raise bad_argument(
                "compare",
                f"compare of {one.key}: give exactly one of version, exists, value and lease_token.",
            )
        return named("lease" if one.lease_token is not None else "key", self._namespace, one.key)

    def _ops(self, shown: str, ops: list[Op], limits: StateLimits) -> list[tuple[Name, Op]]:
        found: list[tuple[Name, Op]] = []
        for op in ops:
            if op.op == "set":
                if op.value is None:
                    raise bad_argument(shown, f"{shown}: set of {op.key} needs value.")
                json_value(op.value, limits)
                checked_ttl(op.ttl_s)
            elif op.value is not None or op.ttl_s is not None:
                raise bad_argument(shown, f"{shown}: delete of {op.key} takes neither value nor ttl_s.")
            found.append((named("key", self._namespace, op.key), op))
        if len({name for name, _ in found}) != len(found):
            raise bad_argument(shown, f"{shown} writes a key twice: give one operation for each key.")
        return found

    def _problem(self, step: Step, name: Name, one: Compare) -> dict[str, Any] | None:
        if one.lease_token is not None:
            is_met, reason = holds(step, name, one.lease_token), "stale_token"
            return None if is_met else {"key": one.key, "reason": reason, "lease_token": one.lease_token}
        entry = step.live(name)
        version = entry.version if entry is not None else 0
        if one.version is not None:
            is_met, reason = version == one.version, "version"
        elif one.exists is not None:
            is_met, reason = (entry is not None) == one.exists, "exists"
        else:
            is_met = entry is not None and canonical(parsed(entry.value)) == self._expected[id(one)]
            reason = "value"
        if is_met:
            return None
        expected = {"expected_version": one.version} if one.version is not None else {}
        value = {"value": entry.value} if entry is not None else {}
        return {"key": one.key, "reason": reason, **expected, "actual_version": version, **value}


def _run(step: Step, name: Name, op: Op) -> dict[str, Any]:
    if op.op == "delete":
        done = delete_key(step, name, -1)
        kept: dict[str, Any] = {"op": "delete", "key": op.key, "deleted": done["deleted"]}
        return {**kept, "version": done["version"]} if "version" in done else kept
    made = step.put(name, op.value, expiry(op.ttl_s, step.now))
    return {"op": "set", "key": op.key, "version": made.version}

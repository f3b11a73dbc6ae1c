"""What a caller reads when a state tool did not do what was asked: its status in words, and the call to make next.

The five compatible tools keep the `message` that their clients know; these sentences are for porcelain, and the
`message` of the other tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.present.shape import Failure, Payload
from perdure.protocol.next_step import FILL, call_again, call_tool, either, then

Arguments = Mapping[str, Any]


def not_done(verb: str) -> Callable[[Payload, Arguments], Failure | None]:
    """For a tool that changes one key: what it did not do."""

    def explain(payload: Payload, _: Arguments) -> Failure | None:
        key = payload.get("key", "")
        read = call_tool("get_state", key=key)
        match payload["status"]:
            case "error":
                problem = str(payload.get("message", "")).removeprefix("Invalid JSON: ")
                sentence = f'not {verb}: value is not JSON: {problem}. A text needs quotes: "\\"hello\\"".'
                return Failure(sentence, call_again(value=FILL), "invalid_json")
            case "conflict" if payload.get("reason") == "stale_token":
                lease = payload["lease"]
                sentence = f"not {verb}: {_not_held(lease, payload.get('lease_token'), payload)}"
                acquire = call_tool("lease", action="acquire", name=lease)
                return Failure(
                    sentence, then(acquire, call_again(lease=lease, lease_token=FILL)), "stale_token"
                )
            case "conflict":
                actual, expected = payload["actual_version"], payload.get("expected_version", 0)
                what = (
                    f"{key} exists already"
                    if not expected
                    else f"{key} is at version {actual}, you expected {expected}"
                )
                sentence = f"not {verb}: {what}."
                reason = "version_mismatch" if expected else "already_exists"
                return Failure(sentence, either(call_again(expected_version=actual), read), reason)
            case "not_found":
                sentence = f"not {verb}: {key} does not exist, and you expected a version of it."
                create = call_again(expected_version=0) if verb == "written" else call_tool("list_state")
                return Failure(sentence, create, "key_not_found")
            case _:
                return None

    return explain


def transaction(payload: Payload, _: Arguments) -> Failure | None:
    if payload["status"] != "conflict":
        return None
    failed = payload["failed"]
    why = "; ".join(_unmet(row) for row in failed[:5])
    more = f"; {len(failed) - 5} more" if len(failed) > 5 else ""
    written = len(payload["results"])
    applied = f" else was applied: {written} write{'' if written == 1 else 's'}." if written else ""
    sentence = f"{'then was not applied' if written else 'nothing written'}: {why}{more}.{applied}"
    first = failed[0]
    step = (
        call_tool("lease", action="acquire", name=first["key"])
        if first["reason"] == "stale_token"
        else call_tool("get_state", key=first["key"])
    )
    return Failure(sentence, then(step, call_again()), first["reason"])


def _unmet(row: Mapping[str, Any]) -> str:
    key, version = row["key"], row.get("actual_version")
    match row["reason"]:
        case "stale_token":
            return f"token {row['lease_token']} does not hold lease {key}"
        case "exists":
            return f"{key} exists" if version else f"{key} does not exist"
        case "value":
            return f"{key} has another value (version {version})" if version else f"{key} does not exist"
        case _:
            is_at = f"is at version {version}" if version else "does not exist"
            return f"{key} {is_at}, you expected version {row['expected_version']}"


def lease(payload: Payload, arguments: Arguments) -> Failure | None:
    if payload["status"] != "lost":
        return None
    name, verbs = payload["name"], {"renew": "not renewed: ", "release": "not released: "}
    sentence = verbs.get(str(arguments.get("action")), "") + _not_held(name, arguments.get("token"), payload)
    return Failure(sentence, call_tool("lease", action="acquire", name=name), "not_held")


def _not_held(name: str, token: object, payload: Payload) -> str:
    given = f"token {token}" if token is not None else "this token"
    if "owner" not in payload:
        return f"lease {name} is free: it ended, or {given} released it."
    until = f" until {payload['expires_at']}" if "expires_at" in payload else ""
    return f"{given} does not hold lease {name}; {payload['owner']} holds it{until}."


def once(payload: Payload, arguments: Arguments) -> Failure | None:
    if payload["status"] != "lost":
        return None
    key, token = payload["key"], arguments.get("token")
    given = f"token {token}" if token is not None else "its last run"
    if arguments.get("action") == "finish":
        sentence = f"not finished: {given} does not run {key}: its ttl_s passed, or begin never gave it out."
    elif "expires_at" in payload or "outcome" in payload:
        sentence = f"{given} does not run {key}: another run has taken its place."
    else:
        sentence = f"{key} did not finish: the ttl_s of {given} passed."
    return Failure(sentence, call_tool("once", action="begin", key=key), "not_running")

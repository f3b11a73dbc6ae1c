"""The tools that the host answers itself, in every phase: `health`, `telemetry`, `mounts` (law 16)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Raw

from perdure.kernel import metrics, mounts
from perdure.kernel.catalog import ToolEntry
from perdure.kernel.state import (
    Announced,
    Counters,
    Disabled,
    Idle,
    Mount,
    Open,
    Preparing,
    Serving,
    Settled,
    Starting,
    Stopped,
    Waiting,
)
from perdure.model.envelope import ToolError, refuse
from perdure.model.eras import LATEST_MODERN, META_CONTRACT
from perdure.model.faults import Fault
from perdure.model.next_step import FILL, ask_user, call_tool, complete
from perdure.model.replay import CONVERGENT
from perdure.model.tools import ToolSpec, View, arg, definition
from perdure.model.trust import UntrustedFile, command_for

if TYPE_CHECKING:
    from perdure.kernel.core import Kernel
    from perdure.present.shape import Shape

MOUNT = "host"  # no mount has this name: these tools belong to the host


class NoParams(msgspec.Struct, frozen=True):
    pass


class MountsParams(msgspec.Struct, frozen=True):
    action: Annotated[
        Literal["list", "restart", "enable", "disable"],
        arg("restart replaces its process now; disable stops it and hides its tools"),
    ] = "list"
    name: Annotated[str, arg("Which; not for list.")] = ""


_SPECS = {
    spec.name: spec
    for spec in (
        ToolSpec(
            name="health",
            description="The state of this session and of every server behind it. Answers in every phase.",
            params=NoParams,
            replay=CONVERGENT,
            read_only=True,
        ),
        ToolSpec(
            name="telemetry",
            description="Requests, errors, replays and latencies of this session, per method.",
            params=NoParams,
            replay=CONVERGENT,
            read_only=True,
        ),
        ToolSpec(
            name="mounts",
            description="List the servers behind this session, or restart, enable or disable one of them.",
            params=MountsParams,
            replay=CONVERGENT,
            idempotent=True,
        ),
    )
}


@cache
def entries() -> tuple[ToolEntry, ...]:
    found = []
    for spec in _SPECS.values():
        public = definition(spec)
        del public["_meta"][META_CONTRACT]
        found.append(ToolEntry(spec.name, MOUNT, spec.name, definition=msgspec.json.encode(public)))
    return tuple(found)


def call(k: Kernel, name: str, raw_arguments: Raw | None) -> bytes:
    """One call from its raw arguments to its result; every failure is an envelope."""
    from perdure.present.normalize import arguments, presentation, strict_object
    from perdure.present.result import failure, success

    view = View(k.render, k.detail)  # type: ignore[arg-type]
    sent: dict[str, Any] = {}
    try:
        given = strict_object(raw_arguments) if raw_arguments is not None else {}
        sent = given
        view, sent = presentation(given, view)
        params = arguments(_SPECS[name].params, sent)
        payload = _run(k, name, params)
        return msgspec.json.encode(success(payload, _shapes()[name], view))
    except ToolError as error:
        context = error.envelope.context
        context = {"tool": name, **context, "next": complete(context["next"], name, sent)}
        return msgspec.json.encode(failure(msgspec.structs.replace(error.envelope, context=context), view))


def _run(k: Kernel, name: str, params: msgspec.Struct) -> dict[str, Any]:
    match params:
        case MountsParams():
            return _mounts(k, params)
        case _:
            return health(k) if name == "health" else telemetry(k)


# --- health ---------------------------------------------------------------------------------------------


def health(k: Kernel) -> dict[str, Any]:
    state, session = k.state, k.state.session
    rows = [_mount_row(k, mount) for mount in state.mounts.values()]
    newest = max((m.generation for m in state.mounts.values()), default=0)
    found: dict[str, Any] = {
        "state": _overall(k),
        "uptime_ms": int((k.now - session.started_at) * 1000),
        "protocol": session.version or (LATEST_MODERN if session.modern else ""),
        "generation": newest,
        "restart_count": sum(m.restarts for m in state.mounts.values()),
        "consecutive_failures": state.metrics.consecutive_failures,
        "rollout": _rollout(k),
        "pending": len(state.calls),
        "mounts": rows,
    }
    if state.metrics.last_fault is not None:
        found["last_fault"] = _fault(state.metrics.last_fault)
    if files := [_fault(fault) for faults in state.file_faults.values() for fault in faults]:
        found["file_faults"] = files
    if k.untrusted:
        found["untrusted"] = [_untrusted(file) for file in k.untrusted]
    if state.metrics.quarantined:
        found["quarantined"] = dict(sorted(state.metrics.quarantined.items()))
    return found


def _untrusted(file: UntrustedFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "changed": file.changed,
        "starts": [{"name": one.name, "runs": one.shown} for one in file.starts],
        "settings": list(file.settings),
        **({"problem": file.problem} if file.problem else {}),
        "todo": command_for(file.path),
    }


def _overall(k: Kernel) -> str:
    phases = [m.phase for m in k.state.mounts.values()]
    if any(isinstance(p, Open | Stopped) for p in phases) or any(k.state.file_faults.values()):
        return "degraded"
    for mount in k.state.mounts.values():
        if isinstance(mount.phase, Starting | Waiting):
            return "recovering" if mount.restarts else "starting"
    if not k.state.session.seen and all(isinstance(p, Idle) for p in phases):
        return "cold"
    return "ready"


def _rollout(k: Kernel) -> str:
    kinds = {type(m.rollout) for m in k.state.mounts.values()}
    if Announced in kinds:
        return "announced"
    return "preparing" if Preparing in kinds else "settled"


def _mount_row(k: Kernel, mount: Mount) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": mount.name,
        "state": "untrusted" if k.specs[mount.name].untrusted else _mount_state(mount),
        "generation": mount.generation,
        "restarts": mount.restarts,
        "circuit": _circuit(mount),
        "tools": k.public.count_tools(mount.name),
    }
    link = mounts.serving_link(mount)
    if link is None and isinstance(mount.phase, Starting):
        link = mount.links.get(mount.phase.generation)
    if link is not None and link.pid:
        row["pid"] = link.pid
        row["generation"] = link.generation
    if not isinstance(mount.rollout, Settled):
        row["rollout"] = type(mount.rollout).__name__.lower()
    if k.specs[mount.name].required:
        row["required"] = True
    if mount.changed:
        row["changed"] = list(mount.changed)
    if mount.held:
        row["held"] = sorted(mount.held)
    if mount.notices:
        row["notices"] = list(mount.notices)
    if sentence := k.specs[mount.name].untrusted:
        row["untrusted"] = sentence
    if mount.last_fault is not None:
        row["last_fault"] = _fault(mount.last_fault)
        if mount.exit_code is not None:
            row["exit_code"] = mount.exit_code
        if mount.stderr:
            row["stderr"] = mount.stderr
    return row


def _mount_state(mount: Mount) -> str:
    match mount.phase:
        case Serving():
            return "ready"
        case Starting():
            return "recovering" if mount.restarts else "starting"
        case Waiting():
            return "recovering"
        case Open() | Stopped():
            return "degraded"
        case Disabled():
            return "disabled"
        case Idle():
            return "cold"


def _circuit(mount: Mount) -> str:
    if isinstance(mount.phase, Open | Stopped):
        return "open"
    return "half_open" if mount.opened and isinstance(mount.phase, Starting) else "closed"


def _fault(fault: Fault) -> dict[str, Any]:
    known = {
        "class": fault.fault_class,
        "code": fault.code,
        "generation": fault.generation,
        "detail": fault.detail,
        "hint": fault.hint,
    }
    return {key: value for key, value in known.items() if value != ""}


# --- telemetry -----------------------------------------------------------------------------------------------


def telemetry(k: Kernel) -> dict[str, Any]:
    known = k.state.metrics
    return {
        "totals": _counters(known.totals),
        "methods": [
            {
                "method": method,
                **_counters(known.methods[method]),
                "latency_ms": latency(known.methods[method]),
            }
            for method in sorted(known.methods)
        ],
    }


def _counters(found: Counters) -> dict[str, int]:
    return {
        "requests": found.requests,
        "successes": found.successes,
        "errors": found.errors,
        "tool_errors": found.tool_errors,
        "response_errors": found.response_errors,
        "recovery_errors": found.recovery_errors,
        "recovery_faults": found.recovery_faults,
        "replays": found.replays,
    }


def latency(found: Counters) -> dict[str, float]:
    known = found.latency
    mean = known.total / known.count if known.count else 0.0
    values = {
        "last": known.last,
        "mean": mean,
        "p50": metrics.quantile(known, 0.5),
        "p99": metrics.quantile(known, 0.99),
        "max": known.max,
    }
    return {name: round(value, 3) for name, value in values.items()}


# --- mounts ----------------------------------------------------------------------------------------------------


def _mounts(k: Kernel, params: MountsParams) -> dict[str, Any]:
    if params.action != "list":
        mount = k.state.mounts.get(params.name)
        if mount is None:
            known = sorted(k.state.mounts)
            asked = (
                "no server has this name"
                if params.name
                else f"{params.action} needs name, the name of a server"
            )
            raise refuse(
                "not_found",
                "unknown_mount",
                f"{asked} ({', '.join(known)}).",
                next_step=call_tool(
                    "mounts", action=params.action, name=known[0] if len(known) == 1 else FILL
                ),
                suggested_action="fix_syntax",
                tool="mounts",
                mounts=known,
            )
        if params.action != "disable" and (sentence := k.specs[mount.name].untrusted):
            raise refuse(
                "policy_violation",
                "untrusted",
                sentence,
                next_step=ask_user("to run perdure trust in the workspace; then call again."),
                reason_hint="permission",
                suggested_action="ask_user",
                tool="mounts",
            )
        if params.action == "restart":
            mounts.restart(k, mount)
        elif params.action == "enable":
            mounts.enable(k, mount)
        else:
            mounts.disable(k, mount)
    rows = [_mount_row(k, mount) for mount in k.state.mounts.values()]
    return {"action": params.action, "name": params.name, "mounts": rows}


@cache
def _shapes() -> dict[str, Shape]:
    from perdure.present.shape import Field, Shape

    fault = (
        Field("class"),
        Field("code"),
        Field("generation", "count", full_only=True),
        Field("detail", full_only=True),
        Field("hint", full_only=True),
    )
    row = (
        Field("name"),
        Field("state"),
        Field("generation", "count"),
        Field("restarts", "count"),
        Field("circuit"),
        Field("pid"),
        Field("tools", "count"),
        Field("rollout", full_only=True),
        Field("required", full_only=True),
        Field("changed", "json", full_only=True),
        Field("held", "json"),
        Field("notices", "json"),
        Field("untrusted"),
        Field("last_fault", "record", columns=fault),
        Field("exit_code"),
        Field("stderr", full_only=True),
    )
    waiting = (
        Field("path"),
        Field("changed", full_only=True),
        Field("starts", "json"),
        Field("settings", "json"),
        Field("problem"),
        Field("todo"),
    )
    counters = tuple(
        Field(name, "count")
        for name in (
            "requests",
            "successes",
            "errors",
            "tool_errors",
            "response_errors",
            "recovery_errors",
            "recovery_faults",
            "replays",
        )
    )
    times = tuple(Field(name) for name in ("last", "mean", "p50", "p99", "max"))
    return {
        "health": Shape(
            "{state}  restarts {restart_count}  pending {pending}  mounts {mounts}  up {uptime_ms} ms",
            (
                Field("state"),
                Field("uptime_ms", "count"),
                Field("protocol", full_only=True),
                Field("generation", "count"),
                Field("restart_count", "count"),
                Field("consecutive_failures", "count"),
                Field("last_fault", "record", columns=fault),
                Field(
                    "file_faults",
                    "table",
                    columns=(Field("code"), Field("detail"), Field("hint", full_only=True)),
                ),
                Field("rollout"),
                Field("pending", "count", full_only=True),
                Field("quarantined", "json", full_only=True),
                Field("mounts", "table", columns=row),
                Field("untrusted", "table", columns=waiting),
            ),
        ),
        "telemetry": Shape(
            "requests {totals.requests}  errors {totals.errors}  replays {totals.replays}",
            (
                Field("totals", "record", columns=counters),
                Field(
                    "methods",
                    "table",
                    columns=(Field("method"), *counters, Field("latency_ms", "record", columns=times)),
                ),
            ),
        ),
        "mounts": Shape(
            "{action} {name}  mounts {mounts}",
            (Field("action"), Field("name"), Field("mounts", "table", columns=row)),
        ),
    }

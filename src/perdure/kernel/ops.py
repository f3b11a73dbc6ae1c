"""The tools that the host answers itself, in every phase: `health`, `telemetry`, `mounts`, `tools` (law 16)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Raw

from perdure.kernel import metrics, mounts, streams
from perdure.kernel.catalog import CHANGED, ToolEntry
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
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.eras import LATEST_MODERN
from perdure.protocol.faults import Fault
from perdure.protocol.next_step import FILL, ask_user, call_tool, complete
from perdure.protocol.pending_trust import UntrustedFile, command_for
from perdure.protocol.replay import CONVERGENT, NEVER
from perdure.protocol.tool_groups import CORE, nearest
from perdure.protocol.tools import ToolSpec, View, arg, public_definition

if TYPE_CHECKING:
    from perdure.kernel.core import Kernel
    from perdure.present.shape import Shape

MOUNT = "host"  # no mount has this name: these tools belong to the host


class NoParams(msgspec.Struct, frozen=True):
    pass


class MountsParams(msgspec.Struct, frozen=True):
    action: Annotated[
        Literal["list", "restart", "enable", "disable"],
        arg("restart starts a new process; disable stops it and hides its tools."),
    ] = "list"
    name: Annotated[str, arg("The server; not for list.")] = ""


class ToolsParams(msgspec.Struct, frozen=True):
    action: Literal["list", "enable", "disable"] = "list"
    group: Annotated[str, arg()] = ""


_SPECS = {
    spec.name: spec
    for spec in (
        ToolSpec(
            name="health",
            title="Server health",
            description="State of this session and of every server behind it. "
            "Call it when a tool or a server does not answer.",
            params=NoParams,
            replay=CONVERGENT,
            read_only=True,
        ),
        ToolSpec(
            name="telemetry",
            title="Call statistics",
            description="Requests, errors, replays and latencies of this session, per method. For statistics of writes "
            "use analytics.",
            params=NoParams,
            replay=CONVERGENT,
            read_only=True,
        ),
        ToolSpec(
            name="mounts",
            title="Mounted servers",
            description="List the MCP servers behind this session; restart, enable or disable one. Disabling one stops it "
            "for this session; to hide built-in tools use tools.",
            params=MountsParams,
            replay=NEVER,
            destructive=True,
        ),
        ToolSpec(
            name="tools",
            title="Tool groups",
            description="List groups of tools; enable one so that its tools are listed. "
            "A tool that is not listed can still be called by name.",
            params=ToolsParams,
            replay=CONVERGENT,
            idempotent=True,
        ),
    )
}


@cache
def entries() -> tuple[ToolEntry, ...]:
    found = []
    for spec in _SPECS.values():
        public = msgspec.json.encode(public_definition(spec))
        found.append(ToolEntry(spec.name, MOUNT, spec.name, definition=public))
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
        case ToolsParams():
            return _tools(k, params)
        case _:
            return health(k) if name == "health" else telemetry(k)


# --- health ---------------------------------------------------------------------------------------------


def health(k: Kernel) -> dict[str, Any]:
    state, session = k.state, k.state.session
    rows = [_mount_row(k, mount) for mount in state.mounts.values()]
    newest = max((m.generation for m in state.mounts.values()), default=0)
    found: dict[str, Any] = {
        "state": _overall(k),
        **k.places(),
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
        "waits": file.sentence,
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
    if reason := _trouble(k, mount):
        row["reason"] = reason
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


def _trouble(k: Kernel, mount: Mount) -> str:
    """Why a server does not serve, in words; empty for one that does, or that was disabled on request."""
    if k.specs[mount.name].untrusted:
        return k.specs[mount.name].untrusted
    fault = mount.last_fault
    if fault is None or not isinstance(mount.phase, Open | Stopped | Waiting | Starting):
        return ""
    reason = fault.detail or fault.code.replace("_", " ")
    return f"{reason}; {fault.hint}" if fault.hint else reason


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
            raise _unknown_mount(k, params)
        if params.action != "disable" and (sentence := k.specs[mount.name].untrusted):
            raise refuse(
                "policy_violation",
                "untrusted",
                sentence,
                next_step=ask_user(f"to run: {sentence.rpartition('the user runs: ')[2]}"),
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


def _unknown_mount(k: Kernel, params: MountsParams) -> ToolError:
    from difflib import get_close_matches

    known = sorted(k.state.mounts)
    near = get_close_matches(params.name, known, 1, 0.6) or (known if len(known) == 1 else [])
    missing = f"no server is named {params.name[:64]}" if params.name else f"{params.action} needs name"
    return refuse(
        "not_found",
        "unknown_mount",
        f"{missing}: one of {', '.join(known)}." if known else f"{missing}: this session has no server.",
        next_step=call_tool("mounts", action=params.action, name=near[0] if near else FILL),
        suggested_action="fix_syntax",
        mounts=known,
    )


# --- tools -----------------------------------------------------------------------------------------------------


def _tools(k: Kernel, params: ToolsParams) -> dict[str, Any]:
    """Only this session's list changes: what it enabled is part of its state, and outlives worker and host."""
    groups = k.public.groups()
    if params.action != "list":
        names = tuple(group.name for group in groups)
        if params.group not in names:
            raise _unknown_group(params, names)
        is_enabled = params.action == "enable"
        if params.group == CORE and not is_enabled:
            message = "The group core cannot be disabled: it has the tools that every task needs."
            raise refuse("invalid_input", "core_group", message, next_step="tools", tool="tools")
        if (params.group in k.groups) != is_enabled:
            k.state.session.groups[params.group] = is_enabled
            streams.announce(k, CHANGED["tools"], "tools")
    enabled = k.groups
    rows = [
        {"name": one.name, "enabled": one.name in enabled, "tools": list(one.tools), "about": one.about}
        for one in groups
        if params.action == "list" or one.name == params.group
    ]
    return {"groups": rows} if params.action == "list" else {"group": params.group, "groups": rows}


def _unknown_group(params: ToolsParams, names: tuple[str, ...]) -> ToolError:
    near = nearest(params.group, names)
    named = f"There is no group {params.group[:64]}" if params.group else f"{params.action} needs group"
    return refuse(
        "not_found" if params.group else "invalid_input",
        "unknown_group",
        f"{named}: one of {', '.join(names)}.",
        next_step=f"tools action={params.action} group={near}" if near else "tools",
        tool="tools",
    )


def _tools_summary(payload: Mapping[str, Any]) -> str:
    if "group" not in payload:
        return "groups of tools; action=enable group=NAME enables one"
    if payload["groups"][0]["enabled"]:
        return "{group} is enabled; call its tools by name if your client does not show them"
    return "{group} is disabled"


@cache
def _shapes() -> dict[str, Shape]:
    from perdure.present.shape import Field, Shape

    fault = (
        Field("class"),
        Field("code"),
        Field("generation", "count", full_only=True),
        Field("detail"),
        Field("hint", full_only=True),
    )
    row = (
        Field("name"),
        Field("state"),
        Field("generation", "count", full_only=True),
        Field("restarts", "count"),
        Field("circuit", full_only=True),
        Field("pid", full_only=True),
        Field("tools", "count"),
        Field("reason"),
        Field("rollout", full_only=True),
        Field("required", full_only=True),
        Field("changed", "json", full_only=True),
        Field("held", "json"),
        Field("notices", "json"),
        Field("untrusted", full_only=True),
        Field("last_fault", "record", columns=fault, full_only=True),
        Field("exit_code", full_only=True),
        Field("stderr", full_only=True),
    )
    waiting = (
        Field("path"),
        Field("changed", full_only=True),
        Field("starts", "json", full_only=True),
        Field("settings", "json", full_only=True),
        Field("problem", full_only=True),
        Field("todo"),
        Field("waits"),
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
    # What a reader asks first; the rest is for detail=full.
    brief = ("requests", "errors", "tool_errors", "replays")
    summed = tuple(Field(c.name, c.kind, full_only=c.name not in brief) for c in counters)
    times = tuple(
        Field(name, full_only=name not in ("p50", "p99")) for name in ("last", "mean", "p50", "p99", "max")
    )
    return {
        "health": Shape(
            "{state}  {mounts:server}  {restart_count:restart}  {pending} pending  workspace {workspace}  store {store}",
            (
                Field("state"),
                Field("workspace"),
                Field("store"),
                Field("uptime_ms", "count", quiet=True),
                Field("protocol", full_only=True),
                Field("generation", "count", full_only=True),
                Field("restart_count", "count"),
                Field("consecutive_failures", "count", full_only=True),
                Field("last_fault", "record", columns=fault, full_only=True),
                Field(
                    "file_faults",
                    "table",
                    columns=(Field("code"), Field("detail"), Field("hint", full_only=True)),
                ),
                Field("rollout", full_only=True),
                Field("pending", "count", full_only=True),
                Field("quarantined", "json", full_only=True),
                Field("mounts", "table", columns=row, words=_servers),
                Field(
                    "untrusted", "table", columns=waiting, words=lambda rows: [row["waits"] for row in rows]
                ),
            ),
        ),
        "telemetry": Shape(
            "{totals.requests:request}  {totals.errors:error}  {totals.tool_errors:tool error}  "
            "{totals.replays:replay}",
            (
                Field("totals", "record", columns=summed, quiet=True),
                Field(
                    "methods",
                    "table",
                    columns=(Field("method"), *summed, Field("latency_ms", "record", columns=times)),
                ),
            ),
        ),
        "mounts": Shape(
            lambda payload: _MOUNTS_SUMMARY[payload["action"]],
            (
                Field("action", quiet=True),
                Field("name", quiet=True),
                Field("mounts", "table", columns=row, words=_servers),
            ),
        ),
        "tools": Shape(
            _tools_summary,
            (
                Field("group"),
                Field(
                    "groups",
                    "table",
                    columns=(Field("name"), Field("enabled"), Field("tools", "items"), Field("about")),
                ),
            ),
        ),
    }


_MOUNTS_SUMMARY = {
    "list": "{mounts:server}",
    "restart": "restarting {name}",
    "enable": "enabled {name}",
    "disable": "disabled {name}",
}


def _servers(rows: list[dict[str, Any]]) -> list[str]:
    """Each server in words: its state, its tools, and what is wrong with it."""
    return [_server(row) for row in rows]


def _server(row: dict[str, Any]) -> str:
    tools = f"{row['tools']} tool{'' if row['tools'] == 1 else 's'}"
    restarts = f", {row['restarts']} restart{'' if row['restarts'] == 1 else 's'}" if row["restarts"] else ""
    held = f", held back for approval: {', '.join(row['held'])}" if row.get("held") else ""
    notices = "".join(f"; {notice}" for notice in row.get("notices", ()))
    reason = f": {row['reason']}" if row.get("reason") else ""
    return f"{row['name']} {row['state']}, {tools}{restarts}{held}{notices}{reason}"

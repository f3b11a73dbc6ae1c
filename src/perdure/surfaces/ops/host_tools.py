"""The tools that the host answers itself, in every phase: `health`, `telemetry`, `mounts`, `tools` (law 16)."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw

from perdure.kernel.catalog import HOST_MOUNT, ToolEntry
from perdure.kernel.context import Context
from perdure.kernel.events import Order
from perdure.kernel.internal_events import ToolGroupSet
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_tool, complete
from perdure.protocol.replay import CONVERGENT, NEVER
from perdure.protocol.tool_groups import CORE, nearest
from perdure.protocol.tools import ToolSpec, View, arg, public_definition
from perdure.surfaces.ops.health import health, mount_row, telemetry


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
    tools = []
    for spec in _SPECS.values():
        public = msgspec.json.encode(public_definition(spec))
        tools.append(ToolEntry(spec.name, HOST_MOUNT, spec.name, definition=public))
    return tuple(tools)


def call(k: Context, name: str, arguments: Raw | None) -> bytes:
    """One call from its raw arguments to its result; every failure is an envelope."""
    from perdure.present.normalize import arguments as read_arguments
    from perdure.present.normalize import presentation, strict_object
    from perdure.present.result import failure, success
    from perdure.surfaces.ops.shapes import result_shapes

    view = View(k.render, k.detail)  # type: ignore[arg-type]
    sent: dict[str, Any] = {}
    try:
        sent_arguments = strict_object(arguments) if arguments is not None else {}
        sent = sent_arguments
        view, sent = presentation(sent_arguments, view)
        params = read_arguments(_SPECS[name].params, sent)
        payload = _run(k, name, params)
        return msgspec.json.encode(success(payload, result_shapes()[name], view))
    except ToolError as error:
        context = error.envelope.context
        context = {"tool": name, **context, "next": complete(context["next"], name, sent)}
        return msgspec.json.encode(failure(msgspec.structs.replace(error.envelope, context=context), view))


def _run(k: Context, name: str, params: msgspec.Struct) -> dict[str, Any]:
    match params:
        case MountsParams():
            return _mounts(k, params)
        case ToolsParams():
            return _tools(k, params)
        case _:
            return health(k) if name == "health" else telemetry(k)


# --- mounts ----------------------------------------------------------------------------------------------------


def _mounts(k: Context, params: MountsParams) -> dict[str, Any]:
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
        k.emit(Order(params.name, params.action))
    rows = [mount_row(k, mount) for mount in k.state.mounts.values()]
    return {"action": params.action, "name": params.name, "mounts": rows}


def _unknown_mount(k: Context, params: MountsParams) -> ToolError:
    from difflib import get_close_matches

    names = sorted(k.state.mounts)
    near = get_close_matches(params.name, names, 1, 0.6) or (names if len(names) == 1 else [])
    missing = f"no server is named {params.name[:64]}" if params.name else f"{params.action} needs name"
    return refuse(
        "not_found",
        "unknown_mount",
        f"{missing}: one of {', '.join(names)}." if names else f"{missing}: this session has no server.",
        next_step=call_tool("mounts", action=params.action, name=near[0] if near else FILL),
        suggested_action="fix_syntax",
        mounts=names,
    )


# --- tools -----------------------------------------------------------------------------------------------------


def _tools(k: Context, params: ToolsParams) -> dict[str, Any]:
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
            k.emit(ToolGroupSet(params.group, is_enabled))
    enabled = k.groups
    rows = [
        {
            "name": group.name,
            "enabled": group.name in enabled,
            "tools": list(group.tools),
            "about": group.about,
        }
        for group in groups
        if params.action == "list" or group.name == params.group
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

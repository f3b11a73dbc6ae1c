"""Requests that a server must answer: to which one they go, under which name."""

from __future__ import annotations

from perdure.kernel import calls, client, server_requests, subscriptions, tasks
from perdure.kernel.catalog import HOST_MOUNT, ToolEntry
from perdure.kernel.client_requests import Incoming, Refusal, refuse_if_closing, reply, scalar, text
from perdure.kernel.context import Context
from perdure.kernel.state import Invocation
from perdure.kernel.task_frames import declares_tasks
from perdure.protocol import eras
from perdure.protocol.frames import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, members
from perdure.protocol.mounts import MountSpec
from perdure.protocol.tool_groups import GROUP_OF
from perdure.protocol.unknown_tools import describe_unknown


def _accept(k: Context, request: Incoming, mount: str, name: str) -> None:
    refuse_if_closing(k, request)
    level = scalar(request.meta.get(eras.META_LOG_LEVEL))
    call = Invocation(
        seq=k.mint(),
        public_id=request.id,
        method=request.method,
        params=request.raw,
        mount=mount,
        era=request.era,
        name=name,
        accepted_at=k.now,
        deadline=k.now,
        timeout=k.specs[mount].call_s,
        extra=request.extra,
        token=request.token,
    )
    if request.era == "modern":
        capabilities = request.meta[eras.META_CAPABILITIES]
        call.abilities = server_requests.abilities(bytes(capabilities))
        if declares_tasks(capabilities):
            call.abilities += (eras.TASKS,)
        if isinstance(level, str) and level in eras.LOG_LEVELS:
            call.log_level = level
            subscriptions.raise_level(k, mount, level)
    calls.accept(k, call)


def call_tool(k: Context, request: Incoming) -> None:
    name = text(request, "name")
    entry = _app_tool(k, name) or k.public.tool(name)
    if entry is None and (waiting := _untrusted_owner(k, name)) is not None:
        _accept(k, request, waiting.name, name.removeprefix(waiting.prefix))  # to be told why it is not there
        return
    if entry is None:
        raise Refusal(INVALID_PARAMS, describe_unknown(name, k.public.tool_names()))
    if entry.mount == HOST_MOUNT and k.host_tools is not None:
        reply(k, request, k.host_tools.call(k, name, request.params.get("arguments")))
    elif k.specs[entry.mount].builtin:
        _accept(k, request, entry.mount, name)  # the worker shapes results by the name it was called by
    else:
        _accept(k, request, entry.mount, entry.name)


def _app_tool(k: Context, name: str) -> ToolEntry | None:
    """The tool that an app calls by its server's own name for it: of the one server whose page the client has read.

    None for a name that is listed, or will be once the worker serves."""
    is_builtin = name in GROUP_OF and any(spec.builtin for spec in k.specs.values())
    if is_builtin or not k.state.session.apps or k.public.listed_name(name):
        return None
    offering = [m for m in k.state.session.apps if k.public.listed_name(k.specs[m].prefix + name)]
    if len(offering) > 1:
        names = " or ".join(k.specs[m].prefix + name for m in offering)
        message = f"apps of {' and '.join(offering)} are open that offer {name[:128]}: call {names}."
        raise Refusal(INVALID_PARAMS, message, {"mounts": offering})
    return k.public.tool(k.specs[offering[0]].prefix + name) if offering else None


def _untrusted_owner(k: Context, tool: str) -> MountSpec | None:
    """The server under whose name a tool would be, were it trusted."""
    specs = (spec for spec in k.specs.values() if spec.untrusted and spec.prefix)
    return next((spec for spec in specs if tool.startswith(spec.prefix)), None)


def resource(k: Context, request: Incoming) -> None:
    uri = text(request, "uri")
    owner = k.public.resource_owner(uri)
    if owner is None and client.may_find_owner(k, request):
        return
    if owner is None:
        code = INVALID_PARAMS if request.era == "modern" else eras.RESOURCE_NOT_FOUND
        message = f"no server here has the resource {uri[:200]}: resources/list names what there is."
        raise Refusal(code, message, {"uri": uri[:512]})
    if (
        request.method == "resources/subscribe"
        and len(k.state.session.subscriptions) >= k.limits.subscriptions
    ):
        most = k.limits.subscriptions
        raise Refusal(
            INVALID_REQUEST, f"{most} resources are subscribed to, which is the limit: unsubscribe from one."
        )
    _accept(k, request, owner, uri)


def prompt(k: Context, request: Incoming) -> None:
    name = text(request, "name")
    entry = k.public.prompt(name)
    if entry is None:
        raise Refusal(INVALID_PARAMS, f"no prompt {name[:64]} here: prompts/list names what there is.")
    _accept(k, request, *entry)


def complete(k: Context, request: Incoming) -> None:
    try:
        reference = members(request.params["ref"])
    except (KeyError, ValueError):
        raise Refusal(
            INVALID_PARAMS, "completion/complete needs ref: a prompt by its name, or a resource by its uri."
        ) from None
    name, uri = scalar(reference.get("name")), scalar(reference.get("uri"))
    target: tuple[str, str] | None = None
    if isinstance(name, str):
        target = k.public.prompt(name)
    elif isinstance(uri, str):
        owner = k.public.resource_owner(uri)
        target = (owner, "") if owner is not None else None
        if target is None and client.may_find_owner(k, request):
            return
    if target is None:
        raise Refusal(INVALID_PARAMS, "no server here has the prompt or the resource that ref names.")
    _accept(k, request, *target)


def task(k: Context, request: Incoming) -> None:
    """A request about a task: answered from its record, or by the server that has it."""
    if request.era == "handshake" and request.method == "tasks/update":
        unknown(k, request)
        return
    tasks.check_client(request)
    if request.method == "tasks/list":
        tasks.list_own(k, request)
        return
    running = tasks.answer(k, request, text(request, "taskId"))
    if running is not None:
        _accept(k, request, running.mount, running.handle)


def set_level(k: Context, request: Incoming) -> None:
    level = text(request, "level")
    if level not in eras.LOG_LEVELS:
        raise Refusal(INVALID_PARAMS, f"level must be one of {', '.join(eras.LOG_LEVELS)}.")
    if k.wrapped:
        _accept(k, request, next(iter(k.specs)), level)
        return
    k.state.session.log_level = level
    for mount in k.state.mounts.values():
        link = mount.serving_link()
        if link is not None:
            subscriptions.set_level(k, link, level)
    reply(k, request, b"{}")


def unknown(k: Context, request: Incoming) -> None:
    """A method the host does not know goes on untouched, where it is clear to whom."""
    chosen = scalar(request.meta.get("perdure/mount"))
    able = [spec.name for spec in k.specs.values() if not spec.builtin and not spec.untrusted]
    declaring = k.public.declaring(request.method) if len(able) > 1 else []
    if isinstance(chosen, str) and chosen in k.specs:
        _accept(k, request, chosen, "")
    elif len(able) == 1:
        _accept(k, request, able[0], "")
    elif len(declaring) == 1:
        _accept(k, request, declaring[0], "")
    elif declaring:
        names = " and ".join(declaring)
        message = f"{names} offer {request.method[:128]}: name one of them in _meta as perdure/mount."
        raise Refusal(INVALID_PARAMS, message, {"mounts": declaring})
    else:
        method = request.method[:128]
        raise Refusal(METHOD_NOT_FOUND, f"no method {method} here.", {"method": method})

"""What the host was told: options, then environment, then the workspace's file, then the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from perdure.host.settings_file import (
    FILE_NAME,
    FileSettings,
    SettingsError,
    Timeouts,
    check_mount,
    collector,
    file_mounts,
    limits_of,
    read_file,
    report,
    split_command,
    split_names,
    user_file,
)
from perdure.host.workspace_settings import read_workspace_settings
from perdure.protocol.eras import LOG_LEVELS
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import Limits
from perdure.protocol.tool_groups import PROFILES, Profile, unknown_tool
from perdure.storage.state_limits import StateLimits
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.retention_limits import Keep
from perdure.workspace.timeline.settings import TimelineSettings


class Settings(msgspec.Struct, frozen=True):
    """Everything settled. Paths are absolute."""

    workspaces: tuple[str, ...]
    registry: str | None = None
    state: str | None = None
    render: Literal["porcelain", "json"] = "porcelain"
    detail: Literal["concise", "full"] = "concise"
    surfaces: tuple[str, ...] = ("write", "state")
    tools: tuple[str, ...] = ()
    profile: Profile = "full"
    policy: str | None = None
    durability: Literal["journal", "strict"] = "journal"
    store: Literal["data", "workspace"] = "data"
    log_level: str = "warning"
    log_format: Literal["text", "json"] = "text"
    otel: str | None = None
    mounts: dict[str, tuple[str, ...]] = {}
    """As typed."""
    file_mounts: dict[str, tuple[str, ...]] = {}
    """`[mounts]` of the user's file, and of the workspace's once it is trusted. They come and go with the files."""
    mount_env: dict[str, tuple[str, ...]] = {}
    timeouts: Timeouts = Timeouts()
    keep: Keep = Keep()
    timeline: TimelineSettings = TimelineSettings()
    reservations: ReservationSettings = ReservationSettings()
    state_limits: StateLimits = StateLimits()
    limits: Limits = Limits()
    faults: tuple[Fault, ...] = ()
    """What was left out because its file cannot be read so. Only a host, or a worker, goes on without it."""
    workspace_registry: str | None = None
    """What the workspace's trusted file names; `registry` is what the user named."""
    workspace_policy: str | None = None
    """What the workspace's file is or names; `policy` is what the user typed."""
    user_policy: str | None = None
    settings_root: str = ""
    """Where the workspace's settings file is, if not in the first workspace."""
    typed: dict[str, Any] = {}
    """The options, to settle everything anew when a file was trusted."""


def load(
    given: Mapping[str, Any], environ: Mapping[str, str], *, leave_out_faults: bool = False, here: str = "."
) -> Settings:
    """Settle every name. `given` holds the options as parsed, None where one was not given. `here` is the workspace
    where neither an option nor the environment names one.

    Raises SettingsError. With `leave_out_faults` what is wrong in a file is left out and listed in `faults` instead:
    a file that is edited while a session runs, or is about to begin, must not end it.
    """
    faults: list[Fault] | None = [] if leave_out_faults else None
    workspaces = _workspaces(given.get("workspace"), environ, here)
    user_path = user_file(environ)
    user = read_file(user_path, faults)
    ours = read_workspace_settings(os.path.join(workspaces[0], FILE_NAME), user_path, user, faults)
    files = [ours.counting, user]
    if given.get("workspace") is None and not (
        environ.get("PERDURE_WORKSPACE") or environ.get("RW_WORKSPACE")
    ):
        named = ((ours.path, ours.counting.workspace), (user_path, user.workspace))
        path, listed = next(((path, listed) for path, listed in named if listed is not None), ("", []))
        try:
            if listed:
                workspaces = _absolute(listed if isinstance(listed, list) else [listed], workspaces[0])
        except SettingsError as error:
            report(f"{path}: {error}", faults)
    found: dict[str, Any] = {"workspaces": workspaces, "typed": _typed(given)}
    if (root := os.path.dirname(ours.path)) != workspaces[0]:
        found["settings_root"] = root
    for name, variables in _VARIABLES.items():
        value = given.get(name)
        if value is None:
            value = next((environ[v] for v in variables if environ.get(v)), None)
        base = os.getcwd() if value is not None else workspaces[0]
        if value is None:
            value = next((v for f in files if (v := getattr(f, name)) is not None), None)
        if value is not None and name == "state":
            value = _state_place(value, base)
        if value is not None:
            found[name] = split_names(value) if name in ("surfaces", "tools") else value
    found["policy"] = _policy(given.get("policy"), environ, workspaces[0])
    found["workspace_policy"] = _policy_of(ours.path, ours.counting)
    found["user_policy"] = _policy_of(user_path, user)
    if ours.written.store is not None and ours.written is not user:
        report(f"{ours.path}: store counts only in your own settings, {user_path}", faults)
    found["store"] = user.store or "data"
    _set_registry(found, given, environ, (root, ours.counting), user_path)
    found["mounts"] = _mounts(given.get("mount") or [])
    found["file_mounts"] = {**file_mounts(user), **file_mounts(ours.counting)}
    found["mount_env"] = _mount_env(given.get("mount_env") or [], files, found["mounts"])
    found["timeouts"] = next((f.timeouts for f in files if f.timeouts is not None), Timeouts())
    found["keep"] = next((f.keep for f in files if f.keep is not None), Keep())
    found["timeline"] = next((f.timeline for f in files if f.timeline is not None), TimelineSettings())
    found["reservations"] = next(
        (f.reservations for f in files if f.reservations is not None), ReservationSettings()
    )
    found["state_limits"] = next((f.state_limits for f in files if f.state_limits is not None), StateLimits())
    found["limits"] = limits_of(files)
    if (task_after := given.get("task_after")) is not None:
        found["limits"] = msgspec.structs.replace(found["limits"], task_after_s=task_after)
    found["faults"] = tuple(faults or ())
    if "otel" in found:
        found["otel"] = collector(found["otel"])
    if found.get("log_level", LOG_LEVELS[0]) not in LOG_LEVELS:
        raise SettingsError(f"log-level: {found['log_level']}: one of {', '.join(LOG_LEVELS)}")
    if (problem := unknown_tool(found.get("tools", ()))) is not None:
        raise SettingsError(f"tools: {problem}")
    if found.get("profile", PROFILES[0]) not in PROFILES:
        raise SettingsError(f"profile: {found['profile']}: one of {', '.join(PROFILES)}")
    try:
        return msgspec.convert(found, type=Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error)) from None


_VARIABLES = {
    "registry": ("PERDURE_REGISTRY",),
    "state": ("PERDURE_STATE", "CHECKPOINT_DB_PATH"),
    "render": ("PERDURE_RENDER",),
    "detail": ("PERDURE_DETAIL",),
    "surfaces": ("PERDURE_SURFACES",),
    "tools": ("PERDURE_TOOLS",),
    "profile": ("PERDURE_PROFILE",),
    "durability": ("PERDURE_DURABILITY",),
    "log_level": ("PERDURE_LOG_LEVEL",),
    "log_format": ("PERDURE_LOG_FORMAT",),
    "otel": ("PERDURE_OTEL",),
}


def _state_place(value: str, base: str) -> str | None:
    """A URL as it is, a path made absolute; an empty one is none at all."""
    if "://" in value or value in ("", "memory:"):
        return value or None
    return os.path.join(base, os.path.expanduser(value))


def _policy(given: str | None, environ: Mapping[str, str], workspace: str) -> str | None:
    """The policy that the user typed, absolute.

    RW_POLICY_FILE may name a file that is not there: then the defaults count.
    """
    if named := given or environ.get("PERDURE_POLICY"):
        return os.path.abspath(named)
    if named := environ.get("RW_POLICY_FILE"):
        return os.path.join(workspace, named)
    return None


def _policy_of(path: str, file: FileSettings) -> str | None:
    """The file of the policy, absolute; a table `[policy]` stands in its settings file."""
    if file.policy is None:
        return None
    named = file.policy if isinstance(file.policy, str) else path
    return os.path.normpath(os.path.join(os.path.dirname(path), named))


def _set_registry(
    found: dict[str, Any],
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    ours: tuple[str, FileSettings],
    user_path: str,
) -> None:
    """A registry that a file names is relative to that file. What the user typed stays as it is."""
    if found.get("registry") is None or given.get("registry") or environ.get("PERDURE_REGISTRY"):
        return
    root, workspace = ours
    if workspace.registry is not None:
        found["workspace_registry"] = _beside(root, workspace.registry)
        del found["registry"]
    else:
        found["registry"] = _beside(os.path.dirname(user_path), found["registry"])


def _beside(folder: str, named: str) -> str:
    return named if "://" in named else os.path.normpath(os.path.join(folder, os.path.expanduser(named)))


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    names = (*_VARIABLES, "workspace", "policy", "mount", "mount_env", "task_after")
    return {name: given[name] for name in names if given.get(name) is not None}


def _workspaces(given: list[str] | None, environ: Mapping[str, str], here: str) -> tuple[str, ...]:
    named = given
    if not named:
        value = environ.get("PERDURE_WORKSPACE") or environ.get("RW_WORKSPACE") or ""
        named = _listed(value)
    return _absolute(named or [here], os.getcwd())


def _listed(value: str) -> list[str]:
    """Several paths in one variable: parted like PATH, or a JSON list."""
    if value.startswith("["):
        try:
            return msgspec.json.decode(value, type=list[str])
        except msgspec.MsgspecError:
            raise SettingsError("RW_WORKSPACE: neither a path nor a JSON list of paths") from None
    return [part for part in value.split(os.pathsep) if part]


def _absolute(paths: list[str], base: str) -> tuple[str, ...]:
    found = tuple(os.path.realpath(os.path.join(base, path)) for path in paths)
    for path in found:
        if not os.path.isdir(path):
            raise SettingsError(f"workspace {path} is not a directory")
    return found


def _mounts(given: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, command = text.partition("=")
        if not equals:
            raise SettingsError(f"--mount {text}: expected NAME='COMMAND ARGS'")
        if name in found:
            raise SettingsError(f"--mount {name}: named twice")
        found[name] = split_command(name, command)
        check_mount(name, found[name])
    return found


def _mount_env(
    given: list[str], files: list[FileSettings], mounts: Mapping[str, object]
) -> dict[str, tuple[str, ...]]:
    """The variables that mounts get besides the usual few: `--mount-env NAME=VAR,VAR`, then `[mount-env]`."""
    found = {name: split_names(value) for file in reversed(files) for name, value in file.mount_env.items()}
    typed: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, variables = text.partition("=")
        if not equals or not split_names(variables):
            raise SettingsError(f"--mount-env {text}: expected NAME=VARIABLE[,VARIABLE…]")
        if name not in mounts:
            raise SettingsError(f"--mount-env {name}: there is no --mount of this name")
        typed[name] = (*typed.get(name, ()), *split_names(variables))
    return {**found, **typed}

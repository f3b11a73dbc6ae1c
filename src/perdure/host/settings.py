"""What the host was told: options, then environment, then the workspace's file, then the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from perdure.host.serve_options import ServeFile, ServeLimits
from perdure.host.workspace_settings import read_workspace_settings
from perdure.protocol.eras import LOG_LEVELS
from perdure.protocol.faults import Fault, printable
from perdure.protocol.mount_names import RESERVED
from perdure.protocol.mounts import Limits
from perdure.protocol.tool_groups import PROFILES, Profile, unknown_tool
from perdure.storage.files.bounded_read import read_bounded
from perdure.storage.state_limits import StateLimits
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.retention_limits import Keep
from perdure.workspace.timeline.settings import TimelineSettings

FILE_NAME = "perdure.toml"
MOST_BYTES = 1024 * 1024
SURFACES = ("write", "state")

Duration = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class SettingsError(ValueError):
    """A setting that cannot be meant, said with its place."""


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    startup: Duration = 30.0
    call: Duration = 300.0
    idle: Duration = 600.0


class FileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """`perdure.toml`: the names of the options, plus mounts, timeouts, limits and what is kept.

    `mount-env` names the variables that a mount gets besides the usual few."""

    workspace: list[str] | str | None = None
    registry: str | None = None
    state: str | None = None
    render: Literal["porcelain", "json"] | None = None
    detail: Literal["concise", "full"] | None = None
    surfaces: list[str] | str | None = None
    tools: list[str] | str | None = None
    profile: Profile | None = None
    policy: str | dict[str, Any] | None = None
    durability: Literal["journal", "strict"] | None = None
    store: Literal["data", "workspace"] | None = None
    log_level: str | None = None
    log_format: Literal["text", "json"] | None = None
    otel: str | None = None
    mounts: dict[str, str | list[str]] = {}
    mount_env: dict[str, list[str] | str] = {}
    timeouts: Timeouts | None = None
    keep: Keep | None = None
    timeline: TimelineSettings | None = None
    reservations: ReservationSettings | None = None
    state_limits: StateLimits | None = None
    limits: dict[str, float] = {}
    serve: ServeFile | None = None


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
    found["limits"] = _limits(files)
    found["faults"] = tuple(faults or ())
    if "otel" in found:
        found["otel"] = _collector(found["otel"])
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


def _collector(value: str) -> str | None:
    """Where telemetry goes: a URL, or wherever the standard variables say."""
    if value.lower() in ("", "0", "off", "false", "no"):
        return None
    if value.lower() in ("1", "on", "true", "yes"):
        return "on"
    if not value.startswith(("http://", "https://")):
        raise SettingsError(f"otel: {value}: the URL of a collector, or on")
    return value


def _state_place(value: str, base: str) -> str | None:
    """A URL as it is, a path made absolute; an empty one is none at all."""
    if "://" in value or value in ("", "memory:"):
        return value or None
    return os.path.join(base, os.path.expanduser(value))


def user_file(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "perdure", FILE_NAME)


def read_file(path: str, faults: list[Fault] | None = None) -> FileSettings:
    """A settings file, or none. See `parse_file`."""
    try:
        content = read_bounded(path, MOST_BYTES)
    except FileNotFoundError:
        return FileSettings()
    except OSError as error:
        report(f"{path}: {error.strerror or 'cannot be read'}", faults)
        return FileSettings(policy={})
    return parse_file(path, content, faults)


def parse_file(path: str, content: bytes, faults: list[Fault] | None = None) -> FileSettings:
    """What a settings file says. An unknown key or a bad value is an error with its place.

    Given `faults`, errors are added to them, and only what they are about is left out. A file whose policy cannot be
    read stands for a policy that cannot be read: what it would forbid must not be allowed instead.
    """
    try:
        text, values = _parsed(path, content)
    except SettingsError as error:
        report(str(error), faults)
        return FileSettings(policy={})
    sound: dict[str, Any] = {}
    for key, value in values.items():
        members = value.items() if key in ("mounts", "limits") and isinstance(value, dict) else None
        for name, one in members or [("", value)]:
            problem = _problem({key: one if members is None else {name: one}})
            if problem is None:
                sound[key] = one if members is None else {**sound.get(key, {}), name: one}
            else:
                report(f"{path}, line {_line(text, problem, key, name)}: {problem}", faults)
    if "policy" in values and "policy" not in sound:
        sound["policy"] = {}
    return msgspec.convert(sound, type=FileSettings)


def report(problem: str, faults: list[Fault] | None) -> None:
    if faults is None:
        raise SettingsError(problem)
    faults.append(
        Fault("resource", "bad_settings", 0, printable(problem), "it is left out until the next start")
    )


def _parsed(path: str, data: bytes) -> tuple[str, dict[str, Any]]:
    """The text and its values. Raises SettingsError with the line."""
    import re
    import tomllib

    try:
        text = data.decode()
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}, line {line}: it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = int(place[1]) if place is not None and place[1] else text.count("\n") + 1
        what = str(error)[: place.start()] if place is not None else str(error)
        raise SettingsError(f"{path}, line {line}: {what}") from None
    except RecursionError:
        raise SettingsError(f"{path}, line {_deep_line(text)}: nested too deeply") from None
    except ValueError:  # what the parser lets through: a number with thousands of digits
        number = re.search(r"[0-9_]{4000}", text)
        line = text.count("\n", 0, number.start() if number is not None else 0) + 1
        raise SettingsError(f"{path}, line {line}: a number has too many digits") from None


def _deep_line(text: str) -> int:
    """The line with the most opening brackets, of a text that is nested too deeply for the parser."""
    lines = text.split("\n")
    return 1 + max(range(len(lines)), key=lambda number: lines[number].count("[") + lines[number].count("{"))


def _problem(part: dict[str, Any]) -> str | None:
    """What is wrong with one key of a file and its value."""
    try:
        file = msgspec.convert(part, type=FileSettings)
        _limits([file])
        file_mounts(file)
        if file.otel is not None:
            _collector(file.otel)
        if file.serve is not None:
            _serve_limits(file.serve)
    except (msgspec.ValidationError, SettingsError) as error:
        return str(error)
    except RecursionError:
        return f"{next(iter(part))}: nested too deeply"
    if file.log_level is not None and file.log_level not in LOG_LEVELS:
        return f"one of {', '.join(LOG_LEVELS)} - at `$.log-level`"
    if unknown := [name for name in split_names(file.surfaces or ()) if name not in SURFACES]:
        return f"no surface {unknown[0]}; there are {', '.join(SURFACES)} - at `$.surfaces`"
    if (problem := unknown_tool(split_names(file.tools or ()))) is not None:
        return f"{problem} - at `$.tools`"
    return None


def _line(text: str, error: str, *path: str) -> int:
    """Where the key that an error speaks of is written, or else this path."""
    import re

    from perdure.text.toml_lines import find_key_line

    steps = re.findall(r"\.([^.\[\]`]+)", error.partition(" - at ")[2])
    steps += re.findall(r"unknown field `([^`]*)`", error)
    return find_key_line(text, steps if len(steps) >= sum(map(bool, path)) else path)


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
    names = (*_VARIABLES, "workspace", "policy", "mount", "mount_env")
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


def split_names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _mounts(given: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, command = text.partition("=")
        if not equals:
            raise SettingsError(f"--mount {text}: expected NAME='COMMAND ARGS'")
        if name in found:
            raise SettingsError(f"--mount {name}: named twice")
        found[name] = split_command(name, command)
        _check_mount(name, found[name])
    return found


def file_mounts(file: FileSettings) -> dict[str, tuple[str, ...]]:
    """`[mounts]`, as command lines."""
    found = {
        name: split_command(name, line) if isinstance(line, str) else tuple(line)
        for name, line in file.mounts.items()
    }
    for name, argv in found.items():
        _check_mount(name, argv)
    return found


def _check_mount(name: str, argv: tuple[str, ...]) -> None:
    if not name.replace("-", "_").replace(".", "_").isidentifier() or "__" in name or name in RESERVED:
        raise SettingsError(f"mount {name!r}: not a usable name")
    if not argv:
        raise SettingsError(f"mount {name}: no command")


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


def split_command(name: str, command: str) -> tuple[str, ...]:
    """Words as a shell would split them; nothing is ever run through one."""
    import shlex

    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise SettingsError(f"mount {name}: {error}") from None


def _serve_limits(serve: ServeFile) -> None:
    try:
        msgspec.convert(serve.limits, type=ServeLimits, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace("`$.", "`$.serve.limits.")) from None


def _limits(files: list[FileSettings]) -> Limits:
    merged: dict[str, float] = {}
    for file in reversed(files):
        merged.update(file.limits)
    known = {field.name: field.type for field in msgspec.structs.fields(Limits)}
    for name in merged:
        if name not in known:
            raise SettingsError(f"no such limit - at `$.limits.{name}`")
    try:
        return msgspec.convert(merged, type=Limits, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace("`$.", "`$.limits.")) from None

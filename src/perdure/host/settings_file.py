"""`perdure.toml`: its keys, and reading one with the place of every mistake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from perdure.host.serve_options import ServeFile, ServeLimits
from perdure.protocol.eras import LOG_LEVELS
from perdure.protocol.faults import Fault, printable
from perdure.protocol.mount_names import RESERVED
from perdure.protocol.mounts import Limits
from perdure.protocol.tool_groups import Profile, unknown_tool
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


def collector(value: str) -> str | None:
    """Where telemetry goes: a URL, or wherever the standard variables say."""
    if value.lower() in ("", "0", "off", "false", "no"):
        return None
    if value.lower() in ("1", "on", "true", "yes"):
        return "on"
    if not value.startswith(("http://", "https://")):
        raise SettingsError(f"otel: {value}: the URL of a collector, or on")
    return value


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
        limits_of([file])
        file_mounts(file)
        if file.otel is not None:
            collector(file.otel)
        if file.serve is not None:
            _check_serve(file.serve)
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


def split_names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(str(part).strip() for part in parts if str(part).strip())


def file_mounts(file: FileSettings) -> dict[str, tuple[str, ...]]:
    """`[mounts]`, as command lines."""
    found = {
        name: split_command(name, line) if isinstance(line, str) else tuple(line)
        for name, line in file.mounts.items()
    }
    for name, argv in found.items():
        check_mount(name, argv)
    return found


def check_mount(name: str, argv: tuple[str, ...]) -> None:
    if not name.replace("-", "_").replace(".", "_").isidentifier() or "__" in name or name in RESERVED:
        raise SettingsError(f"mount {name!r}: not a usable name")
    if not argv:
        raise SettingsError(f"mount {name}: no command")


def split_command(name: str, command: str) -> tuple[str, ...]:
    """Words as a shell would split them; nothing is ever run through one."""
    import shlex

    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise SettingsError(f"mount {name}: {error}") from None


def _check_serve(serve: ServeFile) -> None:
    try:
        msgspec.convert(serve.limits, type=ServeLimits, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace("`$.", "`$.serve.limits.")) from None


def limits_of(files: list[FileSettings]) -> Limits:
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

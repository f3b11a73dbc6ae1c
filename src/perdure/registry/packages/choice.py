"""A record's ways to run, in order: its packages as they stand, then its remote endpoints.

Every way is either a plan or a reason why not. The first plan whose runner is on this machine is taken; where none
is, the first, so that the user learns what to install.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator
from typing import Final

from perdure.registry.catalog.records import Endpoint, Package, Record
from perdure.registry.http.address import InvalidAddress, check_address, read_address
from perdure.registry.packages import runners
from perdure.registry.packages.aliases import short_name
from perdure.registry.packages.launch_plan import (
    ArgGroup,
    Naming,
    NotRunnable,
    Plan,
    TextTemplate,
    environment_text,
    header_text,
    url_text,
)

KINDS: Final = ("npm", "pypi", "oci", "nuget", "mcpb", "remote")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_ENV_NAME: Final = re.compile(r"[^\s=,\"'\x00-\x1f]+")
_SYSTEMS: Final = {
    "darwin": ("darwin", "macos", "osx", "mac"),
    "win32": ("windows", "win", "win32", "win64", "exe"),
    "linux": ("linux",),
}
_MACHINES: Final = {"x86_64": ("amd64", "x64", "x86_64"), "aarch64": ("arm64", "aarch64")}


def plans(record: Record) -> Iterator[Plan | NotRunnable]:
    """Every way, or why it is none."""
    for package in record.packages:
        yield _tried(lambda package=package: _package(record, package))  # type: ignore[misc]
    for remote in record.remotes:
        yield _tried(lambda remote=remote: _remote(record, remote))  # type: ignore[misc]
    if not record.packages and not record.remotes:
        yield NotRunnable(f"{record.name} {record.version} names neither a package nor a remote endpoint")


def choose(record: Record, is_there: Callable[[str], bool], kind: str = "") -> Plan:
    """The way to take. Raises NotRunnable with every reason."""
    if record.status == "deleted":
        raise NotRunnable(f"{record.name} {record.version} was deleted from the catalog", entry=record.name)
    found = list(plans(record))
    ways = [one for one in found if isinstance(one, Plan) and kind in ("", one.kind)]
    if not ways:
        reasons = [str(one) for one in found if isinstance(one, NotRunnable)]
        if kind and len(reasons) < len(found):
            reasons.append(f"there is no {kind} among its ways to run")
        raise NotRunnable(
            f"{record.name} {record.version} cannot be run: {'; '.join(dict.fromkeys(reasons))}",
            entry=record.name,
        )
    return next((one for one in ways if not one.command or is_there(one.command)), ways[0])


def _tried(make: Callable[[], Plan]) -> Plan | NotRunnable:
    try:
        return make()
    except NotRunnable as reason:
        return reason


def _package(record: Record, package: Package) -> Plan:
    kind = package.registry_type
    if kind not in KINDS or kind == "remote":
        raise NotRunnable(f"there is no runner for a package of the kind {kind}")
    if package.endpoint.type != "stdio":
        raise NotRunnable(f"its {kind} package listens on a port of its own ({package.endpoint.type})")
    naming = Naming(short_name(record.name))
    env = {
        one.name: environment_text(one, naming)
        for one in package.environment
        if _ENV_NAME.fullmatch(one.name)
    }
    if kind == "mcpb":
        return _bundle(record, package, env)
    notes: list[str] = []
    match kind:
        case "npm":
            command, spec, words = runners.npm(package, naming)
        case "pypi":
            command, spec, words = runners.pypi(package, naming)
        case "oci":
            command, spec, words = runners.oci(package, naming, env)
            if powers := runners.docker_powers(words):
                notes.append(f"its container asks for more than its own: {', '.join(powers)}")
        case _:
            command, spec, words = runners.nuget(package, naming)
    last = "--" if kind == "nuget" else spec  # behind it everything is the package's own
    at = next((number for number, one in enumerate(words) if last in _plain(one)), len(words))
    if kind != "oci" and (places := runners.elsewhere(words[:at])):
        notes.append(f"its packages come from a place of its own: {', '.join(places)}")
    return Plan(
        name=record.name,
        version=record.version,
        kind=kind,
        package=f"{kind}:{spec}",
        spec=spec,
        title=record.title,
        description=record.description,
        command=command,
        words=tuple(words),
        env=env,
        notes=tuple(notes),
    )


def _plain(words: ArgGroup) -> list[str]:
    return [part for text in words.texts for part in text.parts if isinstance(part, str)]


def _bundle(record: Record, package: Package, env: dict[str, TextTemplate]) -> Plan:
    if foreign := _made_for_another(package):
        raise NotRunnable(f"its bundle is made for {foreign}")
    return Plan(
        name=record.name,
        version=record.version,
        kind="mcpb",
        package=f"mcpb:{package.identifier}",
        title=record.title,
        description=record.description,
        words=tuple(runners.words_of(package.package_arguments, Naming(short_name(record.name)))),
        env=env,
        bundle=runners.bundle(package),
    )


def _remote(record: Record, remote: Endpoint) -> Plan:
    if remote.type not in ("streamable-http", "sse"):
        raise NotRunnable(f"its remote endpoint speaks {remote.type}, which nobody here does")
    naming = Naming(short_name(record.name))
    url = url_text(remote.url, remote.variables, naming)
    if not url.parts or isinstance(url.parts[0], str):
        try:
            filled = "".join(part if isinstance(part, str) else "x" for part in url.parts)
            check_address(read_address(filled), allow_http=False)
        except InvalidAddress as error:
            raise NotRunnable(f"its remote endpoint cannot be used: {error.message}") from None
    headers = {one.name: header_text(one, naming) for one in remote.headers if _HEADER.fullmatch(one.name)}
    return Plan(
        name=record.name,
        version=record.version,
        kind="remote",
        package=f"remote:{remote.url}",
        title=record.title,
        description=record.description,
        transport="sse" if remote.type == "sse" else "streamable-http",
        url=url,
        headers=headers,
    )


def _made_for_another(package: Package) -> str:
    """The system that a file's name, or the hint beside it, is made for, where that is not this one."""
    said = f"{package.identifier.rpartition('/')[2]} {package.runtime_hint}".lower()
    words = set(re.split(r"[^a-z0-9]+", said)) | ({"x86_64"} if "x86_64" in said else set())
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    for named, ours in ((_SYSTEMS, sys.platform), (_MACHINES, machine)):
        told = [name for name, other in named.items() if words & set(other)]
        if told and ours not in told:
            return told[0]
    return ""

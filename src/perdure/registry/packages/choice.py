"""A record's ways to run, in order: its packages as listed, then its remote endpoints.

Each way is a plan or a reason why not. The first plan whose runner is on this machine is taken; if there is none, the first
plan, so that the user learns what to install.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import structs

from perdure.registry.catalog.records import Endpoint, Package, Record
from perdure.registry.entry import HEADER_NAME, VARIABLE_NAME
from perdure.registry.http.address import InvalidAddress, check_address, read_address
from perdure.registry.packages import runners
from perdure.registry.packages.aliases import short_name
from perdure.registry.packages.launch_plan import Inputs, NotRunnable, Plan
from perdure.registry.templates import Literal, Template

KINDS: Final = ("npm", "pypi", "oci", "nuget", "mcpb", "remote")
_SYSTEMS: Final = {
    "darwin": ("darwin", "macos", "osx", "mac"),
    "win32": ("windows", "win", "win32", "win64", "exe"),
    "linux": ("linux",),
}
_MACHINES: Final = {"x86_64": ("amd64", "x64", "x86_64"), "aarch64": ("arm64", "aarch64")}


def plans(record: Record) -> Iterator[Plan | NotRunnable]:
    """Every way to run, or why it is none."""
    ways: tuple[Package | Endpoint, ...] = (*record.packages, *record.remotes)
    for way in ways:
        try:
            yield _package(record, way) if isinstance(way, Package) else _remote(record, way)
        except NotRunnable as reason:
            yield reason
    if not ways:
        yield NotRunnable(f"{record.name} {record.version} names neither a package nor a remote endpoint")


def choose(record: Record, is_installed: Callable[[str], bool], kind: str = "") -> Plan:
    """Raises NotRunnable with every reason."""
    if record.status == "deleted":
        raise NotRunnable(f"{record.name} {record.version} was deleted from the catalog", entry=record.name)
    ways = list(plans(record))
    usable = [way for way in ways if isinstance(way, Plan) and kind in ("", way.kind)]
    if not usable:
        reasons = [str(way) for way in ways if isinstance(way, NotRunnable)]
        if kind and len(reasons) < len(ways):
            reasons.append(f"there is no {kind} among its ways to run")
        raise NotRunnable(
            f"{record.name} {record.version} cannot be run: {'; '.join(dict.fromkeys(reasons))}",
            entry=record.name,
        )
    return next((plan for plan in usable if not plan.command or is_installed(plan.command)), usable[0])


def _plan(record: Record, inputs: Inputs, **fields: Any) -> Plan:
    """With the prompts of the inputs that its texts refer to, in their order."""
    plan = Plan(
        name=record.name,
        version=record.version,
        title=record.title,
        description=record.description,
        **fields,
    )
    texts = [text for group in plan.words for text in (Template(f"${group.switch}"), *group.texts)]
    texts += [*plan.env.values(), *([plan.url] if plan.url is not None else []), *plan.headers.values()]
    variables = dict.fromkeys(reference.variable for text in texts for reference in text.references())
    return structs.replace(plan, prompts={variable: inputs.prompts[variable] for variable in variables})


def _package(record: Record, package: Package) -> Plan:
    kind = package.registry_type
    if kind not in KINDS or kind == "remote":
        raise NotRunnable(f"there is no runner for a package of the kind {kind}")
    if package.endpoint.type != "stdio":
        raise NotRunnable(f"its {kind} package listens on a port of its own ({package.endpoint.type})")
    inputs = Inputs(short_name(record.name))
    env = inputs.environment(
        variable for variable in package.environment if VARIABLE_NAME.fullmatch(variable.name)
    )
    notes: list[str] = []
    match kind:
        case "mcpb":
            return _bundle(record, package, inputs, env)
        case "npm":
            command, spec, words = runners.npm(package, inputs)
        case "pypi":
            command, spec, words = runners.pypi(package, inputs)
        case "oci":
            command, spec, words = runners.oci(package, inputs, env)
            if powers := runners.docker_powers(words):
                notes.append(f"its container asks for more than its own: {', '.join(powers)}")
        case _:
            command, spec, words = runners.nuget(package, inputs)
    if kind != "oci":
        # Everything after the package, or after nuget's `--`, is the package's own.
        end = Template.literal("--" if kind == "nuget" else spec)
        at = next((number for number, group in enumerate(words) if end in group.texts), len(words))
        if options := runners.index_options(words[:at]):
            notes.append(f"its packages come from a place of its own: {', '.join(options)}")
    return _plan(
        record,
        inputs,
        kind=kind,
        package=f"{kind}:{spec}",
        spec=spec,
        command=command,
        words=tuple(words),
        env=env,
        notes=tuple(notes),
    )


def _bundle(record: Record, package: Package, inputs: Inputs, env: dict[str, Template]) -> Plan:
    if system := _foreign_system(package):
        raise NotRunnable(f"its bundle is made for {system}")
    return _plan(
        record,
        inputs,
        kind="mcpb",
        package=f"mcpb:{package.identifier}",
        words=tuple(inputs.arguments(package.package_arguments)),
        env=env,
        bundle=runners.bundle(package),
    )


def _remote(record: Record, remote: Endpoint) -> Plan:
    if remote.type not in ("streamable-http", "sse"):
        raise NotRunnable(f"its remote endpoint speaks {remote.type}, which is not supported")
    inputs = Inputs(short_name(record.name))
    url = inputs.url(remote.url, remote.variables)
    if not url.parts or isinstance(url.parts[0], Literal):
        try:
            example = "".join(part.text if isinstance(part, Literal) else "x" for part in url.parts)
            check_address(read_address(example), allow_http=False)
        except InvalidAddress as error:
            raise NotRunnable(f"its remote endpoint cannot be used: {error.message}") from None
    headers = {
        header.name: inputs.header(header) for header in remote.headers if HEADER_NAME.fullmatch(header.name)
    }
    return _plan(
        record,
        inputs,
        kind="remote",
        package=f"remote:{remote.url}",
        transport="sse" if remote.type == "sse" else "streamable-http",
        url=url,
        headers=headers,
    )


def _foreign_system(package: Package) -> str:
    """The system that a bundle is made for, by the name of its file and its hint; empty if it may be this one."""
    hint = f"{package.identifier.rpartition('/')[2]} {package.runtime_hint}".lower()
    words = set(re.split(r"[^a-z0-9]+", hint)) | ({"x86_64"} if "x86_64" in hint else set())
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    for names, ours in ((_SYSTEMS, sys.platform), (_MACHINES, machine)):
        named = [system for system, spellings in names.items() if words & set(spellings)]
        if named and ours not in named:
            return named[0]
    return ""

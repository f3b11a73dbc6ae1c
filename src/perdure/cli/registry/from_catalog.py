"""`perdure registry install --from`: a server of a catalog, in one exact version, with its inputs.

On a terminal the user is asked for required inputs. Elsewhere a required input becomes a reference to the variable of its
name. Secrets are always references: the user is asked for the name of a variable.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import structs

from perdure.cli.registry.shared import backend_of, check_can_start, place_of, print_result, warn
from perdure.registry.backend import Backend
from perdure.registry.catalog.catalogs import Catalog, open_catalog
from perdure.registry.catalog.records import Record
from perdure.registry.entry import Entry, Provenance, check_name
from perdure.registry.errors import AlreadyInstalled, InputRequired, InvalidEntry, RegistryError
from perdure.registry.packages.aliases import alias
from perdure.registry.packages.choice import choose
from perdure.registry.packages.launch_plan import InputPrompt, Plan, check_answer, make_entry
from perdure.registry.packages.mcpb import complete_plan, fetch_bundle
from perdure.registry.templates import Template

ATTEMPTS: Final = 5
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def run(options: argparse.Namespace, env: Mapping[str, Template], headers: Mapping[str, Template]) -> int:
    if options.alias is not None:
        check_name(options.alias)
    backend = backend_of(options)
    catalog = open_catalog(options.catalog or "", os.environ)
    try:
        offer = look_up(catalog, options.source)
        if isinstance(offer, Entry):
            entry, plan = _with_provenance(offer, catalog), None
            entry = structs.replace(entry, env={**entry.env, **env}, headers={**entry.headers, **headers})
        else:
            _check_not_installed(backend, offer.name, options.alias)
            plan = make_plan(offer, options.kind or "")
            entry = _make_entry(plan, env, headers, catalog, options)
    finally:
        catalog.close()
    entry = structs.replace(
        entry,
        args=(*entry.args, *(Template(word) for word in options.arg)),
        enabled=not options.disabled,
        title=options.title or entry.title,
        description=options.description or entry.description,
        cwd=Template(options.cwd) if options.cwd else entry.cwd,
    )
    check_can_start(backend, entry)
    entry, source = _install(backend, entry, offer.name, options.alias)
    _report(options, backend, entry, source, plan)
    warn(catalog.notice)
    return 0


def look_up(catalog: Catalog, source: str) -> Record | Entry:
    """NAME or NAME@VERSION; a tiered catalog's names may hold an @ of their own."""
    name, at, version = source.rpartition("@")
    if not at or not name:
        return catalog.lookup(source)
    if "/" in name:
        return catalog.lookup(name, version)
    try:
        return catalog.lookup(source)
    except RegistryError as error:
        if error.exit_code != 1 and not isinstance(error, ValueError):
            raise
    return catalog.lookup(name, version)


def make_plan(record: Record, kind: str) -> Plan:
    """The way to run it; a bundle is fetched and checked first."""
    plan = choose(record, lambda command: shutil.which(command) is not None, kind)
    return complete_plan(plan, fetch_bundle(plan.bundle)) if plan.bundle is not None else plan


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _make_entry(
    plan: Plan,
    env: Mapping[str, Template],
    headers: Mapping[str, Template],
    catalog: Catalog,
    options: argparse.Namespace,
) -> Entry:
    prompts = plan.prompts
    answers = {name: check_answer(prompts[name], value) for name, value in env.items() if name in prompts}
    if sys.stdin.isatty() and sys.stderr.isatty() and not options.json:
        for prompt in prompts.values():
            if prompt.required and prompt.variable not in answers:
                answers[prompt.variable] = _ask(prompt)
    entry = make_entry(plan, alias(plan.name, ()), answers, catalog.location, now())
    others = {name: value for name, value in env.items() if name not in prompts}
    if others and entry.transport != "stdio":
        raise InvalidEntry(f"{', '.join(others)}: not an input of {plan.name}", hint=_inputs(plan))
    return structs.replace(
        entry,
        env={**entry.env, **others},
        headers={**entry.headers, **headers} if entry.transport != "stdio" else entry.headers,
    )


def _inputs(plan: Plan) -> str:
    return f"its inputs: {', '.join(plan.prompts)}" if plan.prompts else "it has no inputs"


def _ask(ask: InputPrompt) -> Template:
    """Ask on the terminal. Raises InputRequired at the end of the input."""
    choices = f" ({', '.join(ask.choices)})" if ask.choices else ""
    example = f", for example {ask.placeholder}" if ask.placeholder and not ask.secret else ""
    print(f"{ask.label}: {ask.description or ask.variable}{choices}{example}", file=sys.stderr)
    while True:
        value = _secret(ask) if ask.secret else _plain(ask)
        try:
            return check_answer(ask, value)
        except InputRequired as error:
            print(f"  {error.message}", file=sys.stderr)


def _plain(ask: InputPrompt) -> Template:
    usual = ask.default if ask.default is not None else f"${ask.variable}"
    text = _line(f"  value [{usual}]: ", ask)
    if not text:
        return Template.literal(ask.default) if ask.default is not None else Template(f"${ask.variable}")
    return Template(text)


def _secret(ask: InputPrompt) -> Template:
    while True:
        text = _line(f"  which variable holds it? [{ask.variable}]: ", ask).removeprefix("$") or ask.variable
        if _VARIABLE.fullmatch(text) and (text == ask.variable or text in os.environ):
            return Template(f"${text}")
        # The answer is not repeated: it may be the secret itself instead of its name.
        print("  there is no variable of that name; set it first, and give its name", file=sys.stderr)


def _line(prompt: str, ask: InputPrompt) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise InputRequired(f"{ask.variable} is required", hint=f"--env '{ask.variable}=$VARIABLE'")
    return line.strip()


def _with_provenance(offered: Entry, catalog: Catalog) -> Entry:
    version = offered.provenance.version if offered.provenance is not None else ""
    package = offered.provenance.package if offered.provenance is not None else ""
    came = Provenance(
        catalog=catalog.location, name=offered.name, version=version, package=package, installed_at=now()
    )
    return structs.replace(offered, provenance=came)


def _check_not_installed(backend: Backend, full: str, given: str | None) -> None:
    """The same server is only installed again under a name that is given."""
    if given is not None:
        return
    for entry in backend.load_all():
        if entry.provenance is not None and entry.provenance.name == full:
            raise AlreadyInstalled(
                f"{full} is already installed as {entry.name}",
                entry=entry.name,
                hint=f"perdure registry update {entry.name}, or --as ANOTHER_NAME",
            )


def _install(backend: Backend, entry: Entry, full: str, given: str | None) -> tuple[Entry, str]:
    """Under the given name, or under the shortest that is free."""
    for _ in range(ATTEMPTS):
        if given is None and "/" in full:
            entry = structs.replace(entry, name=alias(full, {ref.name for ref in backend.list_servers()}))
        elif given is not None:
            entry = structs.replace(entry, name=given)
        try:
            return entry, backend.install(entry).source
        except AlreadyInstalled:
            if given is not None or "/" not in full:
                raise
    raise AlreadyInstalled(f"no name is free for {full}", hint="--as NAME")


def _report(
    options: argparse.Namespace, backend: Backend, entry: Entry, source: str, plan: Plan | None
) -> None:
    came = entry.provenance or Provenance()
    checked = backend.validate(entry.name)
    notes = [*(plan.notes if plan is not None else ()), *checked.errors]
    missing = entry.unset(os.environ)
    about = plan.prompts if plan is not None else {}
    used = set(entry.variables())
    optional = [name for name, ask in about.items() if not ask.required and name not in used]
    value: dict[str, Any] = {
        "installed": entry.name,
        "source": source,
        "catalog": came.catalog,
        "catalog_name": came.name,
        "version": came.version,
        "package": came.package,
        "variables": list(dict.fromkeys(entry.variables())),
        "unset": list(missing),
        "optional": optional,
        "notes": notes,
    }
    place = place_of(backend, source)
    lines = [f"installed {entry.name} in {place}", f"  {came.name} {came.version} {came.package}".rstrip()]
    for name in missing:
        said = about[name].description if name in about else ""
        lines.append(f"  set {name} before it is started" + (f": {said}" if said else ""))
    lines += [f"  {note}" for note in notes]
    if optional:
        lines.append(f"  optional: {', '.join(optional)} (--env NAME=VALUE)")
    print_result(options, value, "\n".join(lines))

"""`perdure doctor`: finds what is wrong, says why it matters and what to do, and fixes what is safe to fix."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from json import dumps
from textwrap import wrap
from typing import Any, Final

from perdure.cli.doctor.finding import LEVELS, DoctorContext, Finding
from perdure.cli.locations import find_workspace
from perdure.cli.options import add_locations, add_mounts, settle
from perdure.cli.output import Progress, Screen, clean, count
from perdure.cli.parser import new_parser

STYLES: Final = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}
NAMES: Final = (
    "versions",
    "extras",
    "permissions",
    "disk",
    "leftovers",
    "locks",
    "journal",
    "state",
    "clients",
    "trust",
    "mounts",
)


def parser() -> argparse.ArgumentParser:
    found = new_parser(
        "doctor",
        "Look for what is wrong, worst first: broken mounts, unset variables, permissions, files that are not what the "
        "journal says, locks, leftovers, versions, missing parts, full disks, client configurations. Mounts are started "
        "once, by a host like any other. Exit code 0: nothing is wrong (there may be warnings); 1: something is.",
    )
    add_locations(found)
    add_mounts(found)
    found.add_argument("--only", metavar="CHECKS", help=f"some of {','.join(NAMES)}")
    found.add_argument("--fix", action="store_true", help="fix what is safe to fix, and print what was done")
    found.add_argument("--json", action="store_true", help="print every finding as JSON")
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    wanted = _wanted(options.only)
    context = _context(options)
    with Progress() as progress:
        findings = [_told(finding, options.fix) for finding in _findings(context, wanted, progress)]
    is_well = all(one["level"] != "error" or one.get("fixed") for one in findings)
    if options.json:
        print(dumps({"ok": is_well, "findings": findings}))
    else:
        screen = Screen()
        _sum_up(findings, screen)
        for told in sorted(findings, key=lambda one: LEVELS.index(one["level"]), reverse=True):
            _show(told, screen)
    return 0 if is_well else 1


def _wanted(only: str | None) -> tuple[str, ...]:
    names = tuple(part.strip() for part in only.split(",")) if only is not None else NAMES
    if unknown := [name for name in names if name not in NAMES]:
        print(f"perdure doctor: no check {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        raise SystemExit(2)
    return names


def _context(options: argparse.Namespace) -> DoctorContext:
    """Settings that cannot be meant are the first thing to mend: nothing else can be looked at without them."""

    settings = settle(options, "doctor")
    words: list[str] = []
    for name in ("workspace", "mount", "mount_env"):
        for value in getattr(options, name) or ():
            words += [f"--{name.replace('_', '-')}", os.path.abspath(value) if name == "workspace" else value]
    if options.registry is not None:
        words += [
            "--registry",
            options.registry if "://" in options.registry else os.path.abspath(options.registry),
        ]
    is_named = bool(
        options.workspace or os.environ.get("PERDURE_WORKSPACE") or os.environ.get("RW_WORKSPACE")
    )
    return DoctorContext(settings, tuple(words), "." if is_named else find_workspace("."))


def _findings(context: DoctorContext, wanted: tuple[str, ...], progress: Progress) -> Iterator[Finding]:
    from perdure.cli.doctor import clients, leftovers, machine, mounts, permissions, stores, trust

    checks: dict[str, Callable[[DoctorContext], Iterator[Finding]]] = {
        "versions": machine.check_versions,
        "extras": machine.check_extras,
        "permissions": permissions.check,
        "disk": machine.check_disk,
        "leftovers": leftovers.check,
        "locks": leftovers.check_locks,
        "journal": stores.check_journal,
        "state": stores.check_state,
        "clients": clients.check,
        "trust": trust.check,
        "mounts": mounts.check,
    }
    for name in wanted:
        progress.stage(f"checking {name} …")
        try:
            yield from checks[name](context)
        except Exception as error:  # one check that fails must not keep the others from being made
            yield Finding(
                name,
                "error",
                f"this could not be checked: {type(error).__name__}",
                "something is so broken that looking at it fails",
                "the other findings may say why; if not, it is a bug of perdure",
            )


def _told(finding: Finding, fix: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"check": finding.check, "level": finding.level, "what": clean(finding.what)}
    if finding.why:
        told["why"] = finding.why
    if finding.todo:
        told["todo"] = clean(finding.todo)
    if finding.level != "ok":
        told["fixable"] = finding.fix is not None
    if fix and finding.fix is not None:
        try:
            told["fixed"] = clean(finding.fix())
        except OSError as error:
            told["not_fixed"] = error.strerror or type(error).__name__
    return told


def _show(told: dict[str, Any], screen: Screen) -> None:
    level = "fixed" if told.get("fixed") else told["level"]
    mark = screen.styled(f"{level:<8}", STYLES.get(told["level"], ""))
    is_note = told["level"] == "note"
    what = f"{told['what']}: {told['todo']}" if is_note and told.get("todo") else told["what"]
    lines = wrap(what, screen.width - 21, break_on_hyphens=False, break_long_words=False) or [""]
    screen.out.write(f"{mark} {told['check']:<11} {screen.styled(lines[0], '')}\n")
    for line in lines[1:]:
        screen.line(f"{'':21}{line}")
    if told["level"] in ("ok", "note"):
        return
    for name, label in (("why", "why"), ("todo", "to do"), ("fixed", "done"), ("not_fixed", "failed")):
        if told.get(name) and not (name == "todo" and told.get("fixed")):
            parts = wrap(told[name], screen.width - 21, break_on_hyphens=False, break_long_words=False)
            for number, part in enumerate(parts):
                screen.out.write(
                    screen.styled(f"{'':9}{label if not number else '':<12}{part}", "dim") + "\n"
                )


def _sum_up(findings: list[dict[str, Any]], screen: Screen) -> None:
    left = [one for one in findings if not one.get("fixed")]
    errors = sum(one["level"] == "error" for one in left)
    warnings = sum(one["level"] == "warning" for one in left)
    fixed = len(findings) - len(left)
    parts = [count(errors, "error"), count(warnings, "warning")]
    parts += [f"{fixed} fixed"] if fixed else []
    if not fixed and any(one.get("fixable") for one in left):
        parts.append("`perdure doctor --fix` fixes what is safe to fix")
    screen.line("  ".join(parts), "bold red" if errors else "bold")

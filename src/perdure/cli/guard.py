"""`perdure guard`: git commits checked against reservations, for changes that no hook of a client saw."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from perdure.cli.output import Screen, clean, home
from perdure.cli.parser import new_parser

if TYPE_CHECKING:
    from perdure.workspace.reservations.rules import Held

BEGIN: Final = "# >>> perdure guard"
END: Final = "# <<< perdure guard"
SHELLS: Final = ("sh", "bash", "dash", "zsh", "ksh")
FAILED: Final = 1
UNAVAILABLE: Final = 4
REFUSED: Final = 3


class _NotPossible(Exception):
    """Why the hook of git cannot be changed."""


def parser() -> argparse.ArgumentParser:
    made = new_parser(
        "guard",
        "Check git commits against reservations: a commit with a file that another client has reserved is refused. "
        "`git commit --no-verify` commits it nevertheless.",
    )
    commands = made.add_subparsers(metavar="COMMAND", required=True, dest="command")
    texts = {
        "install": "add the check to the pre-commit hook of this repository",
        "uninstall": "remove the check, and leave the rest of the hook as it is",
        "check": "check what is staged now; the exit code is 3 if another client has reserved a file",
    }
    for name, text in texts.items():
        commands.add_parser(name, help=text, description=f"{text}.")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    try:
        if options.command == "check":
            return _check()
        path = os.path.join(_git("rev-parse", "--path-format=absolute", "--git-path", "hooks"), "pre-commit")
        changed = _install(path) if options.command == "install" else _uninstall(path)
    except _NotPossible as error:
        print(f"perdure guard: {error}", file=sys.stderr)
        return UNAVAILABLE
    except OSError as error:
        print(f"perdure guard: {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED
    done = "installed in" if options.command == "install" else "removed from"
    Screen().line(f"{done} {home(clean(path))}" if changed else f"nothing to do: {home(clean(path))}")
    return 0


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, check=False)
    except FileNotFoundError:
        raise _NotPossible("git is not installed") from None
    if done.returncode:
        raise _NotPossible("this folder is in no git repository")
    return os.fsdecode(done.stdout.rstrip(b"\n"))


# --- the hook of git ----------------------------------------------------------------------------------------


def _block() -> str:
    from shlex import join

    from perdure.host.launch import own_command

    return f"{BEGIN}\n{join(own_command('guard', 'check'))} || exit $?\n{END}\n"


def _install(path: str) -> bool:
    """Whether the file was changed. A hook that exists keeps its lines; the check comes first."""
    text = _read(path)
    before, block, after = _split(text)
    if block == _block():
        return False
    if not text:
        _write(path, f"#!/bin/sh\n{_block()}")
        return True
    first, newline, rest = (before + after).partition("\n")
    if not (first.startswith("#!") and os.path.basename(first.split()[-1]) in SHELLS):
        raise _NotPossible(f"{path} is no shell script: call `perdure guard check` from it yourself")
    _write(path, f"{first}{newline or os.linesep}{_block()}{rest}")
    return True


def _uninstall(path: str) -> bool:
    text = _read(path)
    before, block, after = _split(text)
    if not block:
        return False
    if before + after == "#!/bin/sh\n":
        os.unlink(path)
    else:
        _write(path, before + after)
    return True


def _split(text: str) -> tuple[str, str, str]:
    """Before the check, the check, after it."""
    start, end = text.find(f"{BEGIN}\n"), text.find(f"{END}\n")
    if start < 0 or end < start:
        return text, "", ""
    end += len(END) + 1
    return text[:start], text[start:end], text[end:]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = os.stat(path).st_mode if os.path.exists(path) else 0o644
    new = f"{path}.perdure"
    with open(new, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
    os.chmod(new, (mode | 0o111) & 0o777)
    os.replace(new, path)


# --- the check ------------------------------------------------------------------------------------------------


def _check() -> int:
    """A commit is never kept from a person because Perdure fails: that is told, and the commit goes on."""
    top = _git("rev-parse", "--show-toplevel")
    staged = _git("diff", "--cached", "--name-only", "--no-renames", "-z")
    paths = [os.path.join(top, name) for name in staged.split("\0") if name]
    try:
        holders = _find_holders(top, paths)
    except Exception as error:
        print(f"perdure guard: reservations were not checked: {error}", file=sys.stderr)
        return 0
    if not holders:
        return 0
    from perdure.workspace.reservations.access import sentence

    for held in holders:
        print(f"perdure guard: {clean(sentence(held))}", file=sys.stderr)
    print("perdure guard: not committed. To commit nevertheless: git commit --no-verify", file=sys.stderr)
    return REFUSED


def _find_holders(top: str, paths: list[str]) -> list[Held]:
    from perdure.cli.locations import find_project
    from perdure.cli.tool_command import has_store, open_for_reading
    from perdure.cli.worker_settings import write_settings
    from perdure.host.settings import load
    from perdure.platform.process_tree import client_process
    from perdure.worker.compose import open_write
    from perdure.workspace.reservations.access import resolve_path

    workspace = find_project(None, None, top)
    settings = write_settings(load({"workspace": [workspace]}, os.environ, leave_out_faults=True))
    if not has_store(settings) and settings.reservations.scope == "workspace":
        return []
    opened = open_for_reading(settings) if has_store(settings) else open_write(settings)
    try:
        names = [name for path in paths if (name := resolve_path(opened.roots, path))]
        owner = client_process() or ""
        return [held for name in names for held in opened.reservations.find_blocking(name, owner)]
    finally:
        opened.close()

"""`perdure trust`: let the settings files of a workspace start servers and change settings."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from json import dumps
from typing import Any, Final

from msgspec import structs

from perdure.cli.options import settle
from perdure.cli.output import clean, home
from perdure.cli.parser import new_parser
from perdure.host.workspace_trust import (
    WORKSPACE_FILES,
    WorkspaceFile,
    contents_of,
    workspace_files,
)
from perdure.storage.trust import TrustStore

DECLINED: Final = 1
STATES: Final = {"trusted": "trusted", "waiting": "not trusted", "changed": "changed since it was trusted"}
AT_START: Final = ("otel", "serve", "log-level", "log-format", "workspace")

Ask = Callable[[], bool]


def parser() -> argparse.ArgumentParser:
    made = new_parser(
        "trust",
        "Show what the settings files of a workspace start and change (mcp.md, mcp.json, perdure.toml, policy.yaml), and "
        "trust them as they are now. Until then nothing of it is started, and after any change it asks again. "
        "Exit code 1: declined, or there is no terminal to ask on and no --yes.",
    )
    made.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a settings file, or a workspace for all of its settings files",
    )
    made.add_argument(
        "--workspace",
        action="append",
        metavar="DIR",
        help="the workspace (PERDURE_WORKSPACE; default: the current folder)",
    )
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument(
        "--list", action="store_true", help="only print which files are trusted and which are not"
    )
    made.add_argument("--revoke", action="store_true", help="withdraw trust")
    made.add_argument("--json", action="store_true", help="print the files as JSON")
    return made


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    chosen = _chosen(options)
    if chosen is None:
        return DECLINED
    roots, names = chosen
    if options.revoke:
        return _revoke(options, roots, names)
    if options.list:
        return _print(options, _files(roots, names))
    return _trust(options, roots, names)


# --- which files ------------------------------------------------------------------------------------------


def _chosen(options: argparse.Namespace) -> tuple[list[str], list[str]] | None:
    """The workspaces, and the files among theirs that were named; none named means all of them."""
    roots: list[str] = []
    names: list[str] = []
    here = settle(argparse.Namespace(workspace=options.workspace), "trust").workspaces[0]
    for path in options.paths:
        if os.path.isdir(path):
            roots.append(os.path.realpath(path))
            continue
        root, name = _placed(path, here)
        roots.append(root)
        names.append(os.path.join(root, name))
    roots = list(dict.fromkeys(roots or [here]))
    known = {file.path for file in _files(roots, [])}
    for name in names:
        if name not in known and not options.revoke:
            print(f"perdure trust: {clean(name)} is no settings file of a workspace", file=sys.stderr)
            return None
    return roots, names


def _placed(path: str, here: str) -> tuple[str, str]:
    """The workspace that a file is in, and its name there. The links of the name itself are not followed."""
    plain = os.path.abspath(path)
    for name in sorted(WORKSPACE_FILES, key=len, reverse=True):
        if plain.endswith(f"{os.sep}{name}"):
            return os.path.realpath(plain.removesuffix(f"{os.sep}{name}")), name
    folder, name = os.path.split(plain)
    return here, os.path.relpath(os.path.join(os.path.realpath(folder), name), here)


def _files(roots: Iterable[str], names: list[str]) -> list[WorkspaceFile]:
    environ = {name: value for name, value in os.environ.items() if name != "PERDURE_REGISTRY"}
    found: list[WorkspaceFile] = []
    for root in roots:
        settings = structs.replace(
            settle(argparse.Namespace(workspace=[root]), "trust"), registry=None, policy=None
        )
        found += workspace_files(settings, environ)
    return [file for file in found if not names or file.path in names]


# --- what is done with them -------------------------------------------------------------------------------


def _trust(options: argparse.Namespace, roots: list[str], names: list[str]) -> int:
    """A file that is trusted may name others: those are shown and asked for next."""
    store = TrustStore()
    seen: set[str] = set()
    while True:
        waiting = [one for one in _files(roots, names) if one.verdict != "trusted" and one.path not in seen]
        broken = [one for one in waiting if one.contents.problem]
        for file in broken:
            print(f"perdure trust: {clean(file.path)}: {clean(file.contents.problem)}", file=sys.stderr)
        sound = [one for one in waiting if not one.contents.problem]
        if not sound:
            break
        if not options.json:
            for file in sound:
                _show(file, store)
        if not options.yes and not _agreed(options):
            return _print(options, _files(roots, names), code=DECLINED) if options.json else DECLINED
        for file in sound:
            store.trust(file.path, file.content)  # what was shown, whatever the file holds by now
            seen.add(file.path)
            if not options.json:
                print(f"trusted {home(clean(file.path))}{_later(file)}")
    files = _files(roots, names)
    if options.json:
        _print(options, files)
    elif not seen and not broken:
        print(_nothing(roots, files))
    return DECLINED if broken else 0


def _agreed(options: argparse.Namespace) -> bool:
    if options.json or not sys.stdin.isatty():
        print(
            "perdure trust: nothing was trusted: there is no terminal to ask on; --yes trusts this",
            file=sys.stderr,
        )
        return False
    print("Trust this? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _revoke(options: argparse.Namespace, roots: list[str], names: list[str]) -> int:
    store = TrustStore()
    paths = names or [file.path for file in _files(roots, names)]
    revoked = [path for path in dict.fromkeys(paths) if store.revoke(path)]
    if options.json:
        return _print(options, _files(roots, names))
    for path in revoked:
        print(
            f"no longer trusted: {home(clean(path))}; its servers are stopped, its settings no longer count"
        )
    if not revoked:
        print("Nothing was trusted here.")
    return 0


# --- what is printed --------------------------------------------------------------------------------------


def _show(file: WorkspaceFile, store: TrustStore) -> None:
    """What the file starts and sets; as a difference where another content was trusted before."""
    print(f"{home(clean(file.path))}  ({STATES[file.verdict]})")
    record = store.record_of(file.path)
    facts = file.contents.facts
    if record is None:
        lines = [f"  {line}" for line in facts]
    else:
        before = contents_of(file.path, record.content, os.environ).facts
        lines = _difference(before, facts)
    print("\n".join(lines) or "  starts nothing and changes nothing that needs trust")


def _difference(before: tuple[str, ...], after: tuple[str, ...]) -> list[str]:
    from difflib import ndiff

    return [f"{line[0]} {line[2:]}" for line in ndiff(before, after) if line[:1] in "+- " and line.strip()]


def _print(options: argparse.Namespace, files: list[WorkspaceFile], code: int = 0) -> int:
    if options.json:
        print(dumps({"files": [_plain(file) for file in files]}, ensure_ascii=False))
        return code
    for file in files:
        _show(file, TrustStore()) if file.verdict != "trusted" else print(
            f"{home(clean(file.path))}  (trusted)"
        )
    if not files:
        print("This workspace has no settings file.")
    return code


def _plain(file: WorkspaceFile) -> dict[str, Any]:
    starts = [
        {"name": one.name, **({"command": one.command} if one.command else {"url": one.url})}
        for one in file.contents.starts
    ]
    found: dict[str, Any] = {
        "path": file.path,
        "sha256": file.sha256,
        "trusted": file.verdict == "trusted",
        "changed": file.verdict == "changed",
        "starts": starts,
        "settings": list(file.contents.settings),
    }
    if file.contents.problem:
        found["error"] = file.contents.problem
    return found


def _later(file: WorkspaceFile) -> str:
    """A running host takes up servers, state and policy; the rest is read when it starts."""
    late = [key for key in file.contents.settings if key.partition(".")[0] in AT_START]
    return f" ({', '.join(late)}: when the host starts next)" if late else ""


def _nothing(roots: list[str], files: list[WorkspaceFile]) -> str:
    place = ", ".join(home(clean(root)) for root in roots)
    return (
        f"Nothing waits in {place}: what is there is trusted." if files else f"{place} has no settings file."
    )

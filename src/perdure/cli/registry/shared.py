"""What the registry's commands share: opening the registry, and printing results."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from json import dumps
from typing import Any

from perdure.cli.locations import find_workspace
from perdure.cli.output import home
from perdure.protocol.pending_trust import UntrustedFile, command_for
from perdure.registry.allowed_commands import check_allowed
from perdure.registry.backend import Backend, EditableBackend, open_backend
from perdure.registry.entry import Entry
from perdure.registry.errors import RegistryError, Unsupported, Untrusted
from perdure.registry.file.backend import FileBackend
from perdure.registry.file.document import read_bytes
from perdure.registry.location import FILE_NAMES, in_folder, locate, user_folder
from perdure.storage.trust import TrustStore


def location_of(options: argparse.Namespace) -> str:
    """Where the registry is, or would be created."""
    environ = os.environ
    named = options.workspace or environ.get("PERDURE_WORKSPACE") or environ.get("RW_WORKSPACE")
    workspace = os.path.abspath(named.split(os.pathsep)[0] if named else find_workspace("."))
    if getattr(options, "in_project", False):
        return in_folder(workspace) or os.path.join(workspace, FILE_NAMES[0])
    return locate(options.registry, workspace, environ)


def backend_of(options: argparse.Namespace) -> Backend:
    backend = open_backend(location_of(options), os.environ)
    options.backend = backend
    if isinstance(backend, FileBackend):
        file = untrusted_registry(options)
        backend.is_trusted = file is None
        backend.on_change = partial(_keep_trust, _trust_path(backend.path))
    return backend


def untrusted_registry(options: argparse.Namespace) -> UntrustedFile | None:
    """The registry, if it is a file of a workspace that the user neither named nor trusts."""
    from perdure.host.workspace_trust import contents_of

    location = location_of(options)
    if options.registry or os.environ.get("PERDURE_REGISTRY") or "://" in location:
        return None
    path = _trust_path(location)
    if os.path.dirname(path) == os.path.realpath(user_folder(os.environ)):
        return None
    content = read_bytes(location)
    if content is None or (verdict := TrustStore().verdict(path, content)) == "trusted":
        return None
    contents = contents_of(path, content, os.environ)
    return UntrustedFile(path, verdict == "changed", contents.starts, contents.settings)


def require_trust(options: argparse.Namespace) -> None:
    """Before a connection, or before a client gets servers that it would start."""
    if (file := untrusted_registry(options)) is not None:
        raise Untrusted(f"{file.path} is not trusted", hint=command_for(file.path))


def _trust_path(path: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _keep_trust(path: str, old: bytes | None, new: bytes, is_done: bool) -> None:
    """A change by the user's own command keeps the trust of a file that was trusted or empty.

    Until it is done both contents are trusted, so that a running host never reads one that is not.
    """
    from perdure.host.workspace_trust import contents_of

    store = TrustStore()
    contents = contents_of(path, old or b"", os.environ)
    if store.verdict(path, old or b"") == "trusted" or not (contents.facts or contents.problem):
        store.trust(path, new, previous=None if is_done else old)


def add_catalog(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--catalog", metavar="URL", help="the catalog (PERDURE_CATALOG; default: the official registry)"
    )


def warn(text: str) -> None:
    """A warning beside a result, such as its age."""
    if text:
        print(f"perdure registry: {text}", file=sys.stderr)


def warn_untrusted(options: argparse.Namespace) -> None:
    if isinstance(getattr(options, "backend", None), FileBackend):
        file = untrusted_registry(options)
        warn(file.sentence if file is not None and (file.starts or file.settings) else "")


def editable_backend_of(options: argparse.Namespace) -> EditableBackend:
    backend = backend_of(options)
    if not isinstance(backend, EditableBackend):
        raise Unsupported(f"a registry of the kind {backend.backend_id} cannot change an entry in place")
    return backend


def check_can_start(backend: Backend, entry: Entry) -> None:
    """Raise CommandNotAllowed for an entry that no host would start from this file."""
    if isinstance(backend, FileBackend) and entry.command is not None and entry.command.is_literal:
        command = entry.command.resolve({})
        check_allowed(command, backend.read().allowed, entry=entry.name, path=backend.path)


def place_of(backend: Backend, source: str) -> str:
    """The location of a new entry for output: the file, which may be the user's or the workspace's."""
    return home(backend.path) if isinstance(backend, FileBackend) else source


def print_result(options: argparse.Namespace, value: Any, text: str) -> None:
    """The result as JSON with `--json`, else as text."""
    if options.json:
        print(dumps(value, ensure_ascii=False, separators=(",", ":")))
    elif text:
        print(text)


def print_error(error: RegistryError, options: argparse.Namespace) -> int:
    """Print the error, as JSON on standard output or as text on standard error. Returns the exit code."""
    if options.json:
        print_result(options, error.to_json(), "")
    else:
        hint = f"\n  {error.hint}" if error.hint else ""
        print(f"perdure registry: {error.message}{hint}", file=sys.stderr)
    return error.exit_code


def table(rows: list[list[str]]) -> str:
    """Columns as wide as their widest cell, the last one open."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )

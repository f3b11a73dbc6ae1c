"""`perdure registry login` and `logout`: signing in to a remote server, and out. A token is never printed."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from perdure.cli.extras import install_command
from perdure.cli.registry.shared import backend_of, print_result, require_trust
from perdure.registry.entry import GRANTS, Entry
from perdure.registry.errors import NotInRegistry, RegistryError, Unsupported
from perdure.registry.oauth_tokens import grant_path, grant_paths, read_grant, remove_grant
from perdure.registry.resolved_entry import ResolvedEntry, resolve

WAIT_S: Final = 300.0


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    if parser.prog.endswith("login"):
        parser.add_argument(
            "--no-browser", action="store_true", help="only print the address (--json implies it)"
        )
        parser.add_argument(
            "--wait",
            type=float,
            default=WAIT_S,
            metavar="S",
            help=f"seconds to wait for the sign-in (default: {WAIT_S:g})",
        )


def run(options: argparse.Namespace) -> int:
    return _login(options) if options.command_name == "login" else _logout(options)


def _login(options: argparse.Namespace) -> int:
    require_trust(options)
    entry = backend_of(options).load(options.name)
    resolved = _remote(entry)
    try:
        from perdure.bridge.sign_in import sign_in
    except ImportError:
        raise Unsupported(
            "a remote server needs the official SDK", entry=entry.name, hint=install_command("remote")
        ) from None
    path = grant_path(entry.name, resolved.url)
    asked = sign_in(resolved, path, entry.transport, options.wait, lambda url: _show(options, url))
    text = f"signed in to {entry.name}" if asked else f"{entry.name} asks for no sign-in"
    print_result(options, {"name": entry.name, "signed_in": asked}, text)
    return 0


def _remote(entry: Entry) -> ResolvedEntry:
    """Raises Unsupported if there is nothing to sign in to."""
    if entry.transport == "stdio":
        raise Unsupported(f"{entry.name} is a local server: there is nothing to sign in to", entry=entry.name)
    if any(name.lower() == "authorization" for name in entry.headers):
        raise Unsupported(
            f"{entry.name} has its credentials in the header Authorization",
            entry=entry.name,
            hint="remove the header to sign in instead",
        )
    if "grant" in entry.oauth and entry.oauth["grant"].text == GRANTS[1]:
        raise Unsupported(
            f"{entry.name} signs in by itself, with its client_id and client_secret", entry=entry.name
        )
    return resolve(entry, os.environ)


def _show(options: argparse.Namespace, url: str) -> None:
    """Print the address to open. It holds no secret."""
    print_result(options, {"name": options.name, "open": url}, f"Open this address to sign in:\n\n  {url}\n")
    sys.stdout.flush()
    if not options.json and not options.no_browser and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(url)


def _logout(options: argparse.Namespace) -> int:
    """Revoke the token if the server supports it; remove it here in any case."""
    revoked = False
    try:
        entry = backend_of(options).load(options.name)
        resolved = _remote(entry)
        paths = [grant_path(entry.name, resolved.url)]
        revoked = _revoke(resolved, paths[0])
    except NotInRegistry:
        paths = grant_paths(options.name)
        if not paths:
            raise
    except Unsupported:
        raise
    except RegistryError:  # its variables are unset: the tokens are removed all the same
        paths = grant_paths(options.name)
    removed = [remove_grant(path) for path in paths]
    text = f"signed out of {options.name}" if any(removed) else f"there was no sign-in to {options.name}"
    if any(removed) and not revoked:
        text += "; the server did not revoke the token, or does not support it"
    print_result(options, {"name": options.name, "signed_out": any(removed), "revoked": revoked}, text)
    return 0


def _revoke(resolved: ResolvedEntry, path: str) -> bool:
    grant = read_grant(path)
    if grant is None:
        return False
    try:
        import asyncio

        from perdure.bridge.sign_in import revoke
    except ImportError:
        return False
    return asyncio.run(revoke(resolved, grant))

"""`perdure registry install`: a new server, from a command, a URL or a catalog. Secrets are references."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from perdure.cli.registry.shared import add_catalog, backend_of, check_can_start, place_of, print_result
from perdure.registry.backend import Backend
from perdure.registry.entry import TRANSPORTS, Entry, Transport, check_name
from perdure.registry.errors import InvalidEntry, InvalidName
from perdure.registry.file.backend import FileBackend
from perdure.registry.location import user_folder
from perdure.registry.templates import Template
from perdure.risk.short_text import is_secret_name

KINDS: Final = ("npm", "pypi", "oci", "nuget", "mcpb", "remote")


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "perdure registry install NAME [OPTIONS] [--url URL] [-- COMMAND ARGS…]\n"
        "       perdure registry install --from CATALOG_NAME[@VERSION] [--as NAME] [OPTIONS]\n"
        "       perdure registry install URL [--as NAME] [OPTIONS]"
    )
    parser.add_argument("name", nargs="?")
    parser.add_argument(
        "--from", dest="source", metavar="NAME[@VERSION]", help="install this server of a catalog"
    )
    parser.add_argument(
        "--as",
        dest="alias",
        metavar="NAME",
        help="name of the new entry (default: the last part of the catalog's name)",
    )
    add_catalog(parser)
    parser.add_argument("--kind", choices=KINDS, help="which package, if the server has several")
    parser.add_argument("--description", default="", metavar="TEXT")
    parser.add_argument("--title", default="", metavar="TEXT")
    parser.add_argument(
        "--env", action="append", default=[], metavar="K=V", help="set K to V; V may be $VAR; repeatable"
    )
    parser.add_argument(
        "--arg", action="append", default=[], metavar="A", help="one more argument; repeatable"
    )
    parser.add_argument(
        "--cwd",
        metavar="DIR",
        help="working directory, relative to the registry's folder (default: the workspace)",
    )
    parser.add_argument("--transport", choices=TRANSPORTS, help="stdio, or streamable-http with --url")
    parser.add_argument("--url", help="URL of a remote server")
    parser.add_argument(
        "--header", action="append", default=[], metavar="K=V", help="set K to V; V may be $VAR; repeatable"
    )
    parser.add_argument(
        "--oauth",
        action="append",
        default=[],
        metavar="K=V",
        help="how to sign in to a remote server; repeatable: client_id=$VAR, scopes=…",
    )
    parser.add_argument(
        "--project",
        dest="in_project",
        action="store_true",
        help="write to the project's mcp.md, which its other users get (default: your own registry, for all projects)",
    )
    parser.add_argument("--disabled", action="store_true", help="install it, but do not mount it")


def run(options: argparse.Namespace) -> int:
    if options.in_project and options.registry:
        raise InvalidEntry("--project and --registry name two files", hint="give one of them")
    if options.name is not None and options.name.startswith(("http://", "https://")):
        options.catalog, options.source, options.name = _card_url(options), "", None
    elif options.source is None and _is_of_a_catalog(options):
        options.source, options.name = options.name, None
    if options.source is not None:
        return _from_catalog(options)
    if options.name is None:
        raise InvalidName(
            "no name", hint="perdure registry install NAME -- COMMAND ARGS…, or --from CATALOG_NAME"
        )
    for option, given in (("--as", options.alias), ("--catalog", options.catalog), ("--kind", options.kind)):
        if given is not None:
            raise InvalidEntry(f"{option} goes with --from", entry=options.name)
    check_name(options.name)
    entry = _entry(options)
    backend = backend_of(options)
    check_can_start(backend, entry)
    ref = backend.install(entry)
    _warn_of_literals(entry)
    print_result(
        options,
        {"installed": ref.name, "source": ref.source},
        f"installed {ref.name} in {place_of(backend, ref.source)}{_scope(options, backend)}",
    )
    return 0


def _scope(options: argparse.Namespace, backend: Backend) -> str:
    """Which projects get it, unless the user named the file."""
    if options.registry or not isinstance(backend, FileBackend):
        return ""
    is_own = os.path.dirname(os.path.realpath(backend.path)) == os.path.realpath(user_folder(os.environ))
    return " (all projects; --project puts it into this one only)" if is_own else " (this project)"


def _card_url(options: argparse.Namespace) -> str:
    """`install URL`: the URL of a remote server, or of its card."""
    from perdure.registry.catalog.catalogs import CARD

    if options.catalog is not None or options.source is not None:
        raise InvalidEntry("a URL names one server", hint="leave --catalog and --from out")
    url = str(options.name).rstrip("/")
    return url if url.endswith(CARD) else url + CARD


def _is_of_a_catalog(options: argparse.Namespace) -> bool:
    """`install com.acme/weather`: a full name, as a search shows it, without a command or a URL."""
    import re

    full = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9._-]+(?:@[^\s/]+)?")
    return bool(
        options.name is not None
        and full.fullmatch(options.name)
        and options.behind is None
        and not options.url
        and not options.transport
    )


def _from_catalog(options: argparse.Namespace) -> int:
    from perdure.cli.registry import from_catalog

    if options.behind or options.url or options.transport or options.oauth:
        raise InvalidEntry(
            "the command comes from the catalog", hint="without --url, --transport, --oauth and COMMAND"
        )
    if options.name is not None and options.alias is not None:
        raise InvalidEntry("the name is given twice", hint="NAME or --as NAME")
    options.alias = options.alias if options.alias is not None else options.name
    env = _pairs(options.source, "--env", options.env)
    return from_catalog.run(options, env, _pairs(options.source, "--header", options.header))


def _entry(options: argparse.Namespace) -> Entry:
    words = [*(options.behind or []), *options.arg]
    transport: Transport = options.transport or ("streamable-http" if options.url else "stdio")
    is_local = transport == "stdio"
    if is_local and not options.behind:
        hint = "perdure registry install NAME -- COMMAND ARGS…, or --url URL"
        raise InvalidEntry(f"{options.name}: no command", entry=options.name, hint=hint)
    return Entry(
        name=options.name,
        title=options.title,
        description=options.description,
        enabled=not options.disabled,
        transport=transport,
        command=Template(words[0]) if is_local else None,
        args=tuple(Template(word) for word in (words[1:] if is_local else words)),
        cwd=Template(options.cwd) if options.cwd else None,
        env=_pairs(options.name, "--env", options.env),
        url=Template(options.url) if options.url else None,
        headers=_pairs(options.name, "--header", options.header),
        oauth=_pairs(options.name, "--oauth", options.oauth),
    )


def _pairs(entry: str, option: str, texts: list[str]) -> dict[str, Template]:
    pairs: dict[str, Template] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidEntry(f"{option}: expected NAME=VALUE", entry=entry)
        if name in pairs:
            raise InvalidEntry(f"{option}: {name} is given twice", entry=entry)
        pairs[name] = Template(value)
    return pairs


def _warn_of_literals(entry: Entry) -> None:
    """Without repeating the values."""
    for name, value in (*entry.env.items(), *entry.headers.items(), *entry.oauth.items()):
        if value.is_literal and value.text and is_secret_name(name):
            print(
                f"perdure registry: {name} is stored as plain text; install it as '${name}' to keep it a reference",
                file=sys.stderr,
            )

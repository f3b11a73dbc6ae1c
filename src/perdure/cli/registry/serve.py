"""`perdure registry serve`: a registry file for others, as a tiered catalog and as the official read API."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime

from perdure.cli.registry.shared import location_of, print_result
from perdure.registry.backend import open_backend
from perdure.registry.errors import InvalidEntry, RegistryUnavailable
from perdure.registry.http.address import is_loopback

DEFAULT_PORT = 8767
TOKENS = ("PERDURE_TOKEN", "PERDURE_REGISTRY_TOKEN")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        metavar="N",
        help=f"the port (default: {DEFAULT_PORT}); 0 takes a free one",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen on (default: 127.0.0.1); any other needs a token",
    )
    parser.add_argument("--token", help="bearer token for writing (PERDURE_TOKEN, PERDURE_REGISTRY_TOKEN)")
    parser.add_argument(
        "--tier",
        type=int,
        choices=(1, 2, 3),
        default=3,
        help="1: read-only; 2: without /capabilities; 3: everything (default)",
    )
    parser.add_argument(
        "--scope", action="append", default=[], metavar="S", help="serve only this agent_scope; repeatable"
    )


def run(options: argparse.Namespace) -> int:
    from perdure.registry.server.app import CatalogApp
    from perdure.registry.server.http_server import CatalogServer

    token = options.token or next((os.environ[name] for name in TOKENS if os.environ.get(name)), "")
    if not token and not is_loopback(options.host):
        raise InvalidEntry(
            f"{options.host} is not this machine alone", hint="give a token: --token or PERDURE_TOKEN"
        )
    location = location_of(options)
    open_backend(location, os.environ)  # a place that is no registry is refused before anything is served
    app = CatalogApp(
        lambda: open_backend(location, os.environ),
        token=token if options.tier > 1 else "",
        reads_need_token=bool(token) and not is_loopback(options.host),
        tier=options.tier,
        scopes=frozenset(options.scope),
        changed_at=lambda: _changed_at(location),
    )

    def ready(port: int) -> None:
        host = f"[{options.host}]" if ":" in options.host else options.host
        url = f"http://{host}:{port}/"
        may = "reads and writes" if app.writes else "reads only"
        print_result(
            options,
            {"url": url, "writes": app.writes},
            f"serving {os.path.basename(location)} at {url} ({may})",
        )
        sys.stdout.flush()

    try:
        CatalogServer(app, options.host, options.port).run(ready)
    except OSError as error:
        raise RegistryUnavailable(
            f"port {options.port} of {options.host} cannot be used: {error.strerror}"
        ) from None
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a number from 0 to 65535")
    return int(text)


def _changed_at(location: str) -> str:
    try:
        at = os.stat(location).st_mtime
    except OSError:
        at = 0.0
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

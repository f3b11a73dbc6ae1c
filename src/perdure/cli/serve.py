"""`perdure serve`: streamable HTTP for many clients, over one set of servers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    import socket

    from perdure.serve.sessions import Sessions

UNAVAILABLE = 4
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def parser() -> argparse.ArgumentParser:
    from perdure.cli.options import add_mounts, add_shared
    from perdure.cli.parsing import new_parser

    made = new_parser(
        "serve",
        "One server on a machine instead of one per client: streamable HTTP at /mcp, both protocol eras; "
        "a dashboard at /.",
    )
    made.add_argument("--host", default="127.0.0.1", help="the address to listen on: 127.0.0.1")
    made.add_argument("--port", type=int, default=8765, help="the port, 0 for any: 8765")
    made.add_argument(
        "--token", help="what clients must send as Bearer (PERDURE_TOKEN); needed beyond loopback"
    )
    made.add_argument("--metrics", action="store_true", help="serve /metrics for Prometheus")
    made.add_argument(
        "--wrap", metavar="'COMMAND ARGS'", help="serve one stdio server under its own names, nothing added"
    )
    made.add_argument("--certificate", metavar="FILE", help="serve TLS with this certificate chain")
    made.add_argument("--key", metavar="FILE", help="its private key")
    add_mounts(made)
    add_shared(made)
    return made


def main(argv: list[str]) -> int:
    from perdure.host.guardian import Guardian

    guardian = Guardian.start()  # before anything is loaded: it keeps in memory whatever there is
    from perdure.cli.options import settle

    options = parser().parse_args(argv)
    token = options.token or os.environ.get("PERDURE_TOKEN") or None
    if options.host not in LOOPBACK and token is None:
        print(
            "perdure serve: listening beyond loopback needs a token: --token or PERDURE_TOKEN",
            file=sys.stderr,
        )
        return 2
    settings = settle(options, "serve")
    try:
        from perdure.dash.announcing import Announced
        from perdure.dash.app import Dashboard
        from perdure.serve.app import Options, serve
    except ImportError:
        print("perdure serve: uvicorn is missing: pip install 'perdure[serve]'", file=sys.stderr)
        return UNAVAILABLE
    chosen = Options(
        host=options.host,
        port=options.port,
        token=token,
        metrics=options.metrics,
        wrap=_words(options.wrap),
        certificate=options.certificate,
        key=options.key,
    )
    try:
        listening = _listening(options.host, options.port)
    except (OSError, OverflowError) as error:
        print(f"perdure serve: {options.host}:{options.port}: {error}", file=sys.stderr)
        return UNAVAILABLE
    import signal

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until there is something to end in good order
    scheme = "https" if options.certificate else "http"
    name = f"[{options.host}]" if ":" in options.host else options.host
    address = f"{scheme}://{name}:{listening.getsockname()[1]}/mcp"

    def front(sessions: Sessions, given: Options) -> Dashboard:
        made = Dashboard(sessions, given, Looks(settings))
        made.announced = Announced(made.desk, address)
        return made

    from perdure.cli.looking import Looks
    from perdure.host import presence

    try:
        return serve(chosen, settings, listening, guardian, address, front)
    finally:
        presence.withdraw()


def _words(command: str | None) -> tuple[str, ...]:
    import shlex

    if command is None:
        return ()
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        print(f"perdure serve: --wrap: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if not words:
        print("perdure serve: --wrap needs a command", file=sys.stderr)
        raise SystemExit(2)
    return words


def _listening(host: str, port: int) -> socket.socket:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio sends small answers at once only where it knows that this is TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(1024)
    except OSError:
        made.close()
        raise
    return made

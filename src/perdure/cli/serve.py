"""`perdure serve`: streamable HTTP for many clients, over one set of servers."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.host.serve_options import Serving
    from perdure.host.settings import Settings
    from perdure.serve.app import Options
    from perdure.serve.session_table import SessionTable

UNAVAILABLE = 4


def parser() -> argparse.ArgumentParser:
    from perdure.cli.options import add_mounts, add_shared, add_task_after, add_telemetry
    from perdure.cli.parser import new_parser

    made = new_parser(
        "serve",
        "One server on a machine instead of one per client: streamable HTTP at /mcp, both protocol eras; "
        "a dashboard at /.",
    )
    made.add_argument("--host", help="the address to listen on (PERDURE_HOST; default: 127.0.0.1)")
    made.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help="the port; 0 takes a free one (PERDURE_PORT; default: 8765)",
    )
    made.add_argument(
        "--token",
        help="the bearer token that clients must send (PERDURE_TOKEN); required for an address beyond loopback",
    )
    made.add_argument(
        "--metrics", action="store_true", default=None, help="serve /metrics for Prometheus (PERDURE_METRICS)"
    )
    made.add_argument(
        "--wrap",
        metavar="'COMMAND ARGS'",
        help="serve one stdio server with its own tool names and no built-in tools",
    )
    made.add_argument(
        "--certificate", metavar="FILE", help="serve TLS with this certificate chain (PERDURE_CERTIFICATE)"
    )
    made.add_argument("--key", metavar="FILE", help="private key of the certificate (PERDURE_KEY)")
    made.add_argument(
        "--public-url",
        metavar="URL",
        help="the URL of /mcp that clients use, behind a proxy (PERDURE_PUBLIC_URL)",
    )
    _add_oauth(made)
    add_mounts(made)
    add_task_after(made)
    add_shared(made)
    add_telemetry(made)
    return made


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 0 to 65535")
    return int(text)


def _add_oauth(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group(
        "OAuth", "Let in who has an access token of an authorization server (PERDURE_OAUTH_ISSUER and so on)."
    )
    group.add_argument(
        "--oauth-issuer", metavar="URL", help="the authorization server whose tokens are accepted"
    )
    group.add_argument(
        "--oauth-audience",
        metavar="NAMES",
        help="the audience that a token must have (default: the URL of /mcp)",
    )
    group.add_argument(
        "--oauth-scopes", metavar="NAMES", help="the scopes that a token must have (default: none)"
    )
    group.add_argument(
        "--oauth-jwks", metavar="URL", help="URL of the issuer's keys (default: from its metadata)"
    )
    group.add_argument(
        "--oauth-introspection",
        metavar="URL",
        help="check each token at this introspection URL instead of with keys",
    )
    group.add_argument(
        "--oauth-client-id",
        metavar="NAME",
        help="client id for introspection; its secret is PERDURE_OAUTH_CLIENT_SECRET",
    )
    group.add_argument(
        "--oauth-algorithms",
        metavar="NAMES",
        help="accepted signature algorithms (default: RS256,PS256,ES256,EdDSA)",
    )


def main(argv: list[str]) -> int:
    from perdure.platform.guardian import Guardian

    guardian = Guardian.start()  # before anything is loaded: it keeps in memory whatever there is
    from perdure.cli.options import settle

    options = parser().parse_args(argv)
    token = options.token or os.environ.get("PERDURE_TOKEN") or None
    settings = settle(options, "serve")
    serving = _serving(options, settings.workspaces[0], token)
    from perdure.dash.lazy import LazyDashboard
    from perdure.http.server import listen
    from perdure.serve.app import Options, serve

    chosen = Options(
        token=token,
        wrap=_words(options.wrap),
        serving=serving,
        client_secret=os.environ.get("PERDURE_OAUTH_CLIENT_SECRET", ""),
    )
    try:
        listening = listen(serving.host, serving.port)
    except (OSError, OverflowError) as error:
        print(f"perdure serve: {_not_listening(serving.host, serving.port, error)}", file=sys.stderr)
        return UNAVAILABLE
    from perdure.platform import signals

    signals.handle(signals.TERMINATE, lambda: os._exit(0))  # until there is something to end in good order
    scheme = "https" if serving.certificate else "http"
    name = f"[{serving.host}]" if ":" in serving.host else serving.host
    address = f"{scheme}://{name}:{listening.getsockname()[1]}/mcp"

    def front(sessions: SessionTable, given: Options) -> LazyDashboard:
        return LazyDashboard(sessions, given, address, StoreInspector(settings))

    from perdure.cli.store_inspector import StoreInspector
    from perdure.host import presence

    try:
        return serve(
            chosen, settings, listening, guardian, address, front, _banner(address, settings, chosen)
        )
    finally:
        presence.withdraw()


def _banner(address: str, settings: Settings, chosen: Options) -> tuple[str, ...]:
    """Below the address: what a person does next."""
    from perdure.cli.output import clean, home

    lines = [] if chosen.wrap else [f"  dashboard  {address.removesuffix('mcp')}"]
    lines += [f"  workspace  {home(clean(path))}" for path in settings.workspaces if not chosen.wrap]
    lines.append("  clients    the address above over HTTP, or `perdure attach` as their command over stdio")
    return tuple(lines)


def _not_listening(host: str, port: int, error: OSError | OverflowError) -> str:
    import errno

    if isinstance(error, OverflowError):
        return f"{port} is no port: 0 to 65535"
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {host}:{port}: {error.strerror or error}"
    from perdure.cli.host_client import port_holder

    return f"port {port} is used by {port_holder(port)} --port 0 takes another."


def _serving(options: argparse.Namespace, workspace: str, token: str | None) -> Serving:
    """Exit with 2 and the reason where it cannot be meant, or would let in everybody."""
    from perdure.host.serve_settings import load
    from perdure.host.settings_file import SettingsError
    from perdure.registry.http.address import is_loopback

    try:
        found = load(vars(options), os.environ, workspace)
        if not is_loopback(found.host) and token is None and found.oauth is None:
            raise SettingsError("listening beyond loopback needs a token: --token or PERDURE_TOKEN")
        if found.public_url is not None:
            _check_url("--public-url", found.public_url, allow_http=found.oauth is None)
        if found.oauth is not None:
            _check_oauth(found)
        if found.certificate is not None:
            _check_certificate(found.certificate, found.key)
    except SettingsError as error:
        print(f"perdure serve: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    return found


def _check_url(name: str, url: str, *, allow_http: bool = False) -> None:
    from perdure.host.settings_file import SettingsError
    from perdure.registry.errors import RegistryError
    from perdure.registry.http.address import check_address, read_address

    try:
        check_address(read_address(url), allow_http)
    except RegistryError as error:
        raise SettingsError(f"{name}: {error}") from None


def _check_certificate(certificate: str, key: str | None) -> None:
    import ssl

    from perdure.host.settings_file import SettingsError

    try:
        # Without a password: one must not be asked for on a terminal that may not be there.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SettingsError(f"--certificate {certificate}, --key {key}: {reason}") from None


def _check_oauth(serving: Serving) -> None:
    from importlib.util import find_spec

    from perdure.host.settings_file import SettingsError
    from perdure.registry.http.address import is_loopback

    oauth = serving.oauth
    assert oauth is not None
    if not is_loopback(serving.host) and serving.public_url is None:
        raise SettingsError("--public-url must say by which address clients know this server")
    for name, url in (("issuer", oauth.issuer), ("jwks", oauth.jwks), ("introspection", oauth.introspection)):
        if url is not None:
            _check_url(f"serve.oauth.{name}", url)
    if oauth.introspection is None and find_spec("jwt") is None:
        from perdure.cli.extras import install_command

        raise SettingsError(f"serve.oauth: PyJWT is missing: {install_command('oauth')}")


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

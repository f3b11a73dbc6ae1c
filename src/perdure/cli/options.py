"""The options that several commands share, and settling them with environment and files."""

from __future__ import annotations

import argparse
import os
import sys

from perdure.host.settings import Settings, load
from perdure.host.settings_file import SettingsError
from perdure.platform.guardian import MARK as GUARDED
from perdure.protocol.eras import LOG_LEVELS
from perdure.protocol.tool_groups import PROFILES
from perdure.protocol.tools import DETAILS, RENDERS


def add_workspace(parser: argparse.ArgumentParser, *, has_json: bool = True) -> None:
    parser.add_argument(
        "--workspace",
        action="append",
        metavar="DIR",
        help="the workspace; repeatable (PERDURE_WORKSPACE, else the one around the current folder)",
    )
    if has_json:
        parser.add_argument("--json", action="store_true", help="print the whole result as JSON")


def add_locations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace",
        action="append",
        metavar="DIR",
        help="the workspace (PERDURE_WORKSPACE, else the one around the current folder)",
    )
    parser.add_argument(
        "--state", metavar="URL|PATH", help="the state store (PERDURE_STATE, CHECKPOINT_DB_PATH)"
    )
    parser.add_argument("--registry", metavar="FILE", help="the server registry (PERDURE_REGISTRY)")


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Every default is None here, so that an option that was not given is told from one that was."""
    parser.add_argument(
        "--workspace",
        action="append",
        metavar="DIR",
        help="where files may be written; repeatable (PERDURE_WORKSPACE, RW_WORKSPACE; default: the current folder)",
    )
    parser.add_argument("--registry", metavar="FILE", help="the server registry (PERDURE_REGISTRY)")
    parser.add_argument(
        "--state", metavar="URL|PATH", help="the state store (PERDURE_STATE, CHECKPOINT_DB_PATH)"
    )
    parser.add_argument("--render", choices=RENDERS, help="how results are rendered (default: porcelain)")
    parser.add_argument("--detail", choices=DETAILS, help="how detailed results are (default: concise)")
    parser.add_argument("--surfaces", metavar="NAMES", help="which surfaces to serve (default: write,state)")
    parser.add_argument(
        "--tools", metavar="NAMES", help="serve only these tools of the surfaces (default: all)"
    )
    add_profile(parser)
    parser.add_argument(
        "--policy", metavar="FILE", help="what may be written, and where (PERDURE_POLICY, RW_POLICY_FILE)"
    )
    parser.add_argument(
        "--durability", choices=("journal", "strict"), help="when a write is acknowledged (default: journal)"
    )
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        help="lowest level of messages on standard error (default: warning)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        help="format of standard error (PERDURE_LOG_FORMAT; default: text)",
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        help="which tools are listed when a session opens (PERDURE_PROFILE; default: full; see perdure tools)",
    )


def add_mounts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mount",
        action="append",
        metavar="NAME='COMMAND ARGS'",
        help="mount a stdio MCP server; its tools are listed as NAME__tool; repeatable",
    )
    parser.add_argument(
        "--mount-env",
        action="append",
        metavar="NAME=VAR[,VAR…]",
        help="environment variables for the --mount of this name, besides PATH, HOME and a few others; repeatable",
    )


def add_task_after(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task-after",
        type=_seconds,
        metavar="SECONDS",
        help="a call that runs longer becomes a task, for a client that supports tasks (default: 0, never)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds, 0 or more")
    return value


def add_telemetry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--otel",
        metavar="URL|on",
        help="send spans and metrics to this OpenTelemetry collector; on: to OTEL_EXPORTER_OTLP_ENDPOINT (PERDURE_OTEL)",
    )


# Commands that show by themselves what waits for trust, or whose standard error is not read by a person.
_SILENT = frozenset({"doctor", "du", "gc", "hook", "serve", "status", "trust"})
# These start the servers of the registry. To the others it does not matter whether its file is trusted.
_MOUNTING = frozenset({"run", "call", "tools"})
# A server writes where its client started it. Every other command finds the workspace around the current folder.
_SERVERS = frozenset({"run", "serve", "wrap", "worker"})


def settle(options: argparse.Namespace, command: str, *, leave_out_faults: bool = False) -> Settings:
    """Exit with 2 and the reason where the settings cannot be meant.

    With `leave_out_faults`, as for a process that holds a session, only where that is in an option or a variable.
    """
    try:
        found = load(vars(options), os.environ, leave_out_faults=leave_out_faults, here=_here(command))
        if found.otel is not None:
            _check_telemetry()
        if command not in _SILENT and GUARDED not in os.environ:  # the host has said it for its worker
            _tell_untrusted(found, command)
        return found
    except SettingsError as error:
        print(f"perdure {command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _here(command: str) -> str:
    if command in _SERVERS:
        return "."
    from perdure.cli.locations import find_workspace

    return find_workspace(".")


def _tell_untrusted(settings: Settings, command: str) -> None:
    """What of the workspace's files does not count, and what to type."""
    from perdure.host.workspace_trust import untrusted_files, workspace_registry

    registry = None if command in _MOUNTING else workspace_registry(settings, os.environ)
    for file in untrusted_files(settings, os.environ):
        if file.path != registry:
            print(f"perdure {command}: {file.sentence}", file=sys.stderr)


def _check_telemetry() -> None:
    from importlib.util import find_spec

    try:
        is_there = find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        from perdure.cli.extras import install_command

        raise SettingsError(f"otel: OpenTelemetry is missing: {install_command('otel')}")

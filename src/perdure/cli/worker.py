"""`perdure worker`: the built-in surfaces as a plain stdio MCP server, without a host."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from perdure.cli.options import add_shared, settle
from perdure.cli.parser import Parser
from perdure.cli.worker_settings import worker_settings
from perdure.platform.guardian import MARK
from perdure.protocol.faults import Fault, printable

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

USAGE_ERROR = 2


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="perdure worker",
        description="The built-in surfaces as a plain stdio MCP server, without a host.",
    )
    add_shared(found)
    return found


def main(argv: list[str]) -> int:
    from perdure.worker.compose import hook_listener, surfaces
    from perdure.worker.server import serve_stdio

    known = settle(parser().parse_args(argv), "worker", leave_out_faults=True)
    for fault in known.faults:
        print(f"perdure worker: {fault.detail}", file=sys.stderr)
    try:
        settings = worker_settings(known)
        served = surfaces(settings)
    except ValueError as error:
        print(f"perdure worker: {error}", file=sys.stderr)
        return USAGE_ERROR
    if MARK in os.environ:
        _tell_host([*known.faults, *_policy_faults(settings)])
    listener = hook_listener(settings, served)
    if listener is not None:
        listener.start()
    code = serve_stdio(
        served,
        tools=settings.tools,
        profile=known.profile,
        view=settings.view,
        roots=settings.workspaces,
        log_level=settings.log_level,
        log_format=known.log_format,
    )
    if listener is not None:
        listener.close()
    return code


def _policy_faults(settings: Settings) -> list[Fault]:
    """Why no call may write, before the first one asks."""
    from perdure.protocol.envelope import ToolError
    from perdure.workspace import policy_file

    if "write" not in settings.surfaces:
        return []
    try:
        policy_file.load(settings.policy, settings.workspaces)
    except ToolError as error:
        _, _, problem = str(error.envelope.context["message"]).partition(": ")
        detail = f"nothing could be written when the worker started: {printable(problem)}"
        return [Fault("resource", "bad_policy", 0, detail, "fix it, then run perdure reload")]
    return []


def _tell_host(faults: list[Fault]) -> None:
    """For `health`. No other client is told: it would not know what this is."""
    import msgspec

    from perdure.protocol.eras import FILE_FAULTS_METHOD
    from perdure.protocol.frames import encode_notification

    os.write(1, encode_notification(FILE_FAULTS_METHOD, msgspec.json.encode({"faults": faults})) + b"\n")

"""`perdure worker`: the built-in surfaces as a plain stdio MCP server, without a host."""

from __future__ import annotations

import argparse
import sys

from perdure.cli.options import add_shared, settle
from perdure.cli.parser import Parser

USAGE_ERROR = 2


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="perdure worker",
        description="The built-in surfaces as a plain stdio MCP server, without a host.",
    )
    add_shared(found)
    return found


def main(argv: list[str]) -> int:
    from perdure.model.tools import View
    from perdure.worker.compose import Settings, surfaces
    from perdure.worker.server import serve_stdio

    known = settle(parser().parse_args(argv), "worker")
    try:
        settings = Settings(
            workspaces=known.workspaces,
            surfaces=known.surfaces,
            tools=known.tools,
            state=known.state,
            policy=known.policy,
            workspace_policy=known.workspace_policy,
            user_policy=known.user_policy,
            registry=known.registry,
            durability=known.durability,
            keep=known.keep,
            state_limits=known.state_limits,
            view=View(known.render, known.detail),
            log_level=known.log_level,
        )
        served = surfaces(settings)
    except ValueError as error:
        print(f"perdure worker: {error}", file=sys.stderr)
        return USAGE_ERROR
    return serve_stdio(
        served,
        tools=settings.tools,
        view=settings.view,
        roots=settings.workspaces,
        log_level=settings.log_level,
        log_format=known.log_format,
    )

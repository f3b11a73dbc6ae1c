"""`perdure worker`: the built-in surfaces as a plain stdio MCP server, without a host."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from perdure.model.eras import LOG_LEVELS
from perdure.model.tools import DETAILS, RENDERS, View

if TYPE_CHECKING:
    import argparse

    from perdure.worker.compose import Settings

USAGE_ERROR = 2


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    from perdure.worker.compose import surfaces
    from perdure.worker.server import serve_stdio

    try:
        settings = _settings(options)
        served = surfaces(settings)
    except ValueError as error:
        print(f"perdure worker: {error}", file=sys.stderr)
        return USAGE_ERROR
    return serve_stdio(served, view=settings.view, roots=settings.workspaces, log_level=settings.log_level)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="perdure worker",
        description="The built-in surfaces as a plain stdio MCP server, without a host.",
    )
    parser.add_argument(
        "--workspace",
        action="append",
        metavar="DIR",
        help="where files may be written; repeatable (PERDURE_WORKSPACE, RW_WORKSPACE, else here)",
    )
    parser.add_argument(
        "--state", metavar="URL|PATH", help="the state store (PERDURE_STATE, CHECKPOINT_DB_PATH)"
    )
    parser.add_argument("--registry", metavar="FILE", help="the server registry (PERDURE_REGISTRY)")
    parser.add_argument("--policy", metavar="FILE", help="what may be written, and where")
    parser.add_argument("--surfaces", default="write,state", metavar="NAMES", help="which surfaces to serve")
    parser.add_argument("--render", choices=RENDERS, default="porcelain", help="default render of results")
    parser.add_argument("--detail", choices=DETAILS, default="concise", help="default detail of results")
    parser.add_argument("--durability", choices=("journal", "strict"), default="journal")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    from perdure.worker.compose import Settings

    environ = os.environ
    given = options.workspace or _paths(environ.get("PERDURE_WORKSPACE") or environ.get("RW_WORKSPACE"))
    return Settings(
        workspaces=tuple(os.path.realpath(path) for path in given or ["."]),
        surfaces=tuple(name.strip() for name in options.surfaces.split(",") if name.strip()),
        state=options.state or environ.get("PERDURE_STATE") or environ.get("CHECKPOINT_DB_PATH"),
        policy=options.policy,
        registry=options.registry or environ.get("PERDURE_REGISTRY"),
        durability=options.durability,
        view=View(options.render, options.detail),
        log_level=options.log_level,
    )


def _paths(value: str | None) -> list[str]:
    return [path for path in (value or "").split(os.pathsep) if path]

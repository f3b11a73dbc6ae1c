"""`perdure registry enable` and `disable`: whether the host mounts a server."""

from __future__ import annotations

import argparse

from perdure.cli.registry.shared import editable_backend_of, print_result


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def run(options: argparse.Namespace) -> int:
    enabled = options.command_name == "enable"
    ref = editable_backend_of(options).set_enabled(options.name, enabled)
    print_result(options, {"name": ref.name, "enabled": ref.enabled}, f"{options.command_name}d {ref.name}")
    return 0

"""`perdure registry uninstall`: removes a server; it is no error if it is not there."""

from __future__ import annotations

import argparse

from perdure.cli.registry.shared import backend_of, print_result
from perdure.registry.entry import check_name


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def run(options: argparse.Namespace) -> int:
    check_name(options.name)
    backend = backend_of(options)
    was_there = backend.uninstall(options.name)
    text = f"uninstalled {options.name}" if was_there else f"{options.name} is not installed"
    print_result(options, {"uninstalled": options.name, "was_there": was_there}, text)
    return 0

"""`perdure registry uninstall`: gone afterwards, whether it was there or not."""

from __future__ import annotations

import argparse

from perdure.cli.registry.shared import backend_of, printed
from perdure.registry.entry import check_name


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def run(options: argparse.Namespace) -> int:
    check_name(options.name)
    backend = backend_of(options)
    was_there = backend.uninstall(options.name)
    text = f"uninstalled {options.name}" if was_there else f"{options.name} is not installed"
    printed(options, {"uninstalled": options.name, "was_there": was_there}, text)
    return 0

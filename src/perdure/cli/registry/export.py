"""`perdure registry export`: the registry's servers written into another client's file; nothing is taken out of it."""

from __future__ import annotations

import argparse

from perdure.cli.registry.views import add_view, run_view


def add(parser: argparse.ArgumentParser) -> None:
    add_view(parser)


def run(options: argparse.Namespace) -> int:
    return run_view(options, sync=False)

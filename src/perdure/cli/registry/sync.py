"""`perdure registry sync`: another client's file kept in step with the registry, in what Perdure wrote there."""

from __future__ import annotations

import argparse

from perdure.cli.registry.views import add_view, run_view


def add(parser: argparse.ArgumentParser) -> None:
    add_view(parser)


def run(options: argparse.Namespace) -> int:
    return run_view(options, sync=True)

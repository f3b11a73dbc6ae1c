"""`perdure registry refresh-capabilities`: what the registry's backend can do, asked anew."""

from __future__ import annotations

import argparse

from msgspec import structs

from perdure.cli.registry.shared import backend_of, printed


def add(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    backend = backend_of(options)
    found = {"backend_id": backend.backend_id, **structs.asdict(backend.refresh_capabilities())}
    lines = (
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in found.items()
    )
    printed(options, found, "\n".join(lines))
    return 0

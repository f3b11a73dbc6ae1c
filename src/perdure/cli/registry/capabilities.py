"""`perdure registry refresh-capabilities`: what the registry's backend can do, asked anew."""

from __future__ import annotations

import argparse

from msgspec import structs

from perdure.cli.registry.shared import backend_of, print_result


def add(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    backend = backend_of(options)
    fields = {"backend_id": backend.backend_id, **structs.asdict(backend.refresh_capabilities())}
    lines = (
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in fields.items()
    )
    print_result(options, fields, "\n".join(lines))
    return 0

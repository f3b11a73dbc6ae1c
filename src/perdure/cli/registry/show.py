"""`perdure registry show`: one server, its references unresolved and its literal secrets hidden."""

from __future__ import annotations

import argparse
from json import dumps
from typing import Any

from perdure.cli.registry.shared import backend_of, print_result
from perdure.registry.redaction import mask_entry


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def run(options: argparse.Namespace) -> int:
    backend = backend_of(options)
    entry = backend.load(options.name)
    fields = mask_entry(entry)
    fields["source"] = backend.source(options.name)
    print_result(options, fields, "\n".join(_lines(fields)))
    return 0


def _lines(fields: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in fields.items():
        if value in (None, "", [], {}) or (isinstance(value, dict) and not any(value.values())):
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, dict) and key in ("env", "headers"):
            lines += [f"{key}: {name}={text}" for name, text in value.items()]
            continue
        elif isinstance(value, (dict, list)):
            value = dumps(value, ensure_ascii=False)
        lines.append(f"{key}: {value}")
    return lines

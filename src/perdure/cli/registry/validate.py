"""`perdure registry validate`: whether one server, or each of them, could be started; nothing is."""

from __future__ import annotations

import argparse

from perdure.cli.registry.shared import backend_of, print_result
from perdure.registry.backend import Backend, ServerRef, ValidationResult
from perdure.registry.entry import check_name


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="default: every server")


def run(options: argparse.Namespace) -> int:
    backend = backend_of(options)
    if options.name is not None:
        check_name(options.name)
        results = [(options.name, backend.validate(options.name))]
        value = _shown(*results[0])
    else:
        results = [(ref.name, _result(backend, ref)) for ref in backend.list_servers()]
        value = {
            "ok": all(result.ok for _, result in results),
            "servers": [_shown(name, result) for name, result in results],
        }
    print_result(options, value, "\n".join(line for name, result in results for line in _lines(name, result)))
    return 0 if value["ok"] else 1


def _result(backend: Backend, ref: ServerRef) -> ValidationResult:
    return ValidationResult(False, (ref.error,)) if ref.error else backend.validate(ref.name)


def _shown(name: str, result: ValidationResult) -> dict[str, object]:
    return {"name": name, "ok": result.ok, "errors": result.errors, "warnings": result.warnings}


def _lines(name: str, result: ValidationResult) -> list[str]:
    return [
        f"{name}: {'ok' if result.ok else 'failed'}",
        *(f"  error: {text}" for text in result.errors),
        *(f"  warning: {text}" for text in result.warnings),
    ]

"""`perdure registry list`: every server of the registry, the broken ones too."""

from __future__ import annotations

import argparse

from perdure.cli.registry.shared import backend_of, print_result, table, untrusted_registry
from perdure.registry.backend import ServerRef


def add(parser: argparse.ArgumentParser) -> None:
    pass


def run(options: argparse.Namespace) -> int:
    refs = backend_of(options).list_servers()
    is_trusted = untrusted_registry(options) is None
    rows = [["NAME", "TRANSPORT", "STATE", "DESCRIPTION"], *(_row(ref, is_trusted) for ref in refs)]
    text = (
        table(rows)
        if refs
        else "No MCP servers in the registry. Add one: perdure registry install NAME -- COMMAND ARGS…"
    )
    print_result(options, {"servers": [{**_to_json(ref), "trusted": is_trusted} for ref in refs]}, text)
    return 0


def _to_json(ref: ServerRef) -> dict[str, object]:
    fields: dict[str, object] = {
        "name": ref.name,
        "enabled": ref.enabled,
        "transport": ref.transport or None,
        "description": ref.description,
        "version": ref.version,
        "source": ref.source,
    }
    if ref.error:
        fields["error"] = ref.error
    return fields


def _row(ref: ServerRef, is_trusted: bool) -> list[str]:
    usual = "enabled" if is_trusted else "untrusted"
    state = "error" if ref.error else usual if ref.enabled else "disabled"
    return [ref.name, ref.transport or "-", state, ref.error or ref.description]

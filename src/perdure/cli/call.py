"""`perdure call`: one tool call from the terminal, in a session of its own, as a client would make it."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

import msgspec

from perdure.cli.options import add_locations, settle
from perdure.cli.output import encodable
from perdure.cli.parser import Parser
from perdure.protocol.mount_names import SEPARATOR

_START_S: Final = 60.0
_ANSWER_S: Final = 24 * 3600.0
_CLIENT: Final = {"name": "perdure-cli", "version": "1"}
_INVALID_PARAMS: Final = -32602
_FAILED, _USAGE, _UNAVAILABLE = 1, 2, 4


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="perdure call",
        description="Call one tool, a built-in one or a mounted server's (NAME__tool), and print its result. Exit code 1 if "
        "the call failed, 2 for an unknown tool, 4 if its server is not available.",
    )
    made.add_argument("tool", metavar="TOOL", help="see perdure tools")
    made.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="an argument as text; KEY:=JSON for numbers, lists and objects, as in the `next:` line of an error",
    )
    made.add_argument("--json", action="store_true", help="print the whole result as JSON")
    add_locations(made)
    return made


def main(argv: list[str]) -> int:
    from perdure.protocol.next_step import parse_argument
    from perdure.testing.raw_client import Ended, RawClient

    options = parser().parse_args(argv)
    try:
        arguments = dict(parse_argument(word) for word in options.arguments)
    except ValueError as error:
        parser().error(str(error))
    if options.json and SEPARATOR not in options.tool:  # a mounted server may refuse unknown arguments
        arguments = {"render": "json", "detail": "full", **arguments}
    settings = settle(options, "call")
    command = [sys.executable, "-P", "-m", "perdure", "run"]
    for workspace in settings.workspaces:
        command += ["--workspace", workspace]
    for name in ("state", "registry"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", value]
    with RawClient(command) as client:
        try:
            client.initialize(capabilities={}, client_info=_CLIENT, timeout=_START_S)
            answer = client.call(options.tool, arguments, timeout=_ANSWER_S)
        except Ended:
            sys.stderr.write(client.stderr)
            return _UNAVAILABLE
    return (
        _print_error(answer["error"]) if "error" in answer else _print_result(answer["result"], options.json)
    )


def _print_error(error: dict[str, Any]) -> int:
    print(f"perdure call: {encodable(error['message'])}", file=sys.stderr)
    return _USAGE if error["code"] == _INVALID_PARAMS else _UNAVAILABLE


def _print_result(result: dict[str, Any], as_json: bool) -> int:
    is_error = bool(result.get("isError"))
    if as_json:
        shown = result.get("structuredContent", result)
        sys.stdout.buffer.write(msgspec.json.encode(shown) + b"\n")
    else:
        stream = sys.stderr if is_error else sys.stdout
        for block in result["content"]:
            text = block["text"] if block["type"] == "text" else f"[{block['type']}]"
            print(encodable(text), file=stream)
    return _FAILED if is_error else 0

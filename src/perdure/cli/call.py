"""`perdure call`: one tool call from the terminal, in a session of its own, as a client would make it."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, Final

from perdure.cli.options import add_locations, settle
from perdure.cli.output import EXIT_CODES, encodable, exit_code, print_json
from perdure.cli.parser import Parser
from perdure.host.settings import Settings
from perdure.protocol.mount_names import SEPARATOR

_ANSWER_S: Final = 24 * 3600.0
CLIENT: Final = "perdure-cli"
_INVALID_PARAMS: Final = -32602
_CODE: Final = re.compile(r"\[(\w+)/\w+\]\s*\Z")
_FAILED, _USAGE, _UNAVAILABLE = 1, 2, 4


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="perdure call",
        description="Call one tool, a built-in one or a mounted server's (NAME__tool), and print its result. Exit code 1 if "
        "the call failed, 2 for an unknown tool or a wrong argument, 3 for a conflict, 4 if its server is not available.",
    )
    made.add_argument(
        "tool", metavar="TOOL", help="see perdure tools; perdure tools TOOL shows its arguments"
    )
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
    from perdure.cli.host_session import SessionFailed, open_session
    from perdure.protocol.next_step import parse_argument

    options = parser().parse_args(argv)
    try:
        arguments = dict(parse_argument(word) for word in options.arguments)
    except ValueError as error:
        parser().error(str(error))
    if options.json and SEPARATOR not in options.tool:  # a mounted server may refuse unknown arguments
        arguments = {"render": "json", "detail": "full", **arguments}
    settings = settle(options, "call")
    try:
        with open_session(CLIENT, host_options(options, settings), state=options.state) as session:
            answer = session.call(options.tool, arguments, _ANSWER_S)
    except SessionFailed as error:
        print(f"perdure call: no host could be started: {error}", file=sys.stderr)
        return _UNAVAILABLE
    if "error" in answer:
        return _print_error(answer["error"])
    return _print_result(answer["result"], options.json)


def host_options(options: argparse.Namespace, settings: Settings) -> list[str]:
    """The options of `perdure run` for the same workspaces and registry."""
    words = [word for workspace in settings.workspaces for word in ("--workspace", workspace)]
    return [*words, "--registry", options.registry] if options.registry is not None else words


def _print_error(error: dict[str, Any]) -> int:
    print(f"perdure call: {encodable(error['message'])}", file=sys.stderr)
    if error["code"] != _INVALID_PARAMS:
        return _UNAVAILABLE
    print(
        "`perdure tools` lists the tools, `perdure tools TOOL` shows the arguments of one.", file=sys.stderr
    )
    return _USAGE


def _print_result(result: dict[str, Any], as_json: bool) -> int:
    is_error = bool(result.get("isError"))
    if as_json:
        print_json(result.get("structuredContent", result))
    else:
        stream = sys.stderr if is_error else sys.stdout
        for block in result["content"]:
            text = block["text"] if block["type"] == "text" else f"[{block['type']}]"
            print(encodable(text), file=stream)
    return _exit_code(result) if is_error else 0


def _exit_code(result: dict[str, Any]) -> int:
    """By the error's kind: in the envelope, or in the last line of its text, `[kind/reason]`."""
    envelope = result.get("structuredContent")
    if isinstance(envelope, dict) and "context" in envelope:
        return exit_code(envelope)
    text = "".join(block.get("text", "") for block in result["content"])
    code = _CODE.search(text)
    return EXIT_CODES.get(code[1], _FAILED) if code is not None else _FAILED

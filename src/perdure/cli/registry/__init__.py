"""`perdure registry`: the user's servers, from the terminal.

One module per command. To add one: write `cli/registry/NAME.py` with `add(parser)`, which declares its options, and
`run(options) -> int`, and add its line to `COMMANDS`. All commands have `options.registry`, `options.workspace` and
`options.json`, before the command's name and after it; `shared.py` opens the registry and prints results. A `RegistryError`
is printed, and its `exit_code` returned. The words after `--` are in `options.behind`.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from types import ModuleType

from perdure.cli.parser import Parser

# name: (module, one line of help); a module is loaded only when its command is used.
COMMANDS = {
    "list": ("perdure.cli.registry.list_servers", "every server, with its problem where it has one"),
    "show": ("perdure.cli.registry.show", "one server; references, never resolved values"),
    "validate": ("perdure.cli.registry.validate", "check one server or all, without starting any"),
    "refresh-capabilities": (
        "perdure.cli.registry.capabilities",
        "print what the registry's backend supports",
    ),
    "install": (
        "perdure.cli.registry.install",
        "add a server: install NAME [OPTIONS] -- COMMAND ARGS…, or install [--from] CATALOG_NAME[@VERSION]",
    ),
    "uninstall": ("perdure.cli.registry.uninstall", "remove a server"),
    "enable": ("perdure.cli.registry.enable", "let the host mount a server"),
    "disable": ("perdure.cli.registry.enable", "keep a server, but do not mount it"),
    "search": ("perdure.cli.registry.search", "find servers in a catalog"),
    "outdated": ("perdure.cli.registry.outdated", "what a catalog has in a newer version"),
    "update": ("perdure.cli.registry.update", "take the newest version of a server from its catalog"),
    "serve": ("perdure.cli.registry.serve", "serve the registry to others as a catalog"),
    "approve": ("perdure.cli.registry.approve", "accept the changed tools of a pinned server"),
    "login": ("perdure.cli.registry.login", "sign in to a remote server; the token is kept and never shown"),
    "logout": ("perdure.cli.registry.login", "forget the sign-in to a remote server"),
    "import": ("perdure.cli.registry.import_servers", "take another client's servers into the registry"),
    "export": ("perdure.cli.registry.export", "write the servers into another client's file"),
    "sync": ("perdure.cli.registry.export", "keep another client's file in step with the registry"),
}
USAGE_ERROR = 2
# Their values may begin with a dash: `--arg -y`.
_DASH_VALUES = ("--arg", "--env", "--header", "--oauth", "--description")


def main(argv: list[str]) -> int:
    own, behind = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, None)
    name = _command_in(own)
    if name is None:
        _overview().parse_args(own)
        _overview().error("no command")
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, 1)
        _overview().error(f"no command {name}" + (f"; did you mean {near[0]}?" if near else ""))
    from perdure.cli.registry.shared import print_error, warn, warn_untrusted
    from perdure.registry.errors import RegistryError

    at = own.index(name)
    module = import_module(COMMANDS[name][0])
    options = _options(module, name, own[:at] + own[at + 1 :])
    options.command_name, options.behind = name, behind
    try:
        code = int(module.run(options))
        warn_untrusted(options)
        warn(getattr(getattr(options, "backend", None), "notice", ""))
        return code
    except RegistryError as error:
        return print_error(error, options)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _options(module: ModuleType, name: str, words: list[str]) -> argparse.Namespace:
    parser = Parser(prog=f"perdure registry {name}", description=COMMANDS[name][1])
    add_shared(parser)
    module.add(parser)
    return parser.parse_args(_join_values(words))


def parser() -> argparse.ArgumentParser:
    """All commands as one parser, for completion and documentation."""
    overview = _overview()
    commands = overview.add_subparsers(metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        add_shared(command)
        import_module(module).add(command)
    return overview


def add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--registry", metavar="FILE|URL", help="the registry (PERDURE_REGISTRY, else mcp.md or mcp.json)"
    )
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="where to look for the registry (PERDURE_WORKSPACE; default: the current folder)",
    )
    parser.add_argument("--json", action="store_true", help="print the whole result as JSON")


def _overview() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog="perdure registry",
        usage="perdure registry [OPTIONS] COMMAND [OPTIONS]",
        description="The servers you use: one list, mounted by the host.\n\n"
        + "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_shared(parser)
    return parser


def _command_in(words: list[str]) -> str | None:
    """The first word that is neither an option nor the value of one."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("--registry", "--workspace"):
            skip = True
        elif not word.startswith("-"):
            return word
    return None


def _join_values(words: list[str]) -> list[str]:
    """`--arg -y` as `--arg=-y`: argparse would take the value for another option."""
    joined: list[str] = []
    rest = iter(words)
    for word in rest:
        value = next(rest, None) if word in _DASH_VALUES else None
        joined.append(word if value is None else f"{word}={value}")
    return joined

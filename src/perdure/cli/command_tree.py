"""Every command with its options and arguments, read from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Final, Literal, NamedTuple

from perdure.cli.main import COMMANDS

Kind = Literal["words", "file", "folder", "text"]
_FILES: Final = ("FILE", "PATH", "URL|PATH", "FILE|URL")


class Argument(NamedTuple):
    """What stands behind an option, or in a place of its own."""

    name: str
    kind: Kind
    words: tuple[str, ...] = ()


class Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    value: Argument | None
    repeats: bool


class Node(NamedTuple):
    name: str
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]
    commands: tuple[Node, ...]


def tree() -> Node:
    """The whole of `perdure`."""
    commands = tuple(
        _node(name, text, import_module(module).parser()) for name, (module, text) in COMMANDS.items()
    )
    own = (
        Option(("-h", "--help"), "show the commands", None, False),
        Option(("-V", "--version"), "show the version", None, False),
    )
    return Node("perdure", "", own, (), commands)


def places(node: Node, at: str = "") -> Iterator[tuple[str, Node]]:
    """Every node with the words that lead to it: `""`, `/state`, `/state/get`."""
    yield at, node
    for command in node.commands:
        yield from places(command, f"{at}/{command.name}")


def _node(name: str, text: str, parser: argparse.ArgumentParser) -> Node:
    options: list[Option] = []
    arguments: list[Argument] = []
    commands: list[Node] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            commands += [_node(word, helps.get(word, ""), sub) for word, sub in action.choices.items()]
        elif action.option_strings:
            value = _argument(action) if action.nargs != 0 else None
            options.append(Option(tuple(action.option_strings), _one_line(action), value, _repeats(action)))
        else:
            arguments.append(_argument(action))
    return Node(name, text, tuple(options), tuple(arguments), tuple(commands))


def _one_line(action: argparse.Action) -> str:
    return " ".join((action.help or "").split())


def _repeats(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _argument(action: argparse.Action) -> Argument:
    shown = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices is not None:
        return Argument(shown, "words", tuple(map(str, action.choices)))
    if shown == "DIR":
        return Argument(shown, "folder")
    return Argument(shown, "file" if shown in _FILES else "text")

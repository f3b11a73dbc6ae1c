"""`perdure completion`: prints the completion script of a shell, made from the parsers of all commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, Literal, NamedTuple

from perdure.cli.main import COMMANDS
from perdure.cli.parser import new_parser

SHELLS = ("bash", "zsh", "fish")
HOW_TO = """\
write it once into the directory from which the shell loads completions:
  bash   perdure completion bash > ~/.local/share/bash-completion/completions/perdure
  zsh    perdure completion zsh > ~/.zfunc/_perdure    (a directory in $fpath)
  fish   perdure completion fish > ~/.config/fish/completions/perdure.fish
"""


def parser() -> argparse.ArgumentParser:
    found = new_parser(
        "completion",
        "Print the completion of a shell, made from the commands themselves.",
        epilog=HOW_TO,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("shell", choices=SHELLS)
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    print(script(options.shell, tree()), end="")
    return 0


# --- the tree of commands ----------------------------------------------------------------------

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


# --- scripts --------------------------------------------------------------------------------


def script(shell: str, root: Node) -> str:
    return "\n".join(_SCRIPTS[shell](root)) + "\n"


def _quoted(text: str) -> str:
    """One word for a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _alternatives(words: list[str]) -> str:
    return "|".join(_quoted(word) for word in words)


# --- bash: no associative arrays, so that the old bash of macOS has it too ------------------------------------

_BASH_HEAD: Final = """\
_perdure() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at= words= IFS=$'\\n' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at/${COMP_WORDS[i]}" in"""
_BASH_TAIL: Final = """\
    if [[ $cur == -* || $files == "" ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$words" -- "$cur") $(compgen -f -- "$cur"))
    fi
}
complete -o filenames -F _perdure perdure"""


def _bash(root: Node) -> Iterator[str]:
    nodes = list(places(root))
    yield _BASH_HEAD
    yield f"            {_alternatives([at for at, _ in nodes if at])}) at=$at/${{COMP_WORDS[i]}} ;;"
    yield "        esac"
    yield "    done"
    yield '    case "$at $prev" in'
    for at, node in nodes:
        for option in node.options:
            if option.value is not None:
                flags = _alternatives([f"{at} {flag}" for flag in option.flags])
                yield f"        {flags}) COMPREPLY=({_bash_value(option.value)}); return ;;"
    yield "    esac"
    yield "    local files="
    yield '    case "$at" in'
    for at, node in nodes:
        words = [flag for option in node.options for flag in option.flags]
        words += [command.name for command in node.commands]
        words += [word for argument in node.arguments for word in argument.words]
        takes_files = any(argument.kind in ("file", "folder") for argument in node.arguments)
        yield f"        {_quoted(at)}) words={_quoted(chr(10).join(words))}{'; files=1' if takes_files else ''} ;;"
    yield "    esac"
    yield _BASH_TAIL


def _bash_value(value: Argument) -> str:
    match value.kind:
        case "words":
            return f'$(compgen -W {_quoted(chr(10).join(value.words))} -- "$cur")'
        case "folder":
            return '$(compgen -d -- "$cur")'
        case "file":
            return '$(compgen -f -- "$cur")'
        case "text":
            return ""


# --- zsh -------------------------------------------------------------------------------------------------------


def _zsh(root: Node) -> Iterator[str]:
    yield "#compdef perdure"
    for at, node in places(root):
        yield f"_perdure{at.replace('/', '_').replace('-', '_')}() {{"
        yield from _zsh_body(at, node)
        yield "}"
    # As a file in $fpath the script itself is the function; sourced, it has to register that.
    yield 'if [[ $funcstack[1] == _perdure ]]; then _perdure "$@"; else compdef _perdure perdure; fi'


def _zsh_body(at: str, node: Node) -> Iterator[str]:
    specs = [_zsh_option(option) for option in node.options]
    if node.commands:
        specs += ["'1:command:->command'", "'*::argument:->argument'"]
        yield "    local state line"
        yield "    local -a commands"
        yield f"    _arguments -C {' '.join(specs)}"
        yield "    case $state in"
        described = " ".join(_quoted(f"{c.name}:{_zsh_text(c.help)}") for c in node.commands)
        yield f"        command) commands=({described}); _describe -t commands command commands ;;"
        yield "        argument) case $line[1] in"
        for command in node.commands:
            function = f"_perdure{at}/{command.name}".replace("/", "_").replace("-", "_")
            yield f"            {command.name}) {function} ;;"
        yield "        esac ;;"
        yield "    esac"
        return
    for number, argument in enumerate(node.arguments, 1):
        specs.append(_quoted(f"{number}:{_zsh_text(argument.name)}:{_zsh_action(argument)}"))
    yield f"    _arguments -s {' '.join(specs)}"


def _zsh_option(option: Option) -> str:
    value = f":{_zsh_text(option.value.name)}:{_zsh_action(option.value)}" if option.value is not None else ""
    help_text = f"[{_zsh_text(option.help)}]"
    if len(option.flags) == 1 or option.repeats:
        star = "*" if option.repeats else ""
        return " ".join(_quoted(f"{star}{flag}{help_text}{value}") for flag in option.flags)
    apart = f"({' '.join(option.flags)})"
    return " ".join(_quoted(f"{apart}{flag}{help_text}{value}") for flag in option.flags)


def _zsh_action(argument: Argument) -> str:
    actions = {"words": f"({' '.join(argument.words)})", "folder": "_files -/", "file": "_files", "text": ""}
    return actions[argument.kind]


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


# --- fish ------------------------------------------------------------------------------------------------------

_FISH_HEAD: Final = """\
function __perdure_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        contains -- "$at/$word" $__perdure_places; and set at "$at/$word"
    end
    test "$at" = "$argv[1]"
end
complete -c perdure -f"""


def _fish(root: Node) -> Iterator[str]:
    nodes = list(places(root))
    yield f"set -g __perdure_places {' '.join(_fish_quoted(at) for at, _ in nodes if at)}"
    yield _FISH_HEAD
    for at, node in nodes:
        here = f"complete -c perdure -n {_fish_quoted(f'__perdure_at {_fish_quoted(at)}')}"
        for command in node.commands:
            yield f"{here} -a {command.name} -d {_fish_quoted(command.help)}"
        for option in node.options:
            yield f"{here} {_fish_option(option)}"
        for argument in node.arguments:
            if argument.words:
                yield f"{here} -a {_fish_quoted(' '.join(argument.words))}"
            elif argument.kind in ("file", "folder"):
                yield f"{here} -F"


def _fish_option(option: Option) -> str:
    parts = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags]
    match option.value:
        case None:
            pass
        case Argument(kind="words", words=words):
            parts.append(f"-x -a {_fish_quoted(' '.join(words))}")
        case Argument(kind="folder"):
            parts.append("-x -a '(__fish_complete_directories)'")
        case Argument(kind="file"):
            parts.append("-r -F")
        case _:
            parts.append("-x")
    return f"{' '.join(parts)} -d {_fish_quoted(option.help)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS: Final[dict[str, Callable[[Node], Iterator[str]]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

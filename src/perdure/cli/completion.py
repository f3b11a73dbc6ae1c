"""`perdure completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import argparse

from perdure.cli.completion_scripts import script
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
    from perdure.cli.command_tree import tree

    options = parser().parse_args(argv)
    print(script(options.shell, tree()), end="")
    return 0

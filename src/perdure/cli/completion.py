"""`perdure completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import argparse

from perdure.cli.parsing import formatter_as_written, new_parser

SHELLS = ("bash", "zsh", "fish")
HOW_TO = """\
to use it now and from now on:
  bash   echo 'source <(perdure completion bash)' >> ~/.bashrc
  zsh    echo 'source <(perdure completion zsh)' >> ~/.zshrc    (after compinit)
  fish   echo 'perdure completion fish | source' >> ~/.config/fish/config.fish
"""


def parser() -> argparse.ArgumentParser:
    found = new_parser(
        "completion",
        "Print the completion of a shell, made from the commands themselves.",
        epilog=HOW_TO,
        formatter_class=formatter_as_written,
    )
    found.add_argument("shell", choices=SHELLS)
    return found


def main(argv: list[str]) -> int:
    shell = parser().parse_args(argv).shell
    from perdure.cli.command_tree import tree
    from perdure.cli.completion_scripts import script

    print(script(shell, tree()), end="")
    return 0

"""`perdure completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import os

from perdure.cli.parsing import formatter_as_written, new_parser, quickly

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

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
    options = quickly(argv, {}, ("shell",))
    if options is None or options.shell not in SHELLS:
        options = parser().parse_args(argv)
    print(script(options.shell), end="")
    return 0


def script(shell: str) -> str:
    """As `docs/generate.py` has written it down: to ask every command for its options takes ten times as long."""
    with open(os.path.join(os.path.dirname(__file__), "completions", shell), encoding="utf-8") as file:
        return file.read()

"""`perdure state`: the shared state from the terminal."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def parser() -> argparse.ArgumentParser:
    from perdure.cli import state_commands

    return state_commands.parser()


def main(argv: list[str]) -> int:
    from perdure.cli.state_rows import answered

    if answered(argv):
        return 0
    from perdure.cli import state_commands

    return state_commands.main(argv)

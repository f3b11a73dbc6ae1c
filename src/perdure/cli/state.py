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

    if (code := answered(argv)) is not False:
        return 0 if code is True else code
    from perdure.cli import state_commands

    return state_commands.main(argv)

"""`perdure uninstall CLIENT`: what `perdure install` wrote, taken out of the client's config file again."""

from __future__ import annotations

import argparse

from perdure.cli.install import parser_of, run


def parser() -> argparse.ArgumentParser:
    return parser_of("uninstall", "Take Perdure's own entry out of a client's config file.")


def main(argv: list[str]) -> int:
    return run(parser(), argv)

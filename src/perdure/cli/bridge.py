"""`perdure bridge`: a remote server behind a pipe. The host starts it; it is no command for people."""

from __future__ import annotations

from typing import NoReturn


def main(argv: list[str]) -> NoReturn:
    from perdure.bridge.relay import main as run

    run()

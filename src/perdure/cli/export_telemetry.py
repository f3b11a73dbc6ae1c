"""`perdure export-telemetry`: what the host starts to send its telemetry; no command for people."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    from perdure.telemetry.otlp_process import main as run

    return run()

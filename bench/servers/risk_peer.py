"""Scores texts with a peer, inside the peer's own environment: a JSON list on stdin, one answer for each text.

python risk_peer.py resilient-write|detect-secrets < texts.json
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable

WARNED = ("medium", "high")


def resilient_write() -> Callable[[str], str]:
    from resilient_write.risk_score import score_content

    return lambda text: score_content(text)["verdict"]


def detect_secrets() -> Callable[[str], str]:
    """As its users run it: with its default plugins and filters, over a file."""
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    def scan(text: str) -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file, default_settings():
            file.write(text)
            file.flush()
            return "high" if any(True for _ in scan_file(file.name)) else "safe"

    return scan


def main() -> None:
    score = {"resilient-write": resilient_write, "detect-secrets": detect_secrets}[sys.argv[1]]()
    answers = []
    for text in json.load(sys.stdin):
        begun = time.process_time()
        verdict = score(text)
        seconds = time.process_time() - begun
        answers.append({"seconds": seconds, "warned": verdict in WARNED, "blocked": verdict == "high"})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

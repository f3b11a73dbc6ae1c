"""`perdure` commands in the test's own process. A process of its own would spend most of its time on imports."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from perdure.cli.main import main


def run_command(*words: str, env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` without a terminal and without input."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        patch.dict(os.environ, env, clear=True),
        open(os.devnull) as nothing,
        patch("sys.stdin", nothing),
        redirect_stdout(out),
        redirect_stderr(err),
        chdir(cwd),
    ):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    shown, told = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(list(words), code, shown, told)

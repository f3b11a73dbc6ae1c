"""The folders of one session, and how its processes are started in them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from harness.crash.plan import Plan
from harness.processes import MARK
from harness.user_settings import user_settings
from perdure.platform.fault_points import VARIABLE

_RAISED: Final = """\
[limits]
restarts_per_minute = 1000000
unproductive_starts = 1000000
probes = 1000
backoff_s = 0.01
backoff_max_s = 0.05
"""


class Place:
    """Two roots of one workspace, a home, and logs. Paths in the second root begin with `@1/`."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.roots = (folder / "workspace", folder / "other")
        self.home = folder / "home"
        for path in (*self.roots, self.home):
            path.mkdir()
        self._settings = user_settings(folder, _RAISED if plan.kind == "hosted" else "")
        self.options = [
            *(word for root in self.roots for word in ("--workspace", str(root))),
            *("--render", "json", "--detail", "full"),
            *("--durability", "strict" if plan.strict else "journal"),
        ]

    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "perdure", "run", *self.options]

    def environ(self, faults: str, mark: str) -> dict[str, str]:
        """A process that ends by a fault of its own says where."""
        told = {"PERDURE_HOME": str(self.home), "PYTHONFAULTHANDLER": "1"}
        return {**os.environ, **told, **self._settings, MARK: mark, VARIABLE: faults}

    def open_log(self) -> int:
        return os.open(self.folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def said(self) -> str:
        """What its processes wrote there."""
        log = self.folder / "stderr"
        return log.read_text(errors="replace") if log.exists() else ""

    def file(self, path: str) -> Path:
        """Where a file of the journal is."""
        return self.roots[1] / path[3:] if path.startswith("@1/") else self.roots[0] / path

    def name(self, file: Path) -> str:
        """How the journal calls a file."""
        inside = self.roots[0] in file.parents
        return str(file.relative_to(self.roots[0])) if inside else f"@1/{file.relative_to(self.roots[1])}"

    def content(self, path: str) -> bytes | None:
        try:
            return self.file(path).read_bytes()
        except FileNotFoundError:
            return None

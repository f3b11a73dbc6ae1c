"""Settings files of the workspace that wait for the user's trust."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.host.workspace_trust import untrusted_files
from perdure.protocol.pending_trust import command_for

CHECK: Final = "trust"


def check(context: DoctorContext) -> Iterator[Finding]:
    files = untrusted_files(context.settings, os.environ)
    for file in files:
        starts = "; ".join(f"{start.name} would run {start.shown}" for start in file.starts)
        yield Finding(
            CHECK,
            "warning",
            f"{file.sentence}" + (f" ({starts})" if starts else ""),
            "it came with the workspace: what it starts runs with your rights",
            f"read it, then: {command_for(file.path)}",
        )
    if not files:
        yield ok(CHECK, "nothing in the workspace waits for trust")

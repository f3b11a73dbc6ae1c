"""Running one session in a folder of its own, which stays only where something is wrong with it."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from pathlib import Path

import msgspec

from harness.crash.plan import Plan
from harness.crash.session import Outcome, Session


def run(plan: Plan) -> Outcome:
    """For a process that has one thread: sessions fork."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-crash-"))
    session = Session(plan, folder)
    try:
        outcome = session.run()
    except Exception:
        outcome = session.outcome
        outcome.violations.append(f"the session itself failed: {traceback.format_exc()}")
    if outcome.violations:
        outcome.folder = str(folder)
        (folder / "history").write_text("\n".join([str(plan), *outcome.history, *outcome.violations]) + "\n")
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    else:
        shutil.rmtree(folder)
    return outcome

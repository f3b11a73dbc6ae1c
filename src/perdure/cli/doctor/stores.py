"""Journal, contents and files against each other, and the formats of the stores."""

from __future__ import annotations

import os
from collections.abc import Iterator

from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.locations import state_file, store_place
from perdure.cli.output import Progress
from perdure.cli.store_inspector import state_summary
from perdure.cli.worker_settings import write_settings
from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError
from perdure.storage.sqlite import read_only

CHECK = "journal"
STATE = "state"
SHOWN = 5


def check_journal(context: DoctorContext) -> Iterator[Finding]:
    store = store_place(context.settings)
    if store.reason:
        yield Finding(CHECK, "note", f"the store is in {store.folder}: {store.reason}")
    path = store.journal
    known = read_only.journal_summary(path, 0)
    if not known["found"]:
        yield ok(CHECK, "nothing was written in this workspace yet")
        return
    if newer := _newer(path, "journal"):
        yield newer
        return
    if "error" in known:
        yield Finding(
            CHECK,
            "error",
            f"the journal cannot be read: {known['error']}",
            "no write, undo or history works here until it can",
            f"keep a copy of {os.path.dirname(path)}, then bring journal.db back from a backup; "
            "moved away, a new one is begun and your files stay as they are",
        )
        return
    yield from _verified(context, known["writes"])


def _verified(context: DoctorContext, writes: int) -> Iterator[Finding]:
    from perdure.worker.compose import open_write
    from perdure.workspace.verify import verify

    try:
        service = open_write(write_settings(context.settings))
    except (ToolError, StorageError, OSError) as error:
        yield Finding(
            CHECK,
            "error",
            f"the workspace cannot be opened: {_words(error)}",
            "no worker can serve it either",
            "see the other findings; `perdure verify` tells the same",
        )
        return
    try:
        with Progress() as progress:
            problems = list(verify(service, progress.at))
    finally:
        service.close()
    drifted = [one for one in problems if one.kind == "drift"]
    broken = [one for one in problems if one.kind != "drift"]
    for problem in broken[:SHOWN]:
        yield Finding(
            CHECK,
            "error",
            f"{problem.kind}: {problem.detail}",
            "the journal is not what was written: history and undo cannot be relied on before this point",
            f"keep a copy of {store_place(context.settings).folder}, then compare with a backup; "
            "`perdure verify` lists everything",
        )
    for problem in drifted[:SHOWN]:
        yield Finding(
            CHECK,
            "warning",
            problem.detail,
            "another program changed it; an undo across that change may conflict",
            "nothing where that was meant; `perdure diff PATH` shows it, `perdure restore PATH ID` takes it back",
        )
    if (more := max(len(broken) - SHOWN, 0) + max(len(drifted) - SHOWN, 0)) > 0:
        yield Finding(CHECK, "note", f"{more} more of this kind: `perdure verify` lists them")
    if not problems:
        yield ok(CHECK, f"{writes} writes, chain and contents whole, every file as it was left")


def check_state(context: DoctorContext) -> Iterator[Finding]:
    path = state_file(context.settings.state)
    if path is not None and (newer := _newer(path, "state")):
        yield newer
        return
    known = state_summary(context.settings.state)
    if not known["found"]:
        yield ok(STATE, "there is no state store yet")
    elif "error" in known:
        yield Finding(
            STATE,
            "error",
            f"the state store {known['path']} cannot be used: {known['error']}",
            "the state tools will answer with a fault",
            "check that it is there and may be read, or name another one with --state",
        )
    else:
        yield ok(STATE, f"the state store is at revision {known['revision']}")


def _newer(path: str, family: str) -> Finding | None:
    found, known = read_only.user_version(path), read_only.newest_format(family)
    if found is None or found <= known:
        return None
    return Finding(
        "versions",
        "error",
        f"{path} has format {found}; this perdure knows {known}",
        "it was written by a newer version, and an older one must not touch it",
        "install that newer version again",
    )


def _words(error: ToolError | StorageError | OSError) -> str:
    return str(error) if isinstance(error, OSError) else str(tool_error(error).envelope.context["message"])

"""What processes that were killed left lying, and locks whose holder no longer moves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.locations import store_place
from perdure.host import presence
from perdure.platform.locks import holders
from perdure.platform.processes import is_stopped
from perdure.storage.files import temp_names
from perdure.storage.user_dirs import data_dir, state_dir

CHECK = "leftovers"
LOCKS = "locks"
OLD_S = 60.0
MOST_FOLDERS = 5_000


def check(context: DoctorContext) -> Iterator[Finding]:
    count = 0
    for finding in (*_of_hosts(), *_capsules(), *_temporary(context)):
        count += 1
        yield finding
    if not count:
        yield ok(CHECK, "no sockets, capsules or temporary files of dead processes")


def _stale(path: str, what: str, why: str) -> Finding:
    return Finding(CHECK, "warning", f"{what}: {path}", why, f"rm {path}", partial(_removed, path))


def _removed(path: str) -> str:
    os.unlink(path)
    return f"removed {path}"


def _of_hosts() -> Iterator[Finding]:
    folder = os.path.join(state_dir(), "hosts")
    alive = {str(host.pid) for host in presence.running()}  # this removes what dead hosts announced
    for name in _listed(folder):
        path = os.path.join(folder, name)
        if name.partition(".")[0] not in alive and _is_old(path):
            yield _stale(path, "left by a host that is gone", "it means nothing any more")


def _capsules() -> Iterator[Finding]:
    folder = os.path.join(state_dir(), "capsules")
    for name in _listed(folder):
        path = os.path.join(folder, name)
        if _is_old(path):
            yield _stale(
                path,
                "left by a host that was replacing itself",
                "it holds what that session had in flight, and nobody can use it any more",
            )


def _temporary(context: DoctorContext) -> Iterator[Finding]:
    """Beside the files that were written, where they are made."""
    journal = store_place(context.settings).journal
    for root in context.settings.workspaces:
        for folder in _folders(root, journal):
            for name in _listed(folder):
                temp = temp_names.parsed(name)
                if temp is None or temp_names.owner_lives(temp.owner) is not False:
                    continue
                path = os.path.join(folder, name)
                if temp.use == "w":
                    yield _stale(
                        path, "a write that was killed left it", "nobody's content: the journal has it"
                    )
                else:
                    yield Finding(
                        CHECK,
                        "warning",
                        f"a file was changing places when its writer was killed: {path}",
                        "it may be the only copy of what another program wrote",
                        "the next write here looks after it; else compare it with the file beside it",
                    )


def _folders(root: str, journal: str) -> list[str]:
    """The folders of the files in the journal, and the root."""
    import apsw

    found = {root}
    if os.path.exists(journal):
        try:
            connection = apsw.Connection(journal, flags=apsw.SQLITE_OPEN_READONLY)
            for (path,) in connection.execute(
                "SELECT path FROM journal GROUP BY path ORDER BY max(seq) DESC LIMIT ?", (50_000,)
            ):
                found.add(os.path.normpath(os.path.join(root, os.path.dirname(str(path)))))
                if len(found) >= MOST_FOLDERS:
                    break
            connection.close()
        except apsw.Error:
            pass  # the journal's own check tells of it
    return sorted(found)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_old(path: str) -> bool:
    """Not of somebody who is just at it."""
    try:
        return time.time() - os.lstat(path).st_mtime > OLD_S
    except OSError:
        return False


# --- locks ---------------------------------------------------------------------------------------------------


def check_locks(context: DoctorContext) -> Iterator[Finding]:
    """The system gives up a lock when its holder dies; what can go wrong is a holder that lives and does nothing."""
    state = context.settings.state or os.path.join(data_dir(), "state.db")
    paths = [
        *context.settings.workspaces,
        os.path.join(store_place(context.settings).folder, "lock"),
        f"{state}-lock",
    ]
    found = 0
    for path in paths:
        for pid in holders(path):
            if is_stopped(pid):
                found += 1
                yield Finding(
                    LOCKS,
                    "error",
                    f"{path} is held by process {pid}, which is stopped",
                    "everyone else who wants to write waits for it",
                    f"let it go on with `kill -CONT {pid}`, or end it with `kill {pid}`",
                )
    if not found:
        yield ok(LOCKS, "no lock is held by a process that stands still")

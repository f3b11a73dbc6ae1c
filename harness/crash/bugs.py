"""Seeded bugs of writing and recovering: each must be found by a storm, or the judge is not worth its name.

A bug is one or more texts of the source and what they become, applied while a module is imported, in the session and in
every process that it starts; no file is touched. A text that does not occur exactly once is an error, so the list
cannot go stale.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Final, Literal, NamedTuple

import perdure

VARIABLE: Final = "PERDURE_SEEDED_BUG"
_SEEDED: Final = Path(__file__).parent / "seeded"
_SOURCE: Final = Path(perdure.__path__[0])


class Patch(NamedTuple):
    module: str
    old: str
    new: str

    @property
    def file(self) -> Path:
        return _SOURCE / f"{self.module.replace('.', '/')}.py"


class Bug(NamedTuple):
    """`kind` is the sort of session that meets it soonest; `company` where it takes others at the same files."""

    name: str
    patches: tuple[Patch, ...]
    kind: Literal["hosted", "bare"] = "bare"
    company: bool = False


_PLANNED: Final = "                job.landing = self._journal.nested(job.plan)\n"
_BEGUN: Final = '            self._replace_connection()\n        self._write.execute("BEGIN IMMEDIATE")\n'
_COMMITTED: Final = '            self._write.execute("COMMIT")\n'
_WRITTEN: Final = (
    "                return pending.create() if before is None else pending.replace_if(before)\n"
)
_CHECKED: Final = "        return msgspec.convert(envelope, type=learned(Handoff))\n"
_IN_PLACE: Final = """\
                if before is None:
                    return pending.create()
                target = os.open(self.place.name, os.O_WRONLY | os.O_TRUNC, dir_fd=self.place.dir_fd)
                point("write.exchanged")
                os.write(target, os.pread(pending._fd, 1 << 30, 0))
                os.close(target)
                return None
"""

BUGS: Final = (
    Bug(
        "a write is acknowledged before the journal commits",
        (
            Patch(
                "storage.sqlite.journal",
                _BEGUN,
                _BEGUN.replace("self._write.execute", "self._write.in_transaction or self._write.execute"),
            ),
            Patch(
                "storage.sqlite.journal",
                _COMMITTED,
                f"            self._head[0] % 3 or {_COMMITTED.strip()}\n",
            ),
        ),
    ),
    Bug(
        "recovery is skipped",
        (Patch("surfaces.write.committer", "        self._settle_left()\n", ""),),
    ),
    Bug(
        "temporary files are not swept",
        (Patch("surfaces.write.recover", "    _sweep(workspace, intents, rescue, began)\n", ""),),
    ),
    Bug(
        "what had landed is not marked",
        (Patch("surfaces.write.committer", "self._journal.mark_landed(self._known)", "pass"),),
        company=True,
    ),
    Bug(
        "a running process does not look for what another left",
        (
            Patch(
                "surfaces.write.committer",
                "self._journal.newest_intent() > max(self._journal.landed(), self._known)",
                "False",
            ),
        ),
        company=True,
    ),
    Bug(
        "what was put aside is not put back",
        (Patch("surfaces.write.recover", "    set_aside.put_back(", "    (lambda *_: None)("),),
        company=True,
    ),
    Bug(
        "the rest of a transaction that lost a file stays",
        (Patch("surfaces.write.recover", "in _parted(intents, lost):", "in ():"),),
        company=True,
    ),
    Bug(
        "no invocation is recorded",
        (Patch("surfaces.write.service", "self.journal.remember(known, first)", "pass"),),
    ),
    Bug(
        "a file lands before it is decided",
        (
            Patch(
                "surfaces.write.committer",
                _PLANNED,
                _PLANNED
                + "                job.landing.land()\n"
                + "                job.landing.land = lambda: None\n",
            ),
        ),
    ),
    Bug("files are written in place", (Patch("surfaces.write.landing", _WRITTEN, _IN_PLACE),)),
    Bug(
        "what did not land is called settled",
        (
            Patch(
                "surfaces.write.recover",
                "            if not _is_ours(place, found, store, intents, ours):\n",
                '            if row.txn is not None:\n                return "settled"\n'
                "            if not _is_ours(place, found, store, intents, ours):\n",
            ),
        ),
    ),
    Bug(
        "another program's edit is written over at recovery",
        (
            Patch(
                "surfaces.write.recover",
                '                return "lost"\n            after',
                "                pass\n            after",
            ),
        ),
        company=True,
    ),
    Bug(
        "the chain begins anew at every row",
        (Patch("storage.sqlite.journal", "_digest(prev, values)\n", "_digest(GENESIS, values)\n"),),
    ),
    Bug(
        "what is replaced is not kept",
        (Patch("surfaces.write.tree", "            self._store.record(before)\n", "            pass\n"),),
    ),
    Bug(
        "a draft is promised and not kept",
        (
            Patch(
                "surfaces.write.rejecting",
                "    service.store.record(content, by_row=False)\n",
                "",
            ),
        ),
    ),
    Bug(
        "a lost call is given up without asking",
        (
            Patch(
                "kernel.recovery",
                "            hold(k, call, fault)\n        case NeverReplay",
                "            answer_unknown(k, call, fault)\n        case NeverReplay",
            ),
        ),
        "hosted",
    ),
    Bug(
        "a recovered call is answered twice",
        (
            Patch(
                "kernel.answering",
                "    k.to_client(encode_result(call.public_id, result, extra))\n",
                "    for _ in range(1 + min(1, call.probes)):\n"
                "        k.to_client(encode_result(call.public_id, result, extra))\n",
            ),
        ),
        "hosted",
    ),
    Bug(
        "a worker outlives its host",
        (
            Patch("host.guardian", "        _end(groups, mark)\n", "        pass\n"),
            Patch(
                "worker.server",
                "    ).serve()\n",
                "    ).serve()\n    threading.Event().wait(8)\n",
            ),
        ),
        "hosted",
    ),
    Bug(
        "a worker falls, and its host makes up for it",
        (
            Patch(
                "surfaces.write.handing",
                _CHECKED,
                _CHECKED.replace("return", "os.getpid() % 3 or os.abort(); return"),
            ),
        ),
        "hosted",
    ),
)


def named(name: str) -> Bug:
    return next(bug for bug in BUGS if bug.name == name)


def stale() -> list[str]:
    """Bugs whose text is no longer there, or is there more than once."""
    return [
        bug.name
        for bug in BUGS
        if any(patch.file.read_text(encoding="utf-8").count(patch.old) != 1 for patch in bug.patches)
    ]


@contextmanager
def seeded(name: str) -> Iterator[None]:
    """Every Python that is started from here on has the bug. Without a name, none has any."""
    before = {key: os.environ.get(key) for key in (VARIABLE, "PYTHONPATH")}
    if name:
        found = os.environ.get("PYTHONPATH")
        os.environ |= {
            VARIABLE: name,
            "PYTHONPATH": os.pathsep.join([str(_SEEDED), *([found] if found else [])]),
        }
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


class _Patched(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, patches: list[Patch]) -> None:
        super().__init__(fullname, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        for patch in self._patches:
            source = source.replace(patch.old, patch.new)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        patches = [patch for patch in self._bug.patches if fullname == f"perdure.{patch.module}"]
        if not patches:
            return None
        file = str(patches[0].file)
        return importlib.util.spec_from_file_location(
            fullname, file, loader=_Patched(fullname, file, patches)
        )


def install(name: str) -> None:
    """In a process that has imported nothing of the product yet."""
    sys.meta_path.insert(0, _Finder(named(name)))

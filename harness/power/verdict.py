"""What must hold after a power cut, once a fresh process has opened the workspace.

| kind | what is wrong |
|---|---|
| `lost` | a file is neither as acknowledged nor as the call under way would have it |
| `half` | of the call under way some files are changed and some are not |
| `told` | the journal does not know an acknowledged call, or knows one whose effect is not there |
| `journal` | the chain is broken, the anchor disagrees, or the last row of a path is not what is on disk |
| `undo` | a kept content is missing or damaged, or taking back the last change gives something else |
| `litter` | a temporary file, an open intent or a damaged file of our own is left |
| `closed` | the workspace cannot be opened at all |

A disk that the file system itself does not mount any more is `unmounted` (`trials.py`): nothing of ours can be judged on it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

import msgspec

from harness.power.disk_log import Record
from harness.power.driver import Refused, named, run, write_surface
from harness.power.recording import progress
from harness.power.workload import Files, Lane
from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Done
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError
from perdure.storage.files import temp_names
from perdure.storage.journal import Filter
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.compose import Durability
from perdure.workspace.workspace import Workspace

MOST_ROWS = 100_000


class Finding(msgspec.Struct, frozen=True):
    kind: str
    detail: str


def judge(
    workspace: str, durability: Durability, lanes: Sequence[Lane], told: Sequence[Record]
) -> list[Finding]:
    """`told` is the log up to the cut. Opening the workspace recovers it."""
    surface = write_surface(workspace, durability)
    assert isinstance(surface, WriteSurface)
    try:
        try:
            service = surface.service
        except Exception as error:
            return [Finding("closed", f"{type(error).__name__}: {error}")]
        files = _files(workspace)
        found = [*_litter(workspace, service), *_journal(service, files), *_contents(service)]
        reached = {}
        for lane in lanes:
            done, begun = progress(lane, told)
            now = _reached(surface, lane, _of(lane, files), done, begun)
            if now is None:
                found += _differences(lane, _of(lane, files), done, begun)
            else:
                found += _told(surface, lane, done, now)
                reached[lane.name] = now
        return [*found, *_undone(surface, workspace, lanes, reached)]
    finally:
        surface.close()


def _reached(surface: WriteSurface, lane: Lane, have: Files, done: int, begun: bool) -> int | None:
    """After how many calls the files are as they are: those acknowledged, or one more. None: after neither."""
    numbers = [number for number in range(done, done + 1 + begun) if have == lane.after[number]]
    if len(numbers) > 1:  # a call that changes nothing: only the journal can tell
        return numbers[_is_known(surface, lane, done)]
    return numbers[0] if numbers else None


def _told(surface: WriteSurface, lane: Lane, done: int, now: int) -> Iterator[Finding]:
    for number in range(min(done + 1, len(lane.steps))):
        if _is_known(surface, lane, number) != (number < now):
            step = lane.steps[number]
            yield Finding(
                "told", f"{step.key} ({step.tool}): only the {'files' if number < now else 'journal'} know"
            )


def _is_known(surface: WriteSurface, lane: Lane, number: int) -> bool:
    return isinstance(surface.probe(lane.steps[number].key), Done)


def _differences(lane: Lane, have: Files, done: int, begun: bool) -> Iterator[Finding]:
    old, new = lane.after[done], lane.after[done + begun]
    wrong = [p for p in {*have, *old, *new} if have.get(p) not in (old.get(p), new.get(p))]
    for path in sorted(wrong):
        was = "there" if path in have else "missing"
        yield Finding("lost", f"{path} is {was}, but not as acknowledged ({done} calls, begun {begun})")
    if not wrong:
        step = lane.steps[done]
        yield Finding("half", f"{step.key} ({step.tool}) was done in part")


def _undone(
    surface: WriteSurface, workspace: str, lanes: Sequence[Lane], reached: dict[str, int]
) -> Iterator[Finding]:
    """Take back the last change of every lane that is as it should be, and look again."""
    tools = named(surface)
    wanted: dict[str, Files] = {}
    for lane in lanes:
        before = lane.undone[reached[lane.name]] if lane.name in reached else None
        if before is None:
            continue
        try:
            run(tools, "undo", {"session": lane.name}, lane.name, None)
            wanted[lane.name] = before
        except Refused as error:
            yield Finding("undo", f"{lane.name}: {error}")
    files = _files(workspace)
    for lane in lanes:
        if lane.name in wanted and _of(lane, files) != wanted[lane.name]:
            yield Finding("undo", f"{lane.name}: the last change was not taken back")


def _journal(service: Workspace, files: Files) -> Iterator[Finding]:
    for problem in service.journal.verify():
        yield Finding("journal", f"{problem.kind}: {problem.detail} ({problem.seq})")
    for path in {row.path for row in service.journal.rows(Filter(), MOST_ROWS)} | set(files):
        last = service.journal.last_of(path)
        said = last.new_sha.hex() if last is not None and last.new_sha is not None else None
        if said != files.get(path):
            yield Finding("journal", f"{path}: its last row is not what is on disk")


def _contents(service: Workspace) -> Iterator[Finding]:
    """Whatever was there before or after any change can be had back."""
    rows = service.journal.rows(Filter(), MOST_ROWS)
    for sha in {sha.hex() for row in rows for sha in (row.old_sha, row.new_sha) if sha is not None}:
        try:
            kept = hashlib.sha256(service.store.load(sha)).hexdigest()
        except (ToolError, StorageError) as error:
            kept = str(tool_error(error).envelope.context.get("reason"))
        if kept != sha:
            yield Finding("undo", f"content {sha[:12]}: {kept[:24]}")


def _litter(workspace: str, service: Workspace) -> Iterator[Finding]:
    for folder, _, names in os.walk(workspace):
        for name in names:
            if temp_names.parsed(name) is not None:
                yield Finding("litter", os.path.relpath(os.path.join(folder, name), workspace))
    if service.journal.intents():
        yield Finding("litter", "intents are open after recovery")


def _files(workspace: str) -> Files:
    """Everything but our own, whoever wrote it."""
    found: Files = {}
    for folder, _, names in os.walk(workspace):
        for name in names:
            if temp_names.parsed(name) is not None:
                continue
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, workspace)] = hashlib.sha256(file.read()).hexdigest()
    return found


def _of(lane: Lane, files: Files) -> Files:
    return {path: sha for path, sha in files.items() if path.startswith(f"{lane.name}/")}

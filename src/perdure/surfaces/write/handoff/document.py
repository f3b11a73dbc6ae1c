"""What one agent leaves to the next: the envelope of a handoff. Its graph of steps is read in `step_graph.py`.

normalized(envelope)   synonyms and defaults put in, as far as they are certain
missing(envelope)      required keys that are not there
faults(envelope)       everything else that is wrong, one text each, with the accepted values
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta

MOST_NAME: Final = 200
MOST_TEXT: Final = 20_000
MOST_PATH: Final = 4096

Text = Annotated[str, Meta(min_length=1, max_length=MOST_TEXT)]
Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME)]
Status = Literal["complete", "partial", "blocked", "handed_off"]
StepStatus = Literal["pending", "in_progress", "done", "blocked"]

# Each status is also known by the word that the other of the two lists has for it.
STATUS_SYNONYMS: Final = {"in_progress": "partial", "done": "complete", "completed": "complete"}
STEP_SYNONYMS: Final = {"complete": "done", "completed": "done", "partial": "in_progress"}
_SHA256 = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


class GoodFile(msgspec.Struct, frozen=True):
    """A file as it was when all was well. Without a hash only its absence is noticed."""

    path: Annotated[str, Meta(min_length=1, max_length=MOST_PATH)]
    sha256: Annotated[str, Meta(pattern="^(?:[0-9a-f]{8,64})?$")] = ""


class Step(msgspec.Struct, frozen=True):
    id: Name
    description: str = ""
    depends_on: list[Name] = []
    status: StepStatus = "pending"


class Handoff(msgspec.Struct, frozen=True):
    """Keys beyond these are kept as they are."""

    task_id: Name
    status: Status
    summary: Text
    agent: Name = "unknown"
    next_steps: list[Any] = []
    last_good_state: list[GoodFile] = []
    open_questions: list[Any] = []
    blockers: list[Any] = []
    context_hints: list[Any] | dict[str, Any] = []
    steps: list[Step] = []


REQUIRED: Final = tuple(field.name for field in msgspec.structs.fields(Handoff) if field.required)


def normalized(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope with the accepted words for its status, and files that are named by their path alone."""
    known = dict(envelope)
    known["status"] = _synonym(STATUS_SYNONYMS, known.get("status"))
    if known["status"] is None:
        del known["status"]
    if isinstance(files := known.get("last_good_state"), list):
        known["last_good_state"] = [{"path": file} if isinstance(file, str) else file for file in files]
    if isinstance(steps := known.get("steps"), list):
        known["steps"] = [
            {**step, "status": _synonym(STEP_SYNONYMS, step["status"])}
            if isinstance(step, Mapping) and "status" in step
            else step
            for step in steps
        ]
    return known


def _synonym(synonyms: Mapping[str, str], status: Any) -> Any:
    return synonyms.get(status, status) if isinstance(status, str) else status


def missing(envelope: Mapping[str, Any]) -> list[str]:
    return [name for name in REQUIRED if name not in envelope]


def faults(envelope: Mapping[str, Any]) -> list[str]:
    """What is wrong with a normalized envelope."""
    return list(_faults(envelope))


def _faults(envelope: Mapping[str, Any]) -> Iterator[str]:
    for name, most in (("task_id", MOST_NAME), ("agent", MOST_NAME), ("summary", MOST_TEXT)):
        if name in envelope:
            yield from _text_faults(name, envelope[name], most)
    if "status" in envelope:
        yield from _choice_faults("status", envelope["status"], get_args(Status))
    for name in ("next_steps", "open_questions", "blockers", "last_good_state", "steps"):
        if not isinstance(envelope.get(name, []), list):
            yield f"{name} must be a list"
    if not isinstance(envelope.get("context_hints", []), list | dict):
        yield "context_hints must be a list or an object"
    for at, file in enumerate(_listed(envelope.get("last_good_state"))):
        yield from _file_faults(f"last_good_state[{at}]", file)
    for at, step in enumerate(_listed(envelope.get("steps"))):
        yield from _step_faults(f"steps[{at}]", step)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text_faults(where: str, value: Any, most: int, least: int = 1) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{where} must be a text"
    elif len(value) < least:
        yield f"{where} is empty"
    elif len(value) > most:
        yield f"{where} has {len(value):,} characters, at most {most:,} are accepted"


def _choice_faults(where: str, value: Any, choices: tuple[str, ...]) -> Iterator[str]:
    if value not in choices:
        shown = f' "{value}"' if isinstance(value, str) and value.isprintable() and len(value) <= 40 else ""
        yield f"{where}{shown} is not one of {', '.join(choices)}"


def _file_faults(where: str, file: Any) -> Iterator[str]:
    if not isinstance(file, Mapping) or "path" not in file:
        yield f"{where} must be a path, or an object with path and sha256"
        return
    yield from _text_faults(f"{where}.path", file["path"], MOST_PATH)
    sha256 = file.get("sha256", "")
    if sha256 != "" and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        yield f"{where}.sha256 must be 8 to 64 lower-case hex digits (without it the hash is computed)"


def _step_faults(where: str, step: Any) -> Iterator[str]:
    if not isinstance(step, Mapping):
        yield f"{where} must be an object with id, description, depends_on and status"
        return
    yield from (
        _text_faults(f"{where}.id", step["id"], MOST_NAME) if "id" in step else (f"{where}.id is missing",)
    )
    if "description" in step:
        yield from _text_faults(f"{where}.description", step["description"], MOST_TEXT, least=0)
    needed = step.get("depends_on", [])
    if not isinstance(needed, list) or not all(isinstance(name, str) and name for name in needed):
        yield f"{where}.depends_on must be a list of step ids"
    if "status" in step:
        yield from _choice_faults(f"{where}.status", step["status"], get_args(StepStatus))

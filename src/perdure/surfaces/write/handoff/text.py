"""A handoff as an agent reads it: the summary first, then what is left to do; drift in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json import dumps
from typing import Any, Final

SHA_SHOWN: Final = 12
MOST_DRAFTS: Final = 5
_MARKS: Final = {"done": "[x]", "in_progress": "[>]", "blocked": "[!]", "pending": "[ ]"}
_LISTS: Final = (
    ("next_steps", "Next steps"),
    ("open_questions", "Open questions"),
    ("blockers", "Blockers"),
    ("context_hints", "Context hints"),
)
# The line above the envelope has these, or they are for programs.
_LEFT_OUT: Final = frozenset(
    (
        "task_id",
        "status",
        "agent",
        "summary",
        "updated_at",
        "journal_head",
        "open_drafts",
        "steps",
        "last_good_state",
        *(name for name, _ in _LISTS),
    )
)


def drift_words(warnings: list[dict[str, Any]]) -> list[str]:
    """Each listed file that is not what the handoff says, as a sentence."""
    return [_drift(warning) for warning in warnings]


def _drift(warning: Mapping[str, Any]) -> str:
    path = warning["path"]
    match warning["reason"]:
        case "missing":
            return f"{path} is missing"
        case "hash_mismatch":
            return f"{path} has changed since (now {warning['actual_sha256'][:SHA_SHOWN]})"
        case _:
            return f"{path} is not a file in the workspace"


def envelope_words(envelope: Mapping[str, Any]) -> str:
    return "\n".join(_lines(envelope)) + "\n"


def _lines(envelope: Mapping[str, Any]) -> Iterator[str]:
    yield str(envelope.get("summary", ""))
    if steps := envelope.get("steps"):
        yield "Steps:"
        yield from (f"  {_step(step)}" for step in steps)
    for name, title in _LISTS:
        if value := envelope.get(name):
            yield f"{title}:"
            items = (
                [f"{key}: {_text(item)}" for key, item in value.items()] if isinstance(value, dict) else value
            )
            yield from (f"  - {_text(item)}" for item in items)
    if files := envelope.get("last_good_state"):
        yield "Last good state:"
        yield from (f"  {_file(file)}" for file in files)
    yield from (f"{key}: {_text(value)}" for key, value in envelope.items() if key not in _LEFT_OUT)
    if drafts := envelope.get("open_drafts"):
        more = f", and {len(drafts) - MOST_DRAFTS} more: detail=full" if len(drafts) > MOST_DRAFTS else ""
        yield f"Refused payloads, kept as drafts: {', '.join(map(str, drafts[:MOST_DRAFTS]))}{more}"


def _step(step: Any) -> str:
    if not isinstance(step, Mapping):
        return _text(step)
    needs = f" (after {', '.join(map(str, step['depends_on']))})" if step.get("depends_on") else ""
    description = f": {step['description']}" if step.get("description") else ""
    return f"{_MARKS.get(step.get('status', 'pending'), '[ ]')} {step.get('id')}{description}{needs}"


def _file(file: Any) -> str:
    if not isinstance(file, Mapping):
        return _text(file)
    return f"{file.get('path')} {str(file.get('sha256', ''))[:SHA_SHOWN]}".rstrip()


def _text(item: Any) -> str:
    return item if isinstance(item, str) else dumps(item, ensure_ascii=False)

"""What one agent leaves to the next: the envelope of a handoff. Its graph of steps is read in `step_graph.py`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(min_length=1, max_length=20_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class GoodFile(msgspec.Struct, frozen=True):
    """A file as it was when all was well."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    sha256: Sha256


class Step(msgspec.Struct, frozen=True):
    id: Name
    description: str = ""
    depends_on: list[Name] = []
    status: Literal["pending", "in_progress", "done", "blocked"] = "pending"


class Handoff(msgspec.Struct, frozen=True):
    """Keys beyond these are kept as they are."""

    task_id: Name
    status: Literal["complete", "partial", "blocked", "handed_off"]
    agent: Name
    summary: Text
    next_steps: list[Any]
    last_good_state: list[GoodFile]
    open_questions: list[Any] = []
    blockers: list[Any] = []
    context_hints: list[Any] | dict[str, Any] = []
    steps: list[Step] = []

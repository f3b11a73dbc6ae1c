"""What one agent leaves to the next: the envelope of a handoff, and what its graph of steps says is ready."""

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


class GraphError(ValueError):
    """Steps that cannot be put in any order; said with the steps that are to blame."""


def ready_steps(steps: list[Step]) -> list[str]:
    """Pending steps whose dependencies are all done, in their order. Raises GraphError."""
    by_id = {step.id: step for step in steps}
    if len(by_id) != len(steps):
        twice = next(step.id for step in steps if sum(other.id == step.id for other in steps) > 1)
        raise GraphError(f"step {twice!r} is there twice")
    for step in steps:
        for needed in step.depends_on:
            if needed not in by_id:
                raise GraphError(f"step {step.id!r} depends on {needed!r}, which is not there")
    left = dict(by_id)
    while free := [one for one in left.values() if not any(needed in left for needed in one.depends_on)]:
        for one in free:
            del left[one.id]
    if left:
        raise GraphError(f"steps depend on each other in a circle: {', '.join(sorted(left)[:10])}")
    return [
        step.id
        for step in steps
        if step.status == "pending" and all(by_id[needed].status == "done" for needed in step.depends_on)
    ]

"""What a graph of steps says is ready to be done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Step(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def depends_on(self) -> Sequence[str]: ...
    @property
    def status(self) -> str: ...


class GraphError(ValueError):
    """Steps that cannot be put in any order; said with the steps that are to blame."""


def ready_steps(steps: Sequence[Step]) -> list[str]:
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

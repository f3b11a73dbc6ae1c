"""Changes made by the store itself, pure: merge (RFC 7396), increment, append; and a merge as a difference."""

from __future__ import annotations

from typing import Any

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.storage.state_values import canonical


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def incremented(target: Any, by: Any) -> Any:
    if not _is_number(by):
        raise _unfit("increment needs a number as value.")
    if target is not None and not _is_number(target):
        raise _unfit("not written: the key does not hold a number, so increment cannot add to it.")
    try:
        return (target or 0) + by
    except OverflowError:
        raise _unfit("not written: the sum of an integer that large and a fraction is not exact.") from None


def appended(target: Any, element: Any) -> Any:
    if target is not None and not isinstance(target, list):
        raise _unfit("not written: the key does not hold a list, so append cannot add to it.")
    return [*(target or []), element]


def difference(before: Any, after: Any) -> Any:
    """The merge patch from one to the other. Where members turn null, a merge cannot say it: then the whole value."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    found: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            found[name] = value
        elif canonical(before[name]) != canonical(value):
            found[name] = difference(before[name], value)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _unfit(message: str) -> ToolError:
    return refuse(
        "invalid_input", "unfit_value", message, next_step=call_again(value=FILL), suggested_action="reread"
    )

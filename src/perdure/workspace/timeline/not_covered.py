"""The places that an observation does not cover, as the journal keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from perdure.storage.timeline import NotCovered
from perdure.workspace.timeline.scan import parents

CANNOT_RETURN: Final = ("git", "dependencies", "settings", "ignored", "too_large", "max_total")
"""What is left out for these reasons and removed then cannot be brought back."""
_MOST_NOT_COVERED: Final = 10_000


def is_capture_pending(place: NotCovered) -> bool:
    """Whether the files of a place are tracked, and only their contents are not kept yet; else its folder was
    never walked."""
    return place.reason == "not_yet" and place.files is not None


def left_out_paths(places: Iterable[NotCovered]) -> frozenset[str]:
    return frozenset(place.path for place in places if not is_capture_pending(place))


def is_left_out(path: str, left_out: frozenset[str]) -> bool:
    """Whether nothing is known of what was at a path before: it may have been there all along."""
    return any(place in left_out for place in (path, *parents(path), ""))


def summarize(places: Iterable[NotCovered]) -> list[NotCovered]:
    """Single files that wait for their first capture are counted by their top folder; so are all files where there
    are very many."""
    counts: dict[tuple[str, str], int] = {}
    found: dict[str, NotCovered] = {}
    all_places = list(places)
    is_long = len(all_places) > _MOST_NOT_COVERED
    for place in all_places:
        is_pending = is_capture_pending(place)
        folder = place.path.partition("/")[0] if is_pending else place.path.rpartition("/")[0]
        is_single = place.files == 1 and (is_long or is_pending)
        if is_single and folder and folder != place.path:
            counts[folder, place.reason] = counts.get((folder, place.reason), 0) + 1
        else:
            found[place.path] = place
    for (folder, reason), count in counts.items():
        found.setdefault(folder, NotCovered(folder, reason, count))
    return [found[path] for path in sorted(found)]

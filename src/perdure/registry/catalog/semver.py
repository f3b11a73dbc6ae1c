"""Which of two versions is the newer one, by the rules of the official registry.

Semantic versions compare as such and beat all others; of two others the one published later is newer.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_SEMVER: Final = re.compile(
    r"v?(?P<major>0|[1-9]\d*)\.(?P<minor>0|[1-9]\d*)\.(?P<patch>0|[1-9]\d*)"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)
_EXACT: Final = re.compile(r"v?\d[0-9A-Za-z]*(?:[._+-]+[0-9A-Za-z]+)*", re.ASCII)
_WILD: Final = re.compile(r"(?:^|[.\s])[xX*](?:$|[.\s])")
_LONGEST: Final = 255

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)

Order = tuple[int, tuple[int, int, int], tuple[int, tuple[tuple[int, int, str], ...]], datetime]


def order(version: str, published_at: str = "") -> Order:
    """A key for sorting, the newest last."""
    match = _SEMVER.fullmatch(version) if len(version) <= _LONGEST else None
    if match is None:
        return 0, (0, 0, 0), (0, ()), moment(published_at)
    numbers = (int(match["major"]), int(match["minor"]), int(match["patch"]))
    # A version without a pre-release comes after all of its pre-releases.
    before = (1, ()) if match["pre"] is None else (0, tuple(map(_identifier, match["pre"].split("."))))
    return 1, numbers, before, moment(published_at)


def moment(timestamp: str) -> datetime:
    """An RFC 3339 timestamp; the earliest time if it is not one. As texts they would compare wrongly: `12:00:00.5Z` before
    `12:00:00Z`, and without their offsets."""
    try:
        parsed = datetime.fromisoformat(timestamp.upper())
        return parsed.astimezone(UTC) if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return _EARLIEST


def _identifier(text: str) -> tuple[int, int, str]:
    """Numbers compare as numbers and come before words."""
    return (0, int(text), "") if text.isdigit() else (1, 0, text)


def is_exact(version: str) -> bool:
    """One version and no other: not a range, not a tag like `latest`."""
    return len(version) <= _LONGEST and bool(_EXACT.fullmatch(version)) and not _WILD.search(version)


def is_newer(offered: str, current: str) -> bool:
    """Whether a catalog's version is an update; not if the installed one is ahead of it."""
    if _SEMVER.fullmatch(offered) and _SEMVER.fullmatch(current):
        return order(offered) > order(current)
    return offered != current

"""Keeping the copy of a catalog up to date: all of it once, then what changed.

Copying can stop after any page, by a kill or because its time is up, and goes on from there. A small catalog is
read whole each time, with its ETag, so that what was removed from it is noticed at once; a large one is asked for
what changed since.
"""

from __future__ import annotations

import time
from typing import Final

from perdure.registry.errors import RegistryUnavailable
from perdure.registry.official.api import OfficialApi, StaleCursor
from perdure.registry.official.store import CatalogStore, Progress

SMALL: Final = 300
# Within this time a large catalog is not asked again.
FRESH_S: Final = 60.0
MAX_PAGES: Final = 20_000


def sync(store: CatalogStore, api: OfficialApi, budget_s: float) -> bool:
    """Whether the copy is whole now; False where the time was up before. Raises what the API raises."""
    age = time.time() - (store.synced_at or 0)
    count = store.count()
    is_large = count > SMALL
    if store.synced_at is not None and is_large and 0 <= age < FRESH_S:
        return True
    progress = store.progress
    if progress is None:
        progress = store.begin(store.newest if store.synced_at is not None and is_large else "")
    until = time.monotonic() + budget_s
    try:
        return _copy(store, api, progress, until, store.etag if store.synced_at is not None else "")
    except StaleCursor:
        return _copy(store, api, store.begin(), until, "")


def _copy(store: CatalogStore, api: OfficialApi, progress: Progress, until: float, etag: str) -> bool:
    seen: set[str] = set()
    is_first = not progress.cursor
    for _ in range(MAX_PAGES):
        asked = etag if is_first and not progress.since else ""
        page = api.page(progress.cursor, since=progress.since, etag=asked)
        if page.is_unchanged:
            store.unchanged()
            return True
        progress = store.take(progress, page.records, page.cursor)
        if not page.cursor:
            # An ETag vouches for the page it came with, so only for a catalog of one page.
            store.finish(progress, page.etag if is_first and not progress.since else "")
            return True
        if page.cursor in seen:
            raise RegistryUnavailable("the catalog leads in circles: a page names itself as the next")
        seen.add(page.cursor)
        is_first = False
        if time.monotonic() > until:
            return False
    raise RegistryUnavailable(f"the catalog has more than {MAX_PAGES} pages")

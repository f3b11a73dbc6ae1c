"""What the jobs of a workspace use of it."""

from __future__ import annotations

from typing import Any, Protocol

from perdure.storage.journal import Journal
from perdure.workspace.commit import Committer
from perdure.workspace.contents import ContentStore
from perdure.workspace.deferred import DeferredWork
from perdure.workspace.paths.roots import Roots
from perdure.workspace.planning import Sighting
from perdure.workspace.policy import Policy
from perdure.workspace.reservations.access import Reservations
from perdure.workspace.seen_files import Saved


class WorkspaceParts(Protocol):
    """The workspace as its jobs see it: `workspace.py` opens it and imports the jobs, so these cannot import it."""

    strict: bool
    policy: Policy
    roots: Roots
    journal: Journal
    store: ContentStore
    committer: Committer
    reservations: Reservations

    def check_recovered(self, path: str, *, deferred: DeferredWork | None = None) -> None: ...

    def find_deduplicated(self, key: str, fingerprint: bytes) -> dict[str, Any] | None: ...

    def save_reads(self, first: int | None) -> Saved: ...

    def record_writes(self, session: str, sightings: list[Sighting], saved: Saved) -> None: ...

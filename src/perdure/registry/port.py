"""What a backend of a registry is: its operations, its id, and what it can do at the moment.

A constructor opens nothing (MUST 2). Names are checked before any I/O (MUST 1). Nothing that is loaded is resolved:
references are resolved by whoever starts a server (`perdure.registry.resolved`). `load_all` gives what
`list_servers` and `load` would, one by one (MUST 10); what has a problem is listed with its `error` and hides
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from perdure.registry.entry import Entry
from perdure.registry.refs import Capabilities, ServerRef, ValidationResult

__all__ = ["Backend", "BulkBackend", "Capabilities", "EditableBackend", "ServerRef", "ValidationResult"]


@runtime_checkable
class Backend(Protocol):
    """One scope of one registry, fixed when it is made (MUST 5)."""

    @property
    def backend_id(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def list_servers(self) -> list[ServerRef]:
        """Metadata only, sorted by name; empty where there is no registry yet."""

    def load(self, name: str) -> Entry:
        """Raises NotInRegistry, or Quarantined with the entry's error."""

    def load_all(self) -> list[Entry]:
        """Every sound entry, in the order of `list_servers`."""

    def validate(self, name: str) -> ValidationResult:
        """Static: nothing is started. An absent name is a result, not an exception."""

    def install(self, entry: Entry) -> ServerRef:
        """Exactly one winner per name; the others get AlreadyInstalled (MUST 9)."""

    def uninstall(self, name: str) -> bool:
        """Gone afterwards. Whether it was there, as far as the backend can tell."""

    def source(self, name: str) -> str:
        """Where an entry of this name is, for people; nothing is read for it."""

    def refresh_capabilities(self) -> Capabilities: ...

    def close(self) -> None:
        """Any number of times, at any time."""


@runtime_checkable
class BulkBackend(Backend, Protocol):
    """A backend that takes many entries at the cost of one."""

    def install_all(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """Those whose names are free, in one change. Returns the names that were taken, whose entries stay."""


@runtime_checkable
class EditableBackend(Backend, Protocol):
    """A backend whose entries can be changed in place."""

    def set_enabled(self, name: str, enabled: bool) -> ServerRef:
        """Raises NotInRegistry."""

    def replace(self, entry: Entry) -> ServerRef:
        """The entry of the same name becomes this one. Raises NotInRegistry."""

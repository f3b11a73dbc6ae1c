"""The interface of a registry backend, and choosing one by its location.

A constructor opens nothing (MUST 2). Names are checked before any I/O (MUST 1). Entries are loaded unresolved: references
are resolved when a server is started (`perdure.registry.resolved_entry`). `load_all` returns what `list_servers` and `load`
would (MUST 10). An entry with a problem is listed with its `error` and does not hide the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from perdure.registry.entry import Entry
from perdure.registry.errors import UnknownBackend
from perdure.registry.location import FILE_NAMES


@runtime_checkable
class Backend(Protocol):
    """One scope of one registry, fixed at construction (MUST 5)."""

    @property
    def backend_id(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def list_servers(self) -> list[ServerRef]:
        """Metadata only, sorted by name; empty if there is no registry yet."""

    def load(self, name: str) -> Entry:
        """Raises NotInRegistry, or Quarantined with the entry's error."""

    def load_all(self) -> list[Entry]:
        """Every valid entry, in the order of `list_servers`."""

    def validate(self, name: str) -> ValidationResult:
        """Static: nothing is started. An absent name is a result, not an exception."""

    def install(self, entry: Entry) -> ServerRef:
        """Exactly one winner per name; the others get AlreadyInstalled (MUST 9)."""

    def uninstall(self, name: str) -> bool:
        """Whether it was there, as far as the backend can tell; it is gone afterwards."""

    def source(self, name: str) -> str:
        """The location of an entry of this name, for output; nothing is read."""

    def refresh_capabilities(self) -> Capabilities: ...

    def close(self) -> None:
        """May be called at any time, and repeatedly."""


@runtime_checkable
class BulkBackend(Backend, Protocol):
    """A backend that installs many entries in one change."""

    def install_all(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        """Install the entries whose names are free. Returns the names that were taken, whose entries stay."""


@runtime_checkable
class EditableBackend(Backend, Protocol):
    """A backend whose entries can be changed in place."""

    def set_enabled(self, name: str, enabled: bool) -> ServerRef:
        """Raises NotInRegistry."""

    def replace(self, entry: Entry) -> ServerRef:
        """Replace the entry of the same name. Raises NotInRegistry."""


# --- Results ---


class Capabilities(msgspec.Struct, frozen=True):
    """True at the time of reading (MUST 3). A method whose flag is true never raises `Unsupported`."""

    supports_install: bool = False
    supports_uninstall: bool = False
    supports_capability_handshake: bool = False
    supports_audit: bool = False
    durable: bool = False
    supports_canonical_export: bool = False


class ServerRef(msgspec.Struct, frozen=True):
    """One line of a list. `source` is its location without credentials; `error` says why it cannot be used."""

    name: str
    description: str = ""
    transport: str = "stdio"
    version: str | None = None
    source: str = ""
    enabled: bool = True
    error: str = ""


class ValidationResult(msgspec.Struct, frozen=True):
    ok: bool
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


# --- Choosing a backend, by the scheme of a URL or the ending of a file ---


Factory = Callable[[str, Mapping[str, str]], Backend]

GROUP: Final = "perdure.registry_backends"

# scheme or ending: "module:function"; loaded only when used.
BUILT_IN: Final = {
    ".md": "perdure.registry.file.backend:open_markdown",
    ".json": "perdure.registry.file.backend:open_json",
    ".jsonc": "perdure.registry.file.backend:open_json",
    "http": "perdure.registry.http.backend:open_http",
    "https": "perdure.registry.http.backend:open_http",
}


def open_backend(location: str, environ: Mapping[str, str]) -> Backend:
    """The backend of a file or URL. Raises UnknownBackend; opens nothing yet."""
    return factory(location)(location, environ)


def factory(location: str) -> Factory:
    scheme, separator, _ = location.partition("://")
    if not separator and os.path.isdir(location):
        raise UnknownBackend(
            f"{location} is a folder; a registry is a file",
            hint=f"name the file in it: {os.path.join(location, FILE_NAMES[0])}",
        )
    kind = scheme.lower() if separator else os.path.splitext(location)[1].lower()
    module = BUILT_IN.get(kind)
    if module is not None:
        return _load(module)
    registered = _load_entry_point(kind)
    if registered is None:
        raise UnknownBackend(
            f"no registry backend for {kind or 'a file without an ending'}",
            hint=f"a file that ends in {' or '.join(sorted(k for k in BUILT_IN if k.startswith('.')))}, "
            f"or a backend of the entry point group {GROUP}",
        )
    return registered


def _load(name: str) -> Factory:
    from importlib import import_module

    module, _, function = name.partition(":")
    factory: Factory = getattr(import_module(module), function)
    return factory


def _load_entry_point(kind: str) -> Factory | None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        if point.name.lower() == kind:
            factory: Factory = point.load()
            return factory
    return None

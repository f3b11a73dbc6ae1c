"""What a backend says of its servers and of itself."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True):
    """What is true when it is read (MUST 3). A method whose flag is true never answers `Unsupported`."""

    supports_install: bool = False
    supports_uninstall: bool = False
    supports_capability_handshake: bool = False
    supports_audit: bool = False
    durable: bool = False
    supports_canonical_export: bool = False


class ServerRef(msgspec.Struct, frozen=True):
    """One line of a list. `source` says where it stands, without credentials; `error` why it cannot be used."""

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

"""What a host had read from its registry, written down for the process image that replaces it (law 15).

References are not resolved here, so nothing secret is added to what the registry file itself holds.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile
from perdure.registry.entry import Entry


class RegistrySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    entries: dict[str, Entry]
    problems: dict[str, str]
    allowed: frozenset[str] | None
    base: str
    signature: str
    specs: dict[str, MountSpec]
    faults: tuple[Fault, ...]
    listed: dict[str, MountSpec]
    mounts: dict[str, tuple[str, ...]]
    untrusted: tuple[UntrustedFile, ...]
    trust_mark: str


def dump(snapshot: RegistrySnapshot) -> bytes:
    # Keys that are not ours start nothing, and may hold numbers that only JSON can.
    entries = {name: structs.replace(entry, extra={}) for name, entry in snapshot.entries.items()}
    return msgspec.msgpack.encode(structs.replace(snapshot, entries=entries))


def load(data: bytes) -> RegistrySnapshot:
    try:
        return msgspec.msgpack.decode(data, type=RegistrySnapshot)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"holds no registry: {error}") from None

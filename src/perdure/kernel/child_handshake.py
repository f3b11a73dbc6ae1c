"""The answers of a server to the private handshake, read: what it says of itself, or why it refuses."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel.state import ChildCatalog
from perdure.protocol import eras
from perdure.protocol.eras import Era
from perdure.protocol.frames import Response, members

_encode = msgspec.json.encode

FIELD_OF = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}
"""The lists of a server: the capability that announces each, and the member of its result."""


class _Opened(msgspec.Struct):
    protocolVersion: str
    capabilities: Raw
    serverInfo: Raw
    instructions: str | None = None


class _Discovered(msgspec.Struct):
    supportedVersions: list[str]
    capabilities: Raw
    instructions: str | None = None


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Versions(msgspec.Struct):
    supported: list[str] = []


class _VersionRefusal(msgspec.Struct):
    code: int = 0
    data: _Versions = msgspec.field(default_factory=_Versions)


class Introduction(msgspec.Struct, frozen=True):
    """What a server said of itself: the era and version that it speaks, and the head of its catalog."""

    era: Era
    version: str
    catalog: ChildCatalog


def read_initialize(response: Response) -> Introduction | None:
    try:
        opened = msgspec.json.decode(response.result or b"", type=_Opened)
        members(opened.capabilities)
        members(opened.serverInfo)
    except (msgspec.MsgspecError, ValueError):
        return None
    catalog = ChildCatalog(bytes(opened.capabilities), bytes(opened.serverInfo), opened.instructions or "")
    return Introduction("handshake", opened.protocolVersion, catalog)


def read_discover(response: Response, mount: str) -> Introduction | None:
    try:
        discovered = msgspec.json.decode(response.result or b"", type=_Discovered)
        members(discovered.capabilities)
        info = members(members(response.result or b"{}").get("_meta", Raw(b"{}"))).get(eras.META_SERVER)
    except (msgspec.MsgspecError, ValueError):
        return None
    if eras.LATEST_MODERN not in discovered.supportedVersions:
        return None
    info = info if info is not None else Raw(_encode({"name": mount, "version": "0"}))
    instructions = discovered.instructions or ""
    catalog = ChildCatalog(bytes(discovered.capabilities), bytes(info), instructions, era="modern")
    return Introduction("modern", eras.LATEST_MODERN, catalog)


def supported_versions(error: Raw | None) -> list[str]:
    """The versions that a server names where it refuses the one it was asked in."""
    try:
        refusal = msgspec.json.decode(error or b"{}", type=_VersionRefusal)
    except msgspec.MsgspecError:
        return []
    return refusal.data.supported if refusal.code == eras.UNSUPPORTED_VERSION else []


def refusal_reason(response: Response) -> str:
    if response.error is None:
        return "was not answered with a valid result"
    try:
        error = msgspec.json.decode(response.error, type=_Error)
    except msgspec.MsgspecError:
        return "was refused"
    return f"was refused with {error.code}: {' '.join(error.message.split())[:120]}"


def error_code(error: Raw | None) -> int:
    try:
        return msgspec.json.decode(error or b"{}", type=_Error).code
    except msgspec.MsgspecError:
        return 0


def items_of(catalog: ChildCatalog, method: str) -> list[bytes]:
    match method:
        case "tools/list":
            return catalog.tools
        case "prompts/list":
            return catalog.prompts
        case "resources/list":
            return catalog.resources
        case _:
            return catalog.templates

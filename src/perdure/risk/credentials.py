"""Secrets known by the place they stand in: signed tokens, addresses with a password, basic authentication."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from perdure.risk.candidates import Candidate
from perdure.risk.randomness import EXAMPLE_CLAIMS, random_value, usable_password
from perdure.risk.report import Tier

JWT: Final = re.compile(
    rb"(?<![A-Za-z0-9_.-])(eyJ[A-Za-z0-9_-]{8,4000})\.([A-Za-z0-9_-]{4,8000})(?:\.([A-Za-z0-9_-]{10,2000})){1,3}"
)
URL: Final = re.compile(
    rb"://([^\s/:@\"'`<>\\|,;(){}]{0,80}+):([^\s/@\"'`<>\\]{3,200}?)@"
    rb"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]{1,200})"
)
SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{1,20}\Z")
LOCAL: Final = re.compile(rb"(?i)localhost|127\.|0\.0\.0\.0|\[?::1|host(?:name)?\Z|.*\bexample\b|.*\btest\Z")
ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
BASIC: Final = re.compile(rb"(?i:basic)\s{1,4}([A-Za-z0-9+/]{10,400}={0,2})(?![A-Za-z0-9+/=])")
USER: Final = re.compile(rb"(?:-u|--user)[= ]{1,3}([\"']?)([^\s:\"']{1,80}):([^\s\"']{6,200})\1")


def jwt(data: bytes, at: int) -> Candidate | None:
    """A signed token whose header says so. One whose header cannot be read may be cut or made up: it warns."""
    found = JWT.match(data, at)
    if found is None or _example(found[2]):
        return None
    header = _json(found[1])
    signed = header is not None and ("alg" in header or "enc" in header or "typ" in header)
    return Candidate(at, found.end(), "jwt_triplet", "jwt", "precise" if signed else "generic", 3, 20)


def _example(payload: bytes) -> bool:
    claims = _decoded(payload)
    return any(claim in claims for claim in EXAMPLE_CLAIMS)


def _json(part: bytes) -> dict[str, object] | None:
    try:
        return msgspec.json.decode(_decoded(part), type=dict[str, object])
    except msgspec.MsgspecError:
        return None


def _decoded(part: bytes) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error:
        return b""


def url(data: bytes, at: int) -> Candidate | None:
    """`scheme://user:password@host`. A password that only looks like one, or a local host, warns at most."""
    found = URL.match(data, at)
    if found is None:
        return None
    scheme = SCHEME.search(data[max(0, at - 21) : at])
    user, password, host = found[1], ESCAPED.sub(_unescaped, found[2]), found[3]
    if scheme is None or password == user:
        return None
    local = LOCAL.match(host) is not None
    tier: Tier
    start, end = found.span(2)
    if random_value(password, least=8):
        tier = "generic" if local else "precise"
    elif not local and b"." in host and usable_password(password):
        tier = "generic"
    else:
        return None
    return Candidate(start, end, "url_password", "connection_string", tier, 0, 15)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 16)])


def basic(data: bytes, at: int) -> Candidate | None:
    """`Authorization: Basic …` whose content is a name and a password."""
    found = BASIC.match(data, at)
    if found is None:
        return None
    name, colon, password = _decoded(found[1].translate(None, b"=")).partition(b":")
    if not colon or not name.isascii() or not password.isascii() or not random_value(password, least=8):
        return None
    start, end = found.span(1)
    return Candidate(start, end, "basic_auth", "password", "precise", 0, 15)


def user(data: bytes, at: int) -> Candidate | None:
    """`curl -u name:password`."""
    found = USER.match(data, at)
    if found is None or not random_value(found[3], least=8):
        return None
    start, end = found.span(3)
    return Candidate(start, end, "command_password", "password", "precise", 0, 15)

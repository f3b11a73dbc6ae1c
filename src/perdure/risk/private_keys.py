"""Private keys in text armour: PEM of every kind, PGP, OpenSSH, PuTTY, SSH2, OpenVPN.

A header alone is talk about keys. A key has a body, which may be on many lines, on one line with escaped line
breaks, or quoted line by line in a program. A body cut short in the middle, as in documentation, only warns.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.risk import randomness
from perdure.risk.candidates import Candidate
from perdure.risk.report import Tier

LITERALS: Final = (b"-----BEGIN ", b"---- BEGIN SSH2 ENCRYPTED PRIV", b"PuTTY-User-Key-File-")
HEADER: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----|-----BEGIN OpenVPN Static key V1-----"
    rb"|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----|PuTTY-User-Key-File-\d: [a-z0-9@.-]{3,40}"
)
FOOTER: Final = re.compile(
    rb"-----END [A-Za-z0-9 ]{3,60}-----|---- END SSH2[A-Z ]{3,40}----|Private-MAC: [0-9a-f]{40,64}"
)
# Armour headers such as `Proc-Type: 4,ENCRYPTED`, and what programs put around a line.
ARMOUR: Final = re.compile(
    rb"(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Subject|Public-Lines|Key-Derivation)[^\\\n]{0,200}"
)
AROUND: Final = re.compile(rb"\\[nrt]|[\s\"'`+,;#>|*\\()]+|//")
BODY: Final = re.compile(rb"[A-Za-z0-9+/=]+(?:\.{3})?")
LONGEST: Final = 16_384
CUT: Final = b"..."
KEY_BODY: Final = 40
CUT_BODY: Final = 8


def confirm(data: bytes, at: int) -> Candidate | None:
    """The key whose header is at this offset."""
    header = HEADER.match(data, at)
    if header is None:
        return None
    begin = header.end()
    end = min(len(data), begin + LONGEST)
    if (following := data.find(b"-----BEGIN ", begin, end)) >= 0:
        end = following
    if end - begin < CUT_BODY:
        return None
    footer = FOOTER.search(data, begin, end)
    if footer:
        end = footer.end()
    inside = data[begin : footer.start() if footer else end]
    if header[0].startswith(b"PuTTY"):
        inside = inside[max(0, inside.find(b"Private-Lines")) :]
    body, stop, foreign = _body(inside, closed=footer is not None)
    if len(body) < max(CUT_BODY, foreign * 4) or randomness.PLACEHOLDER.search(
        body.replace(CUT, b"").lower()
    ):
        return None
    mixed = not body.isupper() and not body.islower()
    whole = mixed and len(body) >= KEY_BODY and CUT not in body and not randomness.made_up(body[:200])
    if not whole and randomness.wordy(body.lower()):
        return None
    end = end if footer else begin + stop
    tier: Tier = "precise" if whole else "generic"
    return Candidate(at, end, "pem_private_key", "pem_block", tier, begin - at, 100)


def _body(inside: bytes, *, closed: bool) -> tuple[bytes, int, int]:
    """The base64 of the body without what is around its lines, where it stops, and how much else is in it."""
    if closed:
        plain = AROUND.sub(b" ", ARMOUR.sub(b"", inside))
        body = b"".join(BODY.findall(plain))
        return body, len(inside), len(plain) - plain.count(b" ") - len(body)
    read = bytearray()
    at = 0
    while at < len(inside):
        if skipped := ARMOUR.match(inside, at) or AROUND.match(inside, at):
            at = skipped.end()
            continue
        line = BODY.match(inside, at)
        if line is None or (len(line[0]) < CUT_BODY and len(read) < CUT_BODY):
            break
        read += line[0]
        at = line.end()
    return bytes(read), at, 0

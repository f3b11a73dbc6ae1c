"""Contents sealed for the disk: AES-256-GCM under a key that is never beside them.

The key is the text in PERDURE_SCRATCH_KEY, else one that is made once and kept in the keyring of the system. Each content
has a key of its own, derived from it with a random salt, and is bound to its name: no other content can take its place.

    mark (4) | salt (16) | nonce (12) | sealed content and tag
"""

from __future__ import annotations

import hashlib
import os
import secrets
from typing import TYPE_CHECKING, Final

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import ask_user

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE: Final = "PERDURE_SCRATCH_KEY"
SERVICE: Final = "perdure"
ACCOUNT: Final = "scratch"
MARK: Final = b"PDS1"
SALT: Final = 16
NONCE: Final = 12
# About a twentieth of a second and 16 MB for each key: a text that people remember is worth guessing.
ROUNDS: Final = 2**14


def seal(data: bytes, name: str) -> bytes:
    salt, nonce = os.urandom(SALT), os.urandom(NONCE)
    return MARK + salt + nonce + _cipher(salt).encrypt(nonce, data, name.encode())


def unseal(sealed: bytes, name: str) -> bytes:
    """Raises ToolError where the key is another, or the content is not what was sealed under this name."""
    from cryptography.exceptions import InvalidTag

    head = len(MARK) + SALT
    salt, nonce = sealed[len(MARK) : head], sealed[head : head + NONCE]
    try:
        return _cipher(salt).decrypt(nonce, sealed[head + NONCE :], name.encode())
    except InvalidTag:
        raise _cannot(
            "wrong_key",
            "the entry was encrypted with another key, or is damaged.",
            f"for the key it was encrypted with ({VARIABLE}).",
        ) from None


def _cipher(salt: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise _cannot(
            "no_cipher",
            "the policy wants scratch entries encrypted, and no cipher is installed.",
            "to install perdure[seal].",
        ) from None
    return AESGCM(hashlib.scrypt(_key().encode(), salt=salt, n=ROUNDS, r=8, p=1, dklen=32))


def _key() -> str:
    return os.environ.get(VARIABLE) or _kept_key()


def _kept_key() -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise _no_key() from None
    try:
        found = keyring.get_password(SERVICE, ACCOUNT)
        if found is None:
            keyring.set_password(SERVICE, ACCOUNT, secrets.token_urlsafe(32))
            found = keyring.get_password(SERVICE, ACCOUNT)
    except KeyringError:
        raise _no_key() from None
    if not found:
        raise _no_key()
    return found


def _no_key() -> ToolError:
    return _cannot(
        "no_key",
        "the policy wants scratch entries encrypted, and there is no key.",
        f"to set {VARIABLE}, or to give the system a keyring.",
    )


def _cannot(reason: str, message: str, todo: str) -> ToolError:
    return refuse(
        "policy_violation",
        reason,
        message,
        next_step=ask_user(todo),
        reason_hint="permission",
        suggested_action="ask_user",
    )

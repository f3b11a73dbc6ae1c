"""Contents sealed for the disk: AES-256-GCM under a key that is never beside them.

The key is the text in PERDURE_SCRATCH_KEY, else one that is made once and kept in the keyring of the system. Each process
seals with a key of its own, derived from it with a random salt. A content is bound to its name: no other content can take
its place.

    mark (4) | salt (16) | nonce (12) | sealed content and tag
"""

from __future__ import annotations

import hashlib
import os
import secrets
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from perdure.storage.errors import CipherError

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
    salt, nonce = _own_salt(), os.urandom(NONCE)
    return MARK + salt + nonce + _cipher(salt).encrypt(nonce, data, name.encode())


def unseal(sealed: bytes, name: str) -> bytes:
    """Raises CipherError where the key is another, or the content is not what was sealed under this name."""
    from cryptography.exceptions import InvalidTag

    head = len(MARK) + SALT
    salt, nonce = sealed[len(MARK) : head], sealed[head : head + NONCE]
    try:
        return _cipher(salt).decrypt(nonce, sealed[head + NONCE :], name.encode())
    except InvalidTag:
        raise CipherError("wrong_key") from None


@cache
def _own_salt() -> bytes:
    return os.urandom(SALT)


def _cipher(salt: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise CipherError("no_cipher") from None
    return AESGCM(_derive(_key(), salt))


@lru_cache(maxsize=64)
def _derive(key: str, salt: bytes) -> bytes:
    return hashlib.scrypt(key.encode(), salt=salt, n=ROUNDS, r=8, p=1, dklen=32)


def _key() -> str:
    return os.environ.get(VARIABLE) or _kept_key()


def _kept_key() -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        raise CipherError("no_key") from None
    try:
        key = keyring.get_password(SERVICE, ACCOUNT)
        if key is None:
            keyring.set_password(SERVICE, ACCOUNT, secrets.token_urlsafe(32))
            key = keyring.get_password(SERVICE, ACCOUNT)
    except KeyringError:
        raise CipherError("no_key") from None
    if not key:
        raise CipherError("no_key")
    return key

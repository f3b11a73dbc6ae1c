"""Contents by their hash: small ones in the journal, large ones as files, all of them durable before they count."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from perdure.platform.descriptors import pread
from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import ask_user
from perdure.storage import cipher
from perdure.storage.blobs import Blobs
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files.fingerprint import CHUNK
from perdure.storage.files.pending import PendingFile
from perdure.storage.journal import Journal

log = logging.getLogger(__name__)

INLINE: Final = 128 * 1024


class Content(msgspec.Struct, frozen=True):
    """What a file holds or will hold. `data` is there for a small one; a large one is a file already."""

    sha256: str
    size: int
    data: bytes | None = None
    is_fresh: bool = False  # a file that this process has just written and hashed
    mends: bool = False  # the copy that was kept is damaged: this one takes its place
    is_kept: bool = False  # a small one that the journal has: it is read when it is needed
    sealed: bytes | None = None  # the same encrypted: this is kept instead of `data`

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.sha256)

    def without_data(self) -> Content:
        """The same where the journal has it: a call that changes thousands of files does not hold their contents."""
        return self if self.data is None else Content(self.sha256, self.size, is_kept=True)


class ContentStore:
    def __init__(self, journal: Journal, blobs: Blobs) -> None:
        self._journal = journal
        self._blobs = blobs

    def take(self, data: bytes) -> Content:
        """A content that was sent. A large one is on disk for good when this returns."""
        if len(data) <= INLINE:
            return Content(hashlib.sha256(data).hexdigest(), len(data), data)
        return self._fresh(data)

    def take_pieces(self, pieces: Iterable[bytes]) -> Content:
        return self._fresh(pieces)

    def _fresh(self, source: bytes | Iterable[bytes]) -> Content:
        blob = self._blobs.put(source)
        return Content(blob.sha256, blob.size, is_fresh=True)

    def take_file(self, fd: int) -> Content:
        """A copy of an open file."""
        if os.fstat(fd).st_size <= INLINE:
            data = pread(fd, INLINE + 1, 0)
            if len(data) <= INLINE:
                return self.take(data)
        blob = self._blobs.put(fd)
        return Content(blob.sha256, blob.size)

    def find_or_mend(self, fd: int, sha256: str) -> Content:
        """The kept content of an open file, whose hash is known. A copy that is lost or damaged is taken again from the
        file, which is intact."""
        try:
            return self.find(sha256, verify=True)
        except JournalError:
            raise
        except (ToolError, StorageError) as error:
            if tool_error(error).envelope.error != "write_corruption":
                raise
            log.warning("kept content %s: %s; taken again from the file", sha256[:12], error)
        return msgspec.structs.replace(self.take_file(fd), mends=True)

    def seal(self, content: Content) -> Content:
        """A small content, to be kept encrypted. Raises CipherError."""
        assert content.data is not None
        return msgspec.structs.replace(content, sealed=cipher.seal(content.data, content.sha256))

    def record(self, content: Content, *, by_row: bool = True) -> None:
        """Inside the transaction: this content is needed from now on, by a row or only as a draft."""
        if content.is_kept:
            self._journal.keep_content(content.digest)
        elif content.sealed is not None:
            self._journal.store_sealed(content.digest, content.size, content.sealed, by_row=by_row)
        elif content.data is not None:
            self._journal.store_content(content.digest, content.data, by_row=by_row, mends=content.mends)
        else:
            self._journal.store_content_file(content.digest, content.size, by_row=by_row)

    def has(self, sha256: str) -> bool:
        return self._journal.has_content(bytes.fromhex(sha256))

    def find(self, sha256: str, *, verify: bool = False) -> Content:
        """With `verify` a large one is read and its hash compared; a small one always is."""
        digest = bytes.fromhex(sha256)
        data = self._journal.content(digest)
        if data is not None:
            if hashlib.sha256(data).digest() != digest:
                raise _damaged()
            return Content(sha256, len(data), data)
        if self.is_sealed(sha256):
            return self.find_kept(sha256)
        if not self._journal.content_file(digest):
            raise refuse(
                "not_found",
                "content_expired",
                "the store no longer keeps this content: it was older or larger than [keep] allows.",
                next_step=ask_user("for another source of this content, such as git."),
                suggested_action="ask_user",
                sha256=sha256,
            )
        with self._blobs.open(sha256, verify=verify) as file:
            return Content(sha256, os.fstat(file.fileno()).st_size)

    def find_kept(self, sha256: str) -> Content:
        """As `find`, but a small one is read, and its hash compared, when it is needed."""
        size = self._journal.content_size(bytes.fromhex(sha256))
        return Content(sha256, size, is_kept=True) if size is not None else self.find(sha256)

    def is_sealed(self, sha256: str) -> bool:
        return self._journal.sealed_content(bytes.fromhex(sha256)) is not None

    def load(self, sha256: str) -> bytes:
        """A content that may be shown. One that is sealed may not: `read` gives it for writing it back."""
        if self.is_sealed(sha256):
            raise refuse(
                "policy_violation",
                "content_sealed",
                "this version looks like a secret: it is kept encrypted and is not shown.",
                next_step=ask_user("to look at the file itself. undo and rewind bring this version back."),
                reason_hint="permission",
                suggested_action="ask_user",
                sha256=sha256,
            )
        return self.read(sha256)

    def read(self, sha256: str) -> bytes:
        content = self.find(sha256)
        if content.data is not None:
            return content.data
        return b"".join(self.pieces(content))

    def pieces(self, content: Content) -> Iterator[bytes]:
        if content.data is not None:
            yield content.data
            return
        if content.is_kept:
            yield self._kept(content.sha256)
            return
        with self._blobs.open(content.sha256, size=content.size) as file:
            while piece := file.read(CHUNK):
                yield piece

    def _kept(self, sha256: str) -> bytes:
        """A small content that the journal has."""
        digest = bytes.fromhex(sha256)
        sealed = self._journal.sealed_content(digest)
        data = cipher.unseal(sealed, sha256) if sealed is not None else self._journal.content(digest)
        if data is None or hashlib.sha256(data).digest() != digest:
            raise _damaged()
        return data

    def fill(self, pending: PendingFile, content: Content) -> None:
        if content.is_fresh:
            with self._blobs.open(content.sha256, size=content.size) as file:
                pending.copy(file.fileno(), content.sha256)
            return
        data = self._journal.content(content.digest) if content.is_kept else None
        for piece in (data,) if data is not None else self.pieces(content):
            pending.write(piece)
        if pending.sha256 != content.sha256:
            raise _damaged()


def _damaged() -> ToolError:
    return refuse(
        "write_corruption",
        "content_damaged",
        "a content in the store is damaged: it does not match its hash.",
        next_step=ask_user("to run perdure verify, which names every content that is damaged."),
        suggested_action="ask_user",
    )

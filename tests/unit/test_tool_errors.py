"""Every error of storage has the words of an answer, and nothing of the system's own text is in them."""

from __future__ import annotations

import errno

import msgspec
import pytest

from perdure.present.tool_errors import is_of_system, tool_error
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage import errors
from perdure.storage.errors import (
    CipherError,
    Conflict,
    ContentDamaged,
    FileChanging,
    FileError,
    JournalError,
    LockTimeout,
    StateError,
    StorageError,
    StoreReplaced,
    SyncError,
)

FULL = OSError(errno.ENOSPC, "no space in /home/somebody")
BROKEN = OSError(errno.EIO, "broken", "/home/somebody/f")

ANSWERS = [
    (FileError(FULL, path="f"), "quota_exceeded", "no_space"),
    (SyncError(BROKEN, "file", path="f"), "write_corruption", "fsync_failed"),
    (SyncError(FULL, "file"), "quota_exceeded", "no_space"),
    (FileChanging(), "conflict", "file_changing"),
    (Conflict("open_elsewhere"), "conflict", "open_elsewhere"),
    (ContentDamaged("missing", "0" * 64), "write_corruption", "blob_missing"),
    (ContentDamaged("hash", "0" * 64), "write_corruption", "blob_damaged"),
    (LockTimeout(), "conflict", "workspace_locked"),
    (LockTimeout("directory"), "conflict", "busy"),
    (JournalError("journal_io", errno=errno.ENOSPC), "quota_exceeded", "no_space"),
    (JournalError("journal_busy"), "conflict", "journal_busy"),
    (
        JournalError("journal_refused", detail="a newer version wrote it"),
        "policy_violation",
        "journal_refused",
    ),
    (StoreReplaced(), "conflict", "store_replaced"),
    (CipherError("no_key"), "policy_violation", "no_key"),
    (CipherError("no_cipher"), "policy_violation", "no_cipher"),
    (CipherError("wrong_key"), "policy_violation", "wrong_key"),
    (StateError("resource", "state_full", "there is no space"), "blocked", "state_full"),
]


@pytest.mark.parametrize(("error", "kind", "reason"), ANSWERS, ids=lambda value: type(value).__name__)
def test_an_error_of_storage_becomes_an_answer(error: StorageError, kind: str, reason: str) -> None:
    envelope = tool_error(error).envelope

    assert (envelope.error, envelope.context["reason"]) == (kind, reason)
    assert envelope.context["message"]
    assert envelope.context["next"]
    assert "/home" not in str(msgspec.to_builtins(envelope)) + str(error)


def test_no_error_of_storage_is_without_an_answer() -> None:
    known = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, StorageError)
    }

    assert {type(error) for error, _, _ in ANSWERS} == known - {StorageError}


def test_an_answer_stays_the_one_it_is() -> None:
    refused = refuse("blocked", "no", "no.", next_step=call_again())

    assert tool_error(refused) is refused
    assert isinstance(tool_error(BROKEN), ToolError)


def test_a_failing_system_is_told_from_what_is_at_a_path() -> None:
    assert is_of_system(FileError(FULL))
    assert is_of_system(LockTimeout("directory"))
    assert not is_of_system(FileError(OSError(errno.ENOENT, "gone")))
    assert not is_of_system(Conflict("file_vanished"))

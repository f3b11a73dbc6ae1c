"""Errors of the system and of storage as the envelope that the caller of a tool gets. All of their words are here.

| errno | error / reason_hint | reason |
|---|---|---|
| ENOSPC, EDQUOT | quota_exceeded / size_limit | no_space, disk_quota |
| EFBIG | quota_exceeded / size_limit | file_too_large |
| EMFILE, ENFILE, ENOMEM | quota_exceeded / unknown | out_of_descriptors, out_of_memory |
| EACCES, EPERM, EROFS | policy_violation / permission | permission_denied, read_only_filesystem |
| ELOOP, EXDEV | policy_violation / permission | symlink_loop, mount_crossing |
| EISDIR, ENOTDIR, ENAMETOOLONG | invalid_input / unknown | is_directory, not_a_directory, name_too_long |
| ENOENT | not_found / unknown | file_not_found |
| EEXIST | stale_precondition / unknown | file_already_exists |
| EAGAIN, EBUSY, ETXTBSY, ESTALE, EINTR | conflict / unknown | busy, stale_handle, interrupted |
| EIO and the rest | write_corruption / unknown | io_error, os_error |
"""

from __future__ import annotations

import errno
from typing import Any, Final, NamedTuple

from perdure.protocol.envelope import ErrorKind, ReasonHint, SuggestedAction, ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again, either
from perdure.storage.errors import (
    CipherError,
    Conflict,
    ConflictReason,
    ContentDamaged,
    FileChanging,
    FileError,
    JournalError,
    LockTimeout,
    StateError,
    StorageError,
    StoreReplaced,
    SyncError,
    errno_name,
)


class _Meaning(NamedTuple):
    """`{path}` in the texts is the file, or what else the system call was for."""

    error: ErrorKind
    hint: ReasonHint
    action: SuggestedAction
    reason: str
    message: str
    next_step: str


_FULL: Final = _Meaning(
    "quota_exceeded",
    "size_limit",
    "ask_user",
    "no_space",
    "the disk is full.",
    ask_user("to free space on the disk of the workspace; then call again."),
)
_DENIED: Final = _Meaning(
    "policy_violation",
    "permission",
    "ask_user",
    "permission_denied",
    "the system does not permit access to {path}.",
    ask_user("to give Perdure access to {path}."),
)
_BUSY: Final = _Meaning("conflict", "unknown", "retry_later", "busy", "{path} is in use.", call_again())
_FILES: Final = _Meaning(
    "quota_exceeded",
    "unknown",
    "retry_later",
    "out_of_descriptors",
    "the process has too many files open.",
    call_again(),
)
_OTHER: Final = _Meaning(
    "write_corruption",
    "unknown",
    "ask_user",
    "os_error",
    "the operating system refused the operation on {path}.",
    ask_user("to run perdure doctor, and to check the disk."),
)
_PATH: Final = _Meaning(
    "invalid_input",
    "unknown",
    "fix_syntax",
    "is_directory",
    "{path} is a directory, not a file.",
    call_again(path=FILL),
)
_MEANINGS: Final[dict[int, _Meaning]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL._replace(
        reason="disk_quota",
        message="the disk quota is used up.",
        next_step=ask_user("to raise the disk quota or free space; then call again."),
    ),
    errno.EFBIG: _FULL._replace(
        action="split",
        reason="file_too_large",
        message="{path} would be larger than the system allows.",
        next_step=ask_user("to raise the limit on file sizes (ulimit -f), or write several smaller files."),
    ),
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _FILES._replace(reason="out_of_memory", message="the system is out of memory."),
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED._replace(
        reason="read_only_filesystem",
        message="{path} is on a read-only file system.",
        next_step=ask_user("to make the file system of the workspace writable."),
    ),
    errno.ELOOP: _DENIED._replace(
        action="fix_syntax",
        reason="symlink_loop",
        message="{path} has a symbolic link where none may be.",
        next_step=call_again(path=FILL),
    ),
    errno.EXDEV: _DENIED._replace(
        action="fix_syntax",
        reason="mount_crossing",
        message="{path} is on another file system than the workspace.",
        next_step=call_again(path=FILL),
    ),
    errno.EISDIR: _PATH,
    errno.ENOTDIR: _PATH._replace(
        reason="not_a_directory", message="a parent of {path} is a file, not a directory."
    ),
    errno.ENAMETOOLONG: _PATH._replace(
        hint="size_limit", reason="name_too_long", message="a name in {path} is too long for the file system."
    ),
    errno.ENOENT: _PATH._replace(
        error="not_found", action="reread", reason="file_not_found", message="{path} does not exist."
    ),
    errno.EEXIST: _PATH._replace(
        error="stale_precondition",
        action="reread",
        reason="file_already_exists",
        message="{path} exists already.",
    ),
    errno.EAGAIN: _BUSY,
    errno.EBUSY: _BUSY,
    errno.ETXTBSY: _BUSY._replace(message="{path} is being executed."),
    errno.ESTALE: _BUSY._replace(
        reason="stale_handle", message="the file system no longer knows {path}: it was moved or removed."
    ),
    errno.EINTR: _BUSY._replace(reason="interrupted", message="the system call was interrupted."),
    errno.EIO: _OTHER._replace(reason="io_error", message="the disk reported an input/output error."),
}


_OF_THE_PATH: Final = frozenset(
    errno.errorcode[number]
    for number in (
        errno.ENOENT,
        errno.EEXIST,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EXDEV,
    )
)


_CONFLICTS: Final[dict[ConflictReason, str]] = {
    "changed_meanwhile": "another program changed the file at the same moment.",
    "open_elsewhere": "another program has the file open for writing.",
    "hard_linked": "another program gave the file a second name (hard link) at the same moment.",
    "not_a_file": "another program put something that is no file in its place.",
    "not_empty": "another program put something into the directory at the same moment.",
    "file_vanished": "another program removed the file at the same moment.",
    "not_put_back": "the file was replaced and cannot be put back now.",
}


def tool_error(error: ToolError | StorageError | OSError) -> ToolError:
    """The error to answer; a `ToolError` is one already. Not for `StoreReplaced` on its way to where the call is made
    again: that is recognised by its class."""
    match error:
        case ToolError():
            return error
        case OSError():
            return os_refusal(error)
        case SyncError():
            return _sync_failure(error)
        case FileError():
            return _from_errno(error.errno, **_facts(error))
        case FileChanging():
            return refuse(
                "conflict",
                "file_changing",
                "another program keeps writing to the file.",
                next_step=call_again(),
                suggested_action="retry_later",
            )
        case Conflict():
            return refuse(
                "conflict",
                error.reason,
                _CONFLICTS[error.reason],
                next_step=call_again(),
                suggested_action="retry_later" if error.reason == "open_elsewhere" else "reread",
            )
        case ContentDamaged():
            return _content_failure(error)
        case CipherError():
            return _cipher_failure(error)
        case LockTimeout():
            return _lock_timeout(error)
        case StoreReplaced():
            return refuse(
                "conflict",
                "store_replaced",
                "the store of this workspace was removed or replaced, so nothing was changed.",
                next_step=call_again(),
                suggested_action="retry_later",
            )
        case JournalError():
            return _journal_failure(error)
        case StateError():
            return _state_failure(error)
    raise AssertionError(f"no words for {type(error).__name__}") from error


def is_of_system(error: ToolError | StorageError) -> bool:
    """Whether an error is a failure of the system, not a property of a path."""
    number = tool_error(error).envelope.context.get("errno")
    return number is not None and number not in _OF_THE_PATH


def os_refusal(
    error: OSError, *, reason: str = "", message: str = "", next_step: str = "", **context: Any
) -> ToolError:
    """The refusal for a failed system call. `reason`, `message` and `next_step` replace what the errno alone would say."""
    return _from_errno(error.errno or 0, reason=reason, message=message, next_step=next_step, **context)


def _from_errno(
    number: int, *, reason: str = "", message: str = "", next_step: str = "", **context: Any
) -> ToolError:
    meaning = _MEANINGS.get(number, _OTHER)
    subject = str(context.get("path") or (f"the {context['of']}" if "of" in context else "the file"))
    return refuse(
        meaning.error,
        reason or meaning.reason,
        message or meaning.message.replace("{path}", subject),
        next_step=next_step or meaning.next_step.replace("{path}", subject),
        reason_hint=meaning.hint,
        suggested_action=meaning.action,
        errno=errno_name(number),
        **context,
    )


def _facts(error: FileError) -> dict[str, Any]:
    return {name: fact for name, fact in (("path", error.path), ("sha256", error.sha256)) if fact}


def _sync_failure(error: SyncError) -> ToolError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _from_errno(error.errno, **_facts(error))
    return refuse(
        "write_corruption",
        "fsync_failed",
        f"the {error.subject} may be lost in a power cut: the system could not make it durable.",
        next_step=ask_user("to check the disk, then to run perdure verify."),
        suggested_action="ask_user",
        errno=errno_name(error.errno),
        **_facts(error),
    )


def _lock_timeout(error: LockTimeout) -> ToolError:
    if error.subject == "directory":
        return _from_errno(errno.EAGAIN, message="another program keeps the directory locked.")
    if error.subject == "observation":
        return refuse(
            "conflict",
            "observation_locked",
            "another hook still looks through the workspace; the next hook records what has changed.",
            next_step=call_again(),
            suggested_action="retry_later",
        )
    return refuse(
        "conflict",
        "workspace_locked",
        "another process keeps the workspace locked.",
        next_step=either(
            call_again(), ask_user("to run perdure doctor, which names a process that is stopped")
        ),
        suggested_action="retry_later",
    )


def _content_failure(error: ContentDamaged) -> ToolError:
    if error.reason == "missing":
        return _damaged("blob_missing", "the store has lost a content that it recorded.", error.sha256)
    if error.reason == "size":
        return _damaged(
            "blob_damaged", "a content in the store is damaged: it has another size.", error.sha256
        )
    return _damaged("blob_damaged", "a content in the store is damaged: it has another hash.", error.sha256)


_CIPHER: Final = {
    "no_key": (
        "the content is to be encrypted, and there is no key.",
        "to set PERDURE_SCRATCH_KEY, or to give the system a keyring.",
    ),
    "no_cipher": (
        "the content is to be encrypted, and no cipher is installed.",
        "to install perdure[seal].",
    ),
    "wrong_key": (
        "the content was encrypted with another key, or is damaged.",
        "for the key it was encrypted with (PERDURE_SCRATCH_KEY).",
    ),
}


def _cipher_failure(error: CipherError) -> ToolError:
    message, step = _CIPHER[error.reason]
    return refuse(
        "policy_violation",
        error.reason,
        message,
        next_step=ask_user(step),
        reason_hint="permission",
        suggested_action="ask_user",
    )


def _damaged(reason: str, message: str, sha256: str) -> ToolError:
    return refuse(
        "write_corruption",
        reason,
        message,
        next_step=ask_user("to run perdure verify, which names every content that is damaged."),
        suggested_action="ask_user",
        sha256=sha256,
    )


def _journal_failure(error: JournalError) -> ToolError:
    if error.errno is not None:
        return _from_errno(error.errno, of="journal")
    match error.reason:
        case "journal_busy":
            return _of_journal(
                "conflict", error.reason, "another program keeps the journal locked.", "retry_later"
            )
        case "journal_read_only":
            return _of_journal(
                "policy_violation",
                error.reason,
                "the journal cannot be written: its file or folder is read-only.",
                "ask_user",
                hint="permission",
            )
        case "journal_damaged":
            return _of_journal(
                "write_corruption", error.reason, "the journal is damaged and cannot be read.", "ask_user"
            )
        case "journal_refused":
            return _of_journal("policy_violation", error.reason, f"{error.detail.rstrip('.')}.", "ask_user")
        case _:
            return _of_journal(
                "write_corruption",
                "journal_failed",
                "the journal failed for a reason that SQLite does not name.",
                "ask_user",
            )


def _of_journal(
    error: ErrorKind, reason: str, message: str, action: SuggestedAction, *, hint: ReasonHint = "unknown"
) -> ToolError:
    return refuse(
        error,
        reason,
        message,
        next_step=call_again()
        if action == "retry_later"
        else ask_user("to run perdure doctor, which says what is wrong with the journal."),
        reason_hint=hint,
        suggested_action=action,
    )


def _state_failure(error: StateError) -> ToolError:
    may_retry = error.retry in ("safe", "later")
    return refuse(
        "blocked",
        error.code,
        error.detail,
        next_step=call_again() if may_retry else ask_user(f"to check the state store: {error.detail}"),
        reason_hint="network" if error.fault == "transport" else "unknown",
        suggested_action="retry_later" if may_retry else "ask_user",
        fault={
            "class": error.fault,
            "code": error.code,
            "retry": error.retry,
            "outcome": error.outcome,
        },
    )

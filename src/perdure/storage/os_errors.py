"""What a failed system call means to whoever asked for the work, as an envelope.

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

from perdure.model.envelope import ErrorKind, ReasonHint, SuggestedAction, ToolError, refuse
from perdure.model.next_step import FILL, ask_user, call_again


class _Meaning(NamedTuple):
    error: ErrorKind
    hint: ReasonHint
    action: SuggestedAction
    reason: str
    message: str
    next_step: str


_FULL: Final = _Meaning(
    "quota_exceeded",
    "size_limit",
    "retry_later",
    "no_space",
    "there is no space left on the device",
    ask_user("to free space on the disk"),
)
_DENIED: Final = _Meaning(
    "policy_violation",
    "permission",
    "ask_user",
    "permission_denied",
    "the system does not permit it",
    ask_user("to change the permissions"),
)
_BUSY: Final = _Meaning("conflict", "unknown", "retry_later", "busy", "the file is busy", call_again())
_FILES: Final = _Meaning(
    "quota_exceeded", "unknown", "retry_later", "out_of_descriptors", "too many files are open", call_again()
)
_OTHER: Final = _Meaning(
    "write_corruption",
    "unknown",
    "ask_user",
    "os_error",
    "the operating system refused the operation",
    ask_user("to check the disk"),
)
_MEANINGS: Final[dict[int, _Meaning]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL._replace(reason="disk_quota", message="the disk quota is used up"),
    errno.EFBIG: _FULL._replace(
        action="split", reason="file_too_large", message="the file would be larger than the system allows"
    ),
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: _FILES._replace(reason="out_of_memory", message="the system is out of memory"),
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED._replace(reason="read_only_filesystem", message="the file system is read-only"),
    errno.ELOOP: _DENIED._replace(
        action="abort", reason="symlink_loop", message="the path has a symbolic link where none may be"
    ),
    errno.EXDEV: _DENIED._replace(
        action="abort", reason="mount_crossing", message="the path crosses into another file system"
    ),
    errno.EISDIR: _Meaning(
        "invalid_input", "unknown", "abort", "is_directory", "the path is a directory", call_again(path=FILL)
    ),
    errno.ENOTDIR: _Meaning(
        "invalid_input",
        "unknown",
        "abort",
        "not_a_directory",
        "a parent of the path is not a directory",
        call_again(path=FILL),
    ),
    errno.ENAMETOOLONG: _Meaning(
        "invalid_input", "size_limit", "abort", "name_too_long", "the path is too long", call_again(path=FILL)
    ),
    errno.ENOENT: _Meaning(
        "not_found", "unknown", "abort", "file_not_found", "there is no such file", call_again(path=FILL)
    ),
    errno.EEXIST: _Meaning(
        "stale_precondition",
        "unknown",
        "reread",
        "file_already_exists",
        "there is a file of this name",
        call_again(path=FILL),
    ),
    errno.EAGAIN: _BUSY,
    errno.EBUSY: _BUSY,
    errno.ETXTBSY: _BUSY._replace(message="the file is being executed"),
    errno.ESTALE: _BUSY._replace(reason="stale_handle", message="the file system no longer knows the file"),
    errno.EINTR: _BUSY._replace(reason="interrupted", message="the system was interrupted"),
    errno.EIO: _OTHER._replace(reason="io_error", message="the device reported an input/output error"),
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


def is_of_system(error: ToolError) -> bool:
    """Whether a refusal tells of a system that failed, and not of what was found at a path."""
    number = error.envelope.context.get("errno")
    return number is not None and number not in _OF_THE_PATH


def os_refusal(
    error: OSError, *, reason: str = "", message: str = "", next_step: str = "", **context: Any
) -> ToolError:
    """The refusal for a failed system call. `reason`, `message` and `next_step` replace what the errno alone would say."""
    number = error.errno or 0
    meaning = _MEANINGS.get(number, _OTHER)
    return refuse(
        meaning.error,
        reason or meaning.reason,
        message or meaning.message,
        next_step=next_step or meaning.next_step,
        reason_hint=meaning.hint,
        suggested_action=meaning.action,
        errno=errno.errorcode.get(number, str(number)),
        **context,
    )


def sync_refusal(error: OSError, what: str, **context: Any) -> ToolError:
    """A failed fsync, whatever its errno. The kernel may have dropped the pages and marked them clean, so a
    second fsync of the same descriptor could succeed without the data being anywhere: it is never retried."""
    number = error.errno or 0
    if number in (errno.ENOSPC, errno.EDQUOT):
        return os_refusal(error, **context)
    return refuse(
        "write_corruption",
        "fsync_failed",
        f"the {what} could not be made durable",
        next_step=ask_user("to check the disk: the system could not make a write durable"),
        suggested_action="ask_user",
        errno=errno.errorcode.get(number, str(number)),
        **context,
    )

"""A failed system call as the envelope that the caller of a tool gets.

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
from perdure.protocol.next_step import FILL, ask_user, call_again


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
    subject = str(context.get("path") or (f"the {context['of']}" if "of" in context else "the file"))
    return refuse(
        meaning.error,
        reason or meaning.reason,
        message or meaning.message.replace("{path}", subject),
        next_step=next_step or meaning.next_step.replace("{path}", subject),
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
        f"the {what} may be lost in a power cut: the system could not make it durable.",
        next_step=ask_user("to check the disk, then to run perdure verify."),
        suggested_action="ask_user",
        errno=errno.errorcode.get(number, str(number)),
        **context,
    )

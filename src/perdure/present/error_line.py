"""An error as one line without any content: it may be shown, and is logged."""

from __future__ import annotations

from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError


def describe_error(error: BaseException) -> str:
    if isinstance(error, (ToolError, StorageError)):
        envelope = tool_error(error).envelope
        return str(envelope.context.get("message") or envelope.error)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"{place}{error.strerror or type(error).__name__}"
    return type(error).__name__

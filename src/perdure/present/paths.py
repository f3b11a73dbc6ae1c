"""A path argument as text: `file://` URIs unwrapped, and the style (relative or absolute) a tool asked for.

Lexical only. Whether a path may be touched is decided where it is opened, never by its spelling; so a path
with `..`, or one outside every root, is handed on as it came.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.protocol.tools import PathStyle

_SCHEME: Final = "file:"
_ESCAPE = re.compile(r"%(?:([0-9A-Fa-f]{2})|.?)", re.DOTALL)


class BadFileUri(ValueError):
    """A `file:` URI that names no file; its text says why."""


def path_text(value: str, style: PathStyle, roots: tuple[str, ...]) -> str:
    """The path meant by an argument. Without roots its style is left alone. Raises `BadFileUri`."""
    path = _unwrapped(value) if value[:5].lower() == _SCHEME else value
    if not roots or ".." in path.split("/"):
        return path
    if style == "absolute":
        return path if path.startswith("/") else f"{roots[0].rstrip('/')}/{path}"
    within = [
        (len(root), at) for at, root in enumerate(roots) if f"{path}/".startswith(root.rstrip("/") + "/")
    ]
    if not within:
        return path
    _, at = max(within)
    rest = path[len(roots[at].rstrip("/")) :].lstrip("/")
    if at == 0:
        return rest or "."
    # Relative to another root than the first it would be read against the first: it is named as rows name it.
    return f"@{at}/{rest}" if rest else path


def _unwrapped(uri: str) -> str:
    rest = uri[5:]
    if not rest.startswith("//"):
        raise BadFileUri("a file URI starts with file://")
    host, slash, tail = rest[2:].partition("/")
    if host.lower() not in ("", "localhost") or not slash:
        raise BadFileUri("a file URI names a file of this machine, file:///path")
    if "?" in tail or "#" in tail:
        raise BadFileUri("a file URI has no query or fragment; write ? as %3F and # as %23")
    raw = bytearray()
    last = 0
    for found in _ESCAPE.finditer(tail):
        raw += tail[last : found.start()].encode("utf-8", "surrogatepass")
        last = found.end()
        if found.group(1) is None:
            raise BadFileUri("a file URI has a broken percent escape")
        raw.append(int(found.group(1), 16))
        if raw[-1] in b"\0/":
            raise BadFileUri("a file URI escapes a character that no file name has")
    raw += tail[last:].encode("utf-8", "surrogatepass")
    try:
        return "/" + raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadFileUri("a file URI is not UTF-8") from None

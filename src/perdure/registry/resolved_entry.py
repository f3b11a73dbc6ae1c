"""An entry with its references resolved: created when a server is started, and never shown or stored.

It is a plain class and no struct, so that it is not encoded by accident: its repr is redacted, and pickling, copying or
encoding it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, final

from perdure.registry.entry import Entry
from perdure.registry.templates import Template


@final
class ResolvedEntry:
    """What one start of a server needs, with secrets in clear."""

    __slots__ = ("args", "command", "cwd", "env", "headers", "name", "oauth", "secrets", "url")

    name: str
    command: str
    args: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    url: str
    headers: dict[str, str]
    oauth: dict[str, str]
    secrets: tuple[str, ...]  # every value of a variable, and every literal of env and headers

    def __repr__(self) -> str:
        return f"ResolvedEntry({self.name!r}, [redacted])"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a resolved entry holds secrets and is not stored")


def resolve(entry: Entry, environ: Mapping[str, str]) -> ResolvedEntry:
    """Raises UnsetVariable with the name of the first variable that is missing."""
    values: list[str] = []

    def value(template: Template | None) -> str:
        if template is None:
            return ""
        text = template.resolve(environ, entry=entry.name)
        values.extend(environ.get(ref.variable) or ref.default or "" for ref in template.references())
        return text

    resolved = ResolvedEntry()
    resolved.name = entry.name
    for field in ("env", "headers", "oauth"):
        setattr(resolved, field, {name: value(template) for name, template in getattr(entry, field).items()})
    for field in ("command", "cwd", "url"):
        setattr(resolved, field, value(getattr(entry, field)))
    resolved.args = tuple(map(value, entry.args))
    secrets = (
        *values,
        *resolved.env.values(),
        *resolved.headers.values(),
        resolved.oauth.get("client_secret", ""),
    )
    resolved.secrets = tuple(dict.fromkeys(filter(None, secrets)))
    return resolved

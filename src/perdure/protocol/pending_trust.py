"""A file of a workspace that waits for the user's trust: what it would start, and what it would set."""

from __future__ import annotations

import msgspec


def command_for(path: str) -> str:
    """What the user types to trust a file."""
    from shlex import quote

    return f"perdure trust {quote(path)}"


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server that a file would start: its command line, or the address it would connect to."""

    name: str
    command: str = ""
    url: str = ""

    @property
    def shown(self) -> str:
        return self.command or self.url


class UntrustedFile(msgspec.Struct, frozen=True):
    path: str
    changed: bool = False
    """Whether it was trusted once, with another content."""
    starts: tuple[Start, ...] = ()
    settings: tuple[str, ...] = ()
    """The keys that wait."""
    problem: str = ""
    """Why it cannot be read, so that nobody knows what waits."""

    @property
    def sentence(self) -> str:
        why = "changed since it was trusted" if self.changed else "is not trusted"
        if self.problem:
            return f"{self.path} {why}, and it cannot be used: {self.problem}"
        return f"{self.path} {why}, so {_waiting(self)} until you run: {command_for(self.path)}"


def _waiting(file: UntrustedFile) -> str:
    names = [start.name for start in file.starts]
    parts = [f"{_listed(names)} {'is' if len(names) == 1 else 'are'} not started"] if names else []
    if file.settings:
        parts.append(f"{_listed(file.settings)} {'does' if len(file.settings) == 1 else 'do'} not count")
    return " and ".join(parts) or "nothing in it counts"


def _listed(names: list[str] | tuple[str, ...]) -> str:
    """At most five by name: a sentence stays one."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def untrusted_mount(name: str, path: str, start: Start, *, changed: bool) -> str:
    """What a call of a server that waits is answered."""
    why = "changed since it was trusted" if changed else "is not trusted"
    verb = "run" if start.command else "connect to"
    return (
        f"{name} is not started: {path} {why}. It would {verb} {start.shown}. "
        f"To start it, the user runs: {command_for(path)}"
    )

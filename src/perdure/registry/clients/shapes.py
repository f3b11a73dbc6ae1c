"""How a client writes one server, as data: which key holds what, in which unit, and what it has no key for."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.registry.clients.references import LITERAL_ONLY, Syntax

MILLISECONDS = 1000
SECONDS = 1


class Timing(msgspec.Struct, frozen=True):
    """A key that holds a time, and how many of its units make a second."""

    key: str
    per_second: int


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """None, or an empty name, where the client has no key for it.

    `types` are the words for a transport under the key `type`; `urls` the key of the address by transport, which also
    says which remote transports there are. `env_names` is a list of variables that are passed on under their own
    name; `header_names` maps a header to a variable; `bearer_name` names the variable with a bearer token.
    `always` is written into each new entry.
    """

    command: str = "command"
    args: str | None = "args"
    env: str = "env"
    cwd: str | None = None
    urls: dict[str, str] = msgspec.field(default_factory=lambda: {"streamable-http": "url", "sse": "url"})
    headers: tuple[str, ...] = ("headers",)
    types: dict[str, str] = {}
    enabled: str | None = None
    disabled: str | None = None
    startup: Timing | None = None
    call: Timing | None = None
    allow: str | None = None
    deny: str | None = None
    required: str | None = None
    description: str | None = None
    name: str | None = None
    env_names: str | None = None
    header_names: str | None = None
    bearer_name: str | None = None
    always: dict[str, Any] = {}
    references: Syntax = LITERAL_ONLY

    @property
    def keys(self) -> frozenset[str]:
        """Every key of an entry that is ours to write; all others are the client's own and stay."""
        single = (
            self.command, self.args, self.env, self.cwd, self.enabled, self.disabled, self.allow, self.deny,
            self.required, self.description, self.name, self.env_names, self.header_names, self.bearer_name,
        )  # fmt: skip
        times = (one.key for one in (self.startup, self.call) if one is not None)
        typed = ("type",) if self.types else ()
        found = {*single, *times, *typed, *self.urls.values(), self.headers[0], *self.always}
        return frozenset(one for one in found if one)

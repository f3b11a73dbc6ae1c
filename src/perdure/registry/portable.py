"""Entries without literal secrets, each replaced by a reference to a variable: for a catalog, and for an import.

`without_secrets` prepares an entry for other machines: every literal that could be a secret becomes a reference. The user of
the other machine sets the variable. `move_secrets` takes an entry over from a client's file: only what looks like a secret
becomes a reference, so that no second file holds it.
"""

from __future__ import annotations

import re
from itertools import chain, count
from typing import Any, Final

import msgspec
from msgspec import structs

from perdure.registry.entry import Entry
from perdure.registry.errors import InvalidEntry
from perdure.registry.redaction import replace_secrets, scrub
from perdure.registry.templates import Reference, Template, variable_name
from perdure.risk.short_text import is_secret_value

# Beside a reference a short literal says how a token is sent; a longer one could be half of a secret.
SHORT_LITERAL: Final = 8
# Stands for the unknown value of a variable that is in use.
IN_USE: Final = "\0"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class MovedSecret(msgspec.Struct, frozen=True):
    """A secret that stays in the client's file, and the variable that stands for it in the registry."""

    name: str
    field: str
    variable: str


class _Variables:
    """Names a variable for each secret. Two secrets never share one; `taken` maps variables to their values."""

    short = SHORT_LITERAL

    def __init__(self, entry: Entry, taken: dict[str, str], *, every_literal: bool) -> None:
        self.every_literal = every_literal
        self.moved: list[MovedSecret] = []
        self._entry = entry.name
        self._taken = taken

    def literal(self, field: str, name: str, secret: str) -> str:
        variable = self._variable(field, name, secret)
        self._taken[variable] = secret
        self.moved.append(MovedSecret(self._entry, field, variable))
        return f"${variable}"

    def default(self, reference: Reference) -> str:
        is_secret = is_secret_value(reference.variable, reference.default or "")
        return f"${{{reference.variable}}}" if is_secret and self.every_literal else reference.source

    def _variable(self, field: str, name: str, secret: str) -> str:
        is_own = field.startswith("env ") and _VARIABLE.fullmatch(
            name
        )  # an environment variable keeps its name
        first = name if is_own else variable_name(name) or "_"
        prefix = variable_name(self._entry)
        longer = first if first.startswith(prefix) else variable_name(prefix, first)
        names = chain((first, longer), (f"{longer}_{number}" for number in count(2)))
        return next(name for name in names if self._taken.get(name, secret) == secret)


def without_secrets(entry: Entry) -> Entry:
    """The entry without a literal secret, and without keys of other programs."""
    replaced, _ = _replace(entry, {}, every_literal=True)
    return structs.replace(replaced, title=scrub(entry.title), description=scrub(entry.description), extra={})


def move_secrets(entry: Entry, taken: dict[str, str]) -> tuple[Entry, tuple[MovedSecret, ...]]:
    """The entry with its literal secrets as references. `taken` holds the variables of earlier entries."""
    return _replace(entry, taken, every_literal=False)


def _replace(
    entry: Entry, taken: dict[str, str], *, every_literal: bool
) -> tuple[Entry, tuple[MovedSecret, ...]]:
    variables = _Variables(entry, taken, every_literal=every_literal)
    fields: dict[str, Any] = {}
    for key, value in replace_secrets(entry, variables).items():
        match value:
            case dict():
                fields[key] = {name: Template(text) for name, text in value.items()}
            case list():
                fields[key] = tuple(map(Template, value))
            case str():
                fields[key] = Template(value)
    return structs.replace(entry, **fields), tuple(variables.moved)


def check_portable(entry: Entry) -> None:
    """Raise InvalidEntry, which names each field with a literal secret and never its value."""
    _, moved = _replace(entry, {}, every_literal=True)
    if moved:
        fields = dict.fromkeys(secret.field.replace("headers ", "header ") for secret in moved)
        raise InvalidEntry(
            f"{', '.join(fields)} of {entry.name} could be a secret and is not sent to a catalog",
            entry=entry.name,
            hint="refer to a variable instead: NAME=$NAME",
        )


def restore_secrets(received: Entry, stored: Entry) -> Entry:
    """The received entry, with stored values where it still has what `without_secrets` put in their place."""
    sent = without_secrets(stored)
    changes: dict[str, object] = {"extra": received.extra or stored.extra}
    for field in ("title", "description", "command", "args", "cwd", "url"):
        if getattr(received, field) == getattr(sent, field):
            changes[field] = getattr(stored, field)
    for field in ("env", "headers", "oauth"):
        own, public = getattr(stored, field), getattr(sent, field)
        changes[field] = {
            name: own[name] if value == public.get(name) else value
            for name, value in getattr(received, field).items()
        }
    return structs.replace(received, **changes)

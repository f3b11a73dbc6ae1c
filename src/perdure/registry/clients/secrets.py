"""Literal secrets of an entry that is taken over become references, each named, so that no second file holds them."""

from __future__ import annotations

import re
from itertools import chain, count
from typing import Final

import msgspec
from msgspec import structs

from perdure.registry.clients.references import reference
from perdure.registry.entry import Entry
from perdure.registry.redaction import REDACTED, is_random, looks_secret, scrubbed, shown_args
from perdure.registry.templates import Literal, Template, variable_name

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEME: Final = re.compile(r"(?i)(bearer|basic|token|digest) +")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

# In the place of a value that nobody knows: a variable that is in use already.
REFERRED_TO: Final = "\0"


class MovedSecret(msgspec.Struct, frozen=True):
    """A value that stays where it was found, and the variable that stands for it now."""

    name: str
    field: str
    variable: str


def move_secrets(entry: Entry, taken: dict[str, str]) -> tuple[Entry, tuple[MovedSecret, ...]]:
    """The entry with its literal secrets as references, and what was moved.

    `taken` is what stands for which value already: two servers with other values get other variables.
    """
    return _SecretMover(entry, taken).all()


class _SecretMover:
    def __init__(self, entry: Entry, taken: dict[str, str]) -> None:
        self.entry = entry
        self.taken = taken
        self.moved: list[MovedSecret] = []

    def all(self) -> tuple[Entry, tuple[MovedSecret, ...]]:
        entry = self.entry
        changed = structs.replace(
            entry,
            env={name: self._value("env", name, value, _own(name)) for name, value in entry.env.items()},
            headers={
                name: self._value("headers", name, value, variable_name(entry.name, name))
                for name, value in entry.headers.items()
            },
            args=self._args(),
            url=self._url("url", entry.url) if entry.url is not None else None,
        )
        return changed, tuple(self.moved)

    def _moved(self, field: str, name: str, value: str, before: str = "") -> str:
        own = variable_name(self.entry.name)
        longer = name if name.startswith(own) else variable_name(own, name)
        names = chain((name, longer), (f"{longer}_{number}" for number in count(2)))
        variable = next(one for one in names if self.taken.get(one, value) == value)
        self.taken[variable] = value
        self.moved.append(MovedSecret(self.entry.name, field, variable))
        return reference(variable, before=before)

    def _value(self, what: str, name: str, value: Template, variable: str) -> Template:
        text = _literal(value)
        if text is None or not looks_secret(name, text):
            return value
        scheme = _SCHEME.match(text)
        return Template((scheme[0] if scheme else "") + self._moved(f"{what} {name}", variable, text))

    def _args(self) -> tuple[Template, ...]:
        shown = shown_args(self.entry.args)
        return tuple(self._arg(n, arg, shown[n - 1]) for n, arg in enumerate(self.entry.args, 1))

    def _arg(self, number: int, arg: Template, shown: str) -> Template:
        field, variable = f"args {number}", variable_name(self.entry.name, f"arg_{number}")
        if _URL.match(arg.text) and not shown.startswith(REDACTED):
            return self._url(field, arg)
        hidden = shown.count(REDACTED) if REDACTED not in arg.text else 0
        if hidden == 1:
            before, _, after = shown.partition(REDACTED)
            return Template(before + self._moved(field, variable, arg.text, after) + after)
        if hidden or (arg.is_literal and is_random(arg.text)):
            return Template(self._moved(field, variable, arg.text))
        return arg

    def _url(self, field: str, url: Template) -> Template:
        head, asked, query = url.text.partition("?")
        query, mark, fragment = query.partition("#")
        scheme, slashes, rest = head.partition("://")
        authority, slash, path = rest.partition("/")
        userinfo, at, host = authority.rpartition("@")
        if at and _literal(Template(userinfo)) is not None:
            userinfo = self._moved(field, variable_name(self.entry.name, "url_userinfo"), userinfo)
        parameters = [self._parameter(field, one) for one in query.split("&")] if asked else []
        place = f"{scheme}{slashes}{userinfo}{at}{host}{slash}{self._path(field, path)}"
        return Template(f"{place}{asked}{'&'.join(parameters)}{mark}{fragment}")

    def _path(self, field: str, path: str) -> str:
        parts = path.split("/")
        for index, part in enumerate(parts):
            if _literal(Template(part)) is not None and (is_random(part) or scrubbed(part) != part):
                parts[index] = self._moved(field, variable_name(self.entry.name, "url_key"), part)
        return "/".join(parts)

    def _parameter(self, field: str, text: str) -> str:
        name, equals, value = text.partition("=")
        if not equals or _literal(Template(value)) is None or not looks_secret(name, value):
            return text
        return f"{name}={self._moved(field, variable_name(self.entry.name, name), value)}"


def _own(name: str) -> str:
    """A variable of the environment keeps its name."""
    return name if _VARIABLE.fullmatch(name) else variable_name(name) or "_"


def _literal(value: Template) -> str | None:
    """The value of a template without references."""
    return (
        "".join(part.text for part in value.parts if isinstance(part, Literal)) if value.is_literal else None
    )

"""Entries, URLs, arguments and foreign text without their secrets.

References are shown: they are names. Literal values of env and headers, the userinfo and the query of a URL, and arguments
that look like secrets are replaced; the host of a URL stays readable. `perdure.risk.short_text` says what a secret is.

One walk over the texts of an entry serves three uses. `Replacement` says what is written in place of a secret: the marker
for output, or a reference to a variable (`perdure.registry.portable`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from perdure.registry.entry import Entry
from perdure.registry.entry_json import members
from perdure.registry.templates import Reference, Template, escape
from perdure.risk.short_text import is_random, is_secret_name, is_secret_value, mask_secrets

REDACTED: Final = "[redacted]"
# Shorter values are words like `info` or `1`; replacing them would hide the text around them.
MIN_SECRET: Final = 6

_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest|apikey) +", re.IGNORECASE)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]*")
_ENV_OPTIONS: Final = frozenset({"-e", "--env", "-E", "--set-env"})
_HEADER_OPTIONS: Final = frozenset({"-H", "--header", "--headers"})


class Replacement(Protocol):
    """What is written in place of a secret."""

    @property
    def every_literal(self) -> bool:
        """Whether each literal of env, headers and a query is replaced, or only one that looks like a secret."""

    @property
    def short(self) -> int:
        """Beside a reference, a literal of so many characters says how a token is sent, and stays."""

    def literal(self, field: str, name: str, secret: str) -> str:
        """`field` says where the secret is, `name` suggests what to call it."""

    def default(self, reference: Reference) -> str:
        """A reference with a default, which may be a secret."""


class _Marker:
    every_literal = True
    short = 0

    def literal(self, field: str, name: str, secret: str) -> str:
        return REDACTED

    def default(self, reference: Reference) -> str:
        return reference.source.replace(f":-{reference.default}", f":-{REDACTED}")


_MARKER: Final = _Marker()


# --- Output ---


def mask_entry(entry: Entry) -> dict[str, Any]:
    """The whole entry as JSON; references unresolved, secrets masked."""
    fields = members(entry, whole=True) | replace_secrets(entry, _MARKER)
    fields |= {
        "title": entry.title or None,
        "description": scrub(entry.description),
        "extra": dict.fromkeys(entry.extra, REDACTED),
    }
    if entry.provenance is not None:
        fields["provenance"] |= {
            "catalog": mask_url(entry.provenance.catalog),
            "package": scrub(entry.provenance.package),
        }
    return {key: value for key, value in fields.items() if value or key not in ("provenance", "extra")}


def mask_value(value: Template) -> str:
    """A value of env or headers: its references, and the word that names how a token is sent."""
    return _replace_literals(value, "", "", _MARKER)


def mask_args(args: Sequence[Template | str]) -> list[str]:
    return list(_replace_args(args, _MARKER))


def mask_url(url: Template | str) -> str:
    """Without its userinfo, the values of its query, its fragment, and what looks like a key in its path."""
    return _replace_in_url(str(url), "url", _MARKER)


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Foreign text, such as a server's standard error, without known secrets and without what looks like one."""
    for secret in sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return mask_secrets(_URL.sub(lambda url: _scrub_url(url[0]), text), REDACTED)


def _scrub_url(url: str) -> str:
    rest = url.partition("://")[2]
    has_secret = any(mark in rest for mark in "@?#") or any(map(_is_key, rest.split("/")[1:]))
    return mask_url(url) if has_secret else url


# --- The walk over an entry ---


def replace_secrets(entry: Entry, replacement: Replacement) -> dict[str, Any]:
    """The fields of an entry that may hold secrets, as JSON."""
    fields: dict[str, Any] = {
        key: _replace_in_text(template, key, key, replacement)
        for key in ("command", "cwd")
        if (template := getattr(entry, key)) is not None
    }
    for key in ("env", "headers", "oauth"):
        is_env = key == "env"
        fields[key] = {
            name: _replace_value(
                value, f"{key} {name}", name if is_env else f"{entry.name} {name}", replacement
            )
            if key != "oauth" or is_secret_name(name)
            else _replace_in_text(value, f"{key} {name}", name, replacement)
            for name, value in getattr(entry, key).items()
        }
    fields["args"] = list(_replace_args(entry.args, replacement, entry.name))
    fields["url"] = _replace_in_url(entry.url.text, "url", replacement, entry.name) if entry.url else None
    return fields


def _replace_value(value: Template, field: str, name: str, replacement: Replacement) -> str:
    key = field.partition(" ")[2]
    if replacement.every_literal or (value.is_literal and _is_secret(key, value.resolve({}))):
        return _replace_literals(value, field, name, replacement)
    return value.text


def _replace_literals(value: Template, field: str, name: str, replacement: Replacement) -> str:
    """Every literal part but the word that says how a token is sent (`Bearer `)."""
    text = ""
    for part in value.parts:
        if isinstance(part, Reference):
            text += replacement.default(part) if part.default else part.source
            continue
        scheme = _SCHEME.match(part.text) if not text else None
        secret = part.text[scheme.end() :] if scheme else part.text
        text += scheme[0] if scheme else ""
        if secret and len(value.parts) > 1 and len(secret) <= replacement.short:
            text += escape(secret)
        elif secret:
            text += replacement.literal(field, name, secret)
    return text


def _replace_args(args: Sequence[Template | str], replacement: Replacement, entry: str = "") -> Iterator[str]:
    """The value of an option that names a secret, and what looks like a secret by itself."""
    previous = ""
    for number, arg in enumerate(args, 1):
        field, name = f"args {number}", f"{entry} arg {number}"
        yield _replace_in_arg(str(arg), previous, field, name, replacement, entry)
        previous = str(arg)


def _replace_in_arg(
    arg: str, previous: str, field: str, name: str, replacement: Replacement, entry: str
) -> str:
    def literals(text: str) -> str:
        return _replace_literals(Template(text), field, name, replacement)

    option, equals, value = arg.partition("=")
    if previous.startswith("-") and "=" not in previous:
        if is_secret_name(previous) and not arg.startswith("--"):
            return literals(arg)
        if previous in _ENV_OPTIONS and equals:
            return f"{option}={literals(value)}"
        if previous in _HEADER_OPTIONS:
            header, colon, text = arg.partition(":")
            return f"{header}: {literals(text.strip())}" if colon else literals(arg)
    if equals and is_secret_name(option):
        return f"{option}={literals(value)}"
    if equals and option in _HEADER_OPTIONS | _ENV_OPTIONS:
        inner, mark, text = value.partition(":" if ":" in value else "=")
        return f"{option}={inner}{mark}{literals(text)}" if mark else f"{option}={literals(value)}"
    return _replace_in_text(Template(arg), field, name, replacement, entry)


def _replace_in_text(
    template: Template, field: str, name: str, replacement: Replacement, entry: str = ""
) -> str:
    """A text of which only what looks like a secret is replaced."""
    if _URL.fullmatch(template.text):
        return _replace_in_url(template.text, field, replacement, entry)
    text = ""
    for part in template.parts:
        if isinstance(part, Reference):
            text += replacement.default(part) if part.default else part.source
            continue
        source = escape(part.text)
        scrubbed = scrub(source)
        is_key = not replacement.every_literal and template.is_literal and is_random(source)
        if scrubbed == source and not is_key:
            text += source
        elif replacement is _MARKER:
            text += scrubbed
        else:
            before, mark, after = scrubbed.partition(REDACTED)
            is_one = mark and REDACTED not in after and not after[:1].isalnum()
            secret = source.removeprefix(before).removesuffix(after) if is_one else source
            name_of_secret = replacement.literal(field, name, secret)
            text += before + name_of_secret + after if is_one else name_of_secret
    return text


def _replace_in_url(url: str, field: str, replacement: Replacement, entry: str = "") -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return _replace_in_text(Template(url), field, f"{entry} url", replacement)

    def literals(text: str, name: str) -> str:
        return _replace_literals(Template(text), field, f"{entry} {name}", replacement)

    rest, hash_mark, fragment = rest.partition("#")
    rest, question_mark, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, at, host = authority.rpartition("@")
    parts = [literals(part, "url_key") if _is_key(part) else part for part in path.split("/")]
    parameters = (
        [_replace_in_query(item, literals, replacement) for item in query.split("&")] if query else []
    )
    if replacement.every_literal:
        fragment = literals(fragment, "url_fragment")
    address = f"{scheme}://{literals(userinfo, 'url_userinfo')}{at}{host}{slash}{'/'.join(parts)}"
    return f"{address}{question_mark}{'&'.join(parameters)}{hash_mark}{fragment}"


def _replace_in_query(text: str, literals: Callable[[str, str], str], replacement: Replacement) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return literals(text, "url_query") if replacement.every_literal else text
    is_secret = replacement.every_literal or (Template(value).is_literal and _is_secret(name, value))
    return f"{name}={literals(value, name)}" if is_secret else text


def _is_secret(name: str, value: str) -> bool:
    return is_secret_value(name, value) or scrub(value) != value


def _is_key(text: str) -> bool:
    """Whether a part of a URL's path is a key."""
    return "$" not in text and (is_random(text) or (_URL.match(text) is None and scrub(text) != text))

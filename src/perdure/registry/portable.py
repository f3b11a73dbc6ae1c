"""Entries as they may leave this machine: references stay, literal values that could be secret become references.

The one who installs such an entry sets the variable; what it holds here is nobody else's business.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from perdure.registry.entry import Entry
from perdure.registry.errors import InvalidEntry
from perdure.registry.redaction import REDACTED, is_secret_name, scrubbed, shown_args, shown_url
from perdure.registry.templates import Literal, Part, Template, variable_name

SHORT_LITERAL: Final = 8


def without_secrets(entry: Entry) -> Entry:
    """The same entry without a literal secret. Keys that are not ours are left at home."""
    prefix = variable_name(entry.name) or "SERVER"
    return structs.replace(
        entry,
        title=scrubbed(entry.title),
        description=scrubbed(entry.description),
        env={name: _named(name, value) for name, value in entry.env.items()},
        headers={name: _named(name, value, prefix) for name, value in entry.headers.items()},
        oauth={
            name: _named(name, value, prefix) if is_secret_name(name) else value
            for name, value in entry.oauth.items()
        },
        args=tuple(
            _hidden(arg, shown, f"{prefix}_{number}_SECRET")
            for number, (arg, shown) in enumerate(zip(entry.args, shown_args(entry.args), strict=True), 1)
        ),
        url=_hidden(entry.url, shown_url(entry.url), f"{prefix}_URL_SECRET")
        if entry.url is not None
        else None,
        extra={},
    )


def check_portable(entry: Entry) -> None:
    """Raises InvalidEntry that names what would have to stay at home, and never its value."""
    fit = without_secrets(entry)
    kept = [
        f"{kind} {name}"
        for field, kind in (("env", "env"), ("headers", "header"), ("oauth", "oauth"))
        for name, value in getattr(entry, field).items()
        if getattr(fit, field)[name] != value
    ]
    kept += ["url"] if fit.url != entry.url else []
    kept += ["an argument"] if fit.args != entry.args else []
    if kept:
        raise InvalidEntry(
            f"{', '.join(kept)} of {entry.name} could be a secret and is not sent to a catalog",
            entry=entry.name,
            hint="refer to a variable instead: NAME=$NAME",
        )


def restore_secrets(sent: Entry, here: Entry) -> Entry:
    """What was sent, with the values that were never sent out put back in where the sender left them as they were."""
    shown = without_secrets(here)
    changes: dict[str, object] = {"extra": sent.extra or here.extra}
    for field in ("title", "description", "args", "url"):
        if getattr(sent, field) == getattr(shown, field):
            changes[field] = getattr(here, field)
    for field in ("env", "headers", "oauth"):
        own, public = getattr(here, field), getattr(shown, field)
        changes[field] = {
            name: own[name] if value == public.get(name) else value
            for name, value in getattr(sent, field).items()
        }
    return structs.replace(sent, **changes)


def _named(name: str, value: Template, prefix: str = "") -> Template:
    """A value of env or headers: a literal becomes the variable of its name, a telling default goes.

    Beside a reference a short literal is how a token is sent (`Bearer `); a longer one could be half of a secret.
    """
    if not value.text:
        return value
    if value.is_literal or any(
        isinstance(part, Literal) and len(part.text) > SHORT_LITERAL for part in value.parts
    ):
        return Template(f"${variable_name(f'{prefix} {name}')}")
    return Template("".join(_part(part, name) for part in value.parts))


def _part(part: Part, name: str) -> str:
    if isinstance(part, Literal):
        return part.text.replace("$", "$$")
    tells = (
        is_secret_name(part.variable) or is_secret_name(name) or scrubbed(part.default or "") != part.default
    )
    return f"${{{part.variable}}}" if part.default and tells else part.source


def _hidden(template: Template, shown: str, variable: str) -> Template:
    return template if REDACTED not in shown else Template(shown.replace(REDACTED, f"${{{variable}}}"))

"""The inputs of a record as texts with holes: fixed values, `{variables}` declared or not, and what is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from perdure.registry.official.records import Argument, Input
from perdure.registry.redaction import is_secret_name
from perdure.registry.runnable.plan import Ask, Text, Words
from perdure.registry.templates import variable_name

_HOLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}", re.ASCII)
_BLANK: Final = re.compile(r"<[^<>]+>")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What every shell sets, and what means another thing for every server: a hole called `path` must not be filled
# with the user's PATH.
_TAKEN: Final = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "SHELL",
        "PWD",
        "OLDPWD",
        "LANG",
        "TERM",
        "TMPDIR",
        "TMP",
        "TEMP",
        "LOGNAME",
        "HOSTNAME",
        "HOST",
        "EDITOR",
        "DISPLAY",
        "MAIL",
        "AUTHORIZATION",
        "AUTHENTICATION",
        "COOKIE",
        "TOKEN",
    ]
)


class Naming:
    """Gives each hole the name of a variable. `prefix` sets apart what would mean something else already."""

    def __init__(self, prefix: str) -> None:
        self._prefix = variable_name(prefix) or "SERVER"
        self._unnamed = 0

    def of(self, name: str) -> str:
        found = variable_name(name)
        if not found:
            self._unnamed += 1
            return f"{self._prefix}_ARG_{self._unnamed}"
        return f"{self._prefix}_{found}" if found in _TAKEN else found


def environment_text(one: Input, naming: Naming) -> Text:
    """A variable of the child's environment; asked for under its own name."""
    own = one.name if _VARIABLE.fullmatch(one.name) else naming.of(one.name)
    return _text(one, own, naming)


def header_text(one: Input, naming: Naming) -> Text:
    return _text(one, naming.of(one.name), naming)


def url_text(url: str, variables: Mapping[str, Input], naming: Naming) -> Text:
    return Text(_holes(url, variables, Input(is_required=True), naming))


def argument_words(one: Argument, naming: Naming) -> Words | None:
    """None where there is nothing to say: a switch that is off."""
    if one.type == "positional":
        own = naming.of(one.value_hint if _named(one.value_hint) else one.name or one.value_hint)
        return Words((_text(one, own, naming),))
    name = one.name if one.name.startswith("-") else f"--{one.name}"
    if one.is_bare:
        return Words((Text((name,)),))
    if one.format == "boolean" and not one.variables:
        return _switch(one, name, naming)
    value = _text(one, naming.of(one.name), naming)
    if name.endswith("="):
        return Words((Text((name, *value.parts)),))
    return Words((Text((name,)), value))


def _switch(one: Argument, name: str, naming: Naming) -> Words | None:
    if one.value is not None:
        return Words((Text((name,)),)) if one.value.lower() == "true" else None
    return Words((Text((name,)),), switch=_ask(one, naming.of(one.name)))


def _text(one: Input, own: str, naming: Naming) -> Text:
    if one.value is None:
        return Text((_ask(one, own),))
    if _BLANK.fullmatch(one.value):  # `<your-key>`: not a value but a place for one
        return Text((_ask(one, own, required=True),))
    return Text(_holes(one.value, one.variables, one, naming))


def _holes(text: str, declared: Mapping[str, Input], parent: Input, naming: Naming) -> tuple[str | Ask, ...]:
    found: list[str | Ask] = []
    at = 0
    for match in _HOLE.finditer(text):
        if text[at : match.start()]:
            found.append(text[at : match.start()])
        at = match.end()
        found.append(_hole(match[1], declared.get(match[1]), parent, naming))
    if text[at:]:
        found.append(text[at:])
    return tuple(found)


def _hole(name: str, declared: Input | None, parent: Input, naming: Naming) -> Ask:
    if declared is None:  # a variable that the record forgot to declare is as good as required
        return _ask(parent, naming.of(name), required=parent.default is None, label=name)
    ask = _ask(declared, naming.of(name), label=name)
    if parent.is_secret and not ask.secret:
        ask = _ask(declared, ask.variable, label=name, secret=True)
    return ask


def _ask(one: Input, variable: str, *, required: bool = False, label: str = "", secret: bool = False) -> Ask:
    return Ask(
        variable=variable,
        label=label or one.name or variable,
        description=one.description,
        required=required or one.is_required,
        secret=secret or one.is_secret or (one.default is None and is_secret_name(variable)),
        default=one.default,
        choices=one.choices,
        format=one.format,
        placeholder=one.placeholder,
    )


def _named(hint: str) -> bool:
    """Whether a value hint is a name, and not an example of a value."""
    return _VARIABLE.fullmatch(hint.replace("-", "_")) is not None

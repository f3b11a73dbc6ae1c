"""What is to be started, with holes where the user's own values go.

A plan is made from a record alone: nothing is looked up or fetched. `settled` fills the holes and gives the entry.
A hole that nobody filled takes its default, or, where a value is required, refers to a variable of its own name;
a word with an optional hole that stays empty is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from perdure.registry.catalog.records import Argument, Input
from perdure.registry.entry import Entry, Provenance, Transport
from perdure.registry.errors import InputRequired, RegistryError
from perdure.registry.templates import Reference, Template, variable_name
from perdure.risk.short_text import is_secret_name

_NAME_GOES_ON: Final = re.compile(r"[A-Za-z0-9_]", re.ASCII)
_IN_DEFAULT: Final = re.compile(r"[}$]")
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


class NotRunnable(RegistryError):
    """A record that cannot become an entry; the message says why."""

    code = "not_runnable"


class InputPrompt(msgspec.Struct, frozen=True):
    """A value that only the user has. `variable` is where it is looked for if it is not given."""

    variable: str
    label: str = ""
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    format: str = "string"
    placeholder: str = ""


class TextTemplate(msgspec.Struct, frozen=True):
    """A text with holes."""

    parts: tuple[str | InputPrompt, ...]

    @property
    def asks(self) -> tuple[InputPrompt, ...]:
        return tuple(part for part in self.parts if isinstance(part, InputPrompt))

    def fill(self, answers: Mapping[str, Template], *, overridable: bool = False) -> Template | None:
        """None where an optional hole stays empty. An overridable default can be replaced by the environment."""
        found = ""
        for part in self.parts:
            if isinstance(part, str):
                found = _closed(found, part) + Template.literal(part).text
                continue
            one = answers.get(part.variable)
            if one is None:
                one = _unanswered(part, overridable)
            if one is None:
                return None
            found += one.text
        return Template(found)


class ArgGroup(msgspec.Struct, frozen=True):
    """Words of a command line that are there together or not at all.

    A switch is there if its value is true; what needs another text is there if that text is.
    """

    texts: tuple[TextTemplate, ...]
    switch: InputPrompt | None = None
    needs: TextTemplate | None = None

    @property
    def asks(self) -> tuple[InputPrompt, ...]:
        own = (self.switch,) if self.switch is not None else ()
        return (*own, *(ask for text in self.texts for ask in text.asks))

    def fill(self, answers: Mapping[str, Template]) -> list[Template]:
        if self.switch is not None:
            answer = answers.get(self.switch.variable)
            given = answer.text if answer is not None else self.switch.default or ""
            if given.lower() not in ("true", "1", "yes"):
                return []
        if self.needs is not None and self.needs.fill(answers) is None:
            return []
        found = [text.fill(answers) for text in self.texts]
        return [] if None in found else [one for one in found if one is not None]


class Bundle(msgspec.Struct, frozen=True):
    """A file to fetch and check before anything of it is used."""

    url: str
    sha256: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run one version of a server. `package` names it exactly; `spec` is the word that pins it."""

    name: str
    version: str
    kind: str
    package: str
    spec: str = ""
    title: str = ""
    description: str = ""
    transport: Transport = "stdio"
    command: str = ""
    words: tuple[ArgGroup, ...] = ()
    env: dict[str, TextTemplate] = {}
    url: TextTemplate | None = None
    headers: dict[str, TextTemplate] = {}
    bundle: Bundle | None = None
    notes: tuple[str, ...] = ()

    @property
    def asks(self) -> tuple[InputPrompt, ...]:
        """Every hole once, in the order of the record; required where it is required anywhere."""
        found: dict[str, InputPrompt] = {}
        for ask in self._holes():
            known = found.get(ask.variable)
            if known is None or (ask.required and not known.required):
                found[ask.variable] = ask
        return tuple(found.values())

    def _holes(self) -> Iterator[InputPrompt]:
        for words in self.words:
            yield from words.asks
        for text in (*self.env.values(), *((self.url,) if self.url else ()), *self.headers.values()):
            yield from text.asks


def make_entry(plan: Plan, alias: str, answers: Mapping[str, Template], catalog: str, now: str = "") -> Entry:
    """The entry. Raises InvalidEntry for what no registry can hold."""
    env = {name: text.fill(answers, overridable=True) for name, text in plan.env.items()}
    headers = {name: text.fill(answers) for name, text in plan.headers.items()}
    shared = {
        "name": alias,
        "title": plan.title,
        "description": plan.description,
        "provenance": Provenance(
            catalog=catalog,
            name=plan.name,
            version=plan.version,
            package=plan.package,
            digest=f"sha256:{plan.bundle.sha256}" if plan.bundle else "",
            installed_at=now,
        ),
    }
    if plan.url is not None:
        return Entry(
            **shared,  # type: ignore[arg-type]
            transport=plan.transport,
            url=plan.url.fill(answers) or Template(""),
            headers={name: value for name, value in headers.items() if value is not None},
        )
    words = [word for one in plan.words for word in one.fill(answers)]
    return Entry(
        **shared,  # type: ignore[arg-type]
        command=Template.literal(plan.command),
        args=tuple(words),
        env={name: value for name, value in env.items() if value is not None},
    )


def check_answer(ask: InputPrompt, value: Template) -> Template:
    """The value, if it may stand there. A secret must be a reference: what is written down is not secret."""
    if ask.secret and value.is_literal:
        raise InputRequired(
            f"{ask.variable} is a secret and is not written down",
            hint=f"keep it in the environment and give its name: --env '{ask.variable}=${ask.variable}'",
        )
    if not value.is_literal:
        return value
    text = value.resolve({})
    if ask.choices and text not in ask.choices:
        raise InputRequired(f"{ask.variable} must be one of {', '.join(ask.choices)}")
    if ask.format == "number" and not _NUMBER.fullmatch(text):
        raise InputRequired(f"{ask.variable} must be a number")
    if ask.format == "boolean" and text.lower() not in ("true", "false"):
        raise InputRequired(f"{ask.variable} must be true or false")
    return value


def _unanswered(ask: InputPrompt, overridable: bool) -> Template | None:
    if ask.default is not None:
        if overridable and not _IN_DEFAULT.search(ask.default):
            return Template(f"${{{ask.variable}:-{ask.default}}}")
        return Template.literal(ask.default)
    return Template(f"${ask.variable}") if ask.required else None


def _closed(before: str, after: str) -> str:
    """`$NAME` with braces where the text that follows would be read as part of its name."""
    parts = Template(before).parts
    last = parts[-1] if parts else None
    if not isinstance(last, Reference) or last.source.startswith("${") or not _NAME_GOES_ON.match(after):
        return before
    return f"{before.removesuffix(last.source)}${{{last.variable}}}"


# --- The inputs of a record as texts with holes: fixed values, `{variables}` declared or not, and what is asked for ---


_HOLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}", re.ASCII)
_BLANK: Final = re.compile(r"<[^<>]+>")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What every shell sets, and what means another thing for every server: a hole called `path` must not be filled
# with the user's PATH.
_TAKEN: Final = frozenset(
    [
        "PATH", "HOME", "USER", "SHELL", "PWD", "OLDPWD", "LANG", "TERM", "TMPDIR", "TMP", "TEMP",
        "LOGNAME", "HOSTNAME", "HOST", "EDITOR", "DISPLAY", "MAIL", "AUTHORIZATION", "AUTHENTICATION",
        "COOKIE", "TOKEN",
    ]
)  # fmt: skip


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


def environment_text(one: Input, naming: Naming) -> TextTemplate:
    """A variable of the child's environment; asked for under its own name."""
    own = one.name if _VARIABLE.fullmatch(one.name) else naming.of(one.name)
    return _text(one, own, naming)


def header_text(one: Input, naming: Naming) -> TextTemplate:
    return _text(one, naming.of(one.name), naming)


def url_text(url: str, variables: Mapping[str, Input], naming: Naming) -> TextTemplate:
    return TextTemplate(_holes(url, variables, Input(is_required=True), naming))


def argument_words(one: Argument, naming: Naming) -> ArgGroup | None:
    """None where there is nothing to say: a switch that is off."""
    if one.type == "positional":
        own = naming.of(one.value_hint if _named(one.value_hint) else one.name or one.value_hint)
        return ArgGroup((_text(one, own, naming),))
    name = one.name if one.name.startswith("-") else f"--{one.name}"
    if one.is_bare:
        return ArgGroup((TextTemplate((name,)),))
    if one.format == "boolean" and not one.variables:
        return _switch(one, name, naming)
    value = _text(one, naming.of(one.name), naming)
    if name.endswith("="):
        return ArgGroup((TextTemplate((name, *value.parts)),))
    return ArgGroup((TextTemplate((name,)), value))


def _switch(one: Argument, name: str, naming: Naming) -> ArgGroup | None:
    if one.value is not None:
        return ArgGroup((TextTemplate((name,)),)) if one.value.lower() == "true" else None
    return ArgGroup((TextTemplate((name,)),), switch=_ask(one, naming.of(one.name)))


def _text(one: Input, own: str, naming: Naming) -> TextTemplate:
    if one.value is None:
        return TextTemplate((_ask(one, own),))
    if _BLANK.fullmatch(one.value):  # `<your-key>`: not a value but a place for one
        return TextTemplate((_ask(one, own, required=True),))
    return TextTemplate(_holes(one.value, one.variables, one, naming))


def _holes(
    text: str, declared: Mapping[str, Input], parent: Input, naming: Naming
) -> tuple[str | InputPrompt, ...]:
    found: list[str | InputPrompt] = []
    at = 0
    for match in _HOLE.finditer(text):
        if text[at : match.start()]:
            found.append(text[at : match.start()])
        at = match.end()
        found.append(_hole(match[1], declared.get(match[1]), parent, naming))
    if text[at:]:
        found.append(text[at:])
    return tuple(found)


def _hole(name: str, declared: Input | None, parent: Input, naming: Naming) -> InputPrompt:
    if declared is None:  # a variable that the record forgot to declare is as good as required
        return _ask(parent, naming.of(name), required=parent.default is None, label=name)
    ask = _ask(declared, naming.of(name), label=name)
    if parent.is_secret and not ask.secret:
        ask = _ask(declared, ask.variable, label=name, secret=True)
    return ask


def _ask(
    one: Input, variable: str, *, required: bool = False, label: str = "", secret: bool = False
) -> InputPrompt:
    return InputPrompt(
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

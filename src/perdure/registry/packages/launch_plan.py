"""A way to run one version of a server: an entry whose references are the inputs of its record.

A plan is made from a record alone: nothing is looked up or fetched. Each input is a reference to a variable (`Inputs`);
`make_entry` puts answers in their place. Without an answer an input takes its default; a required one stays a reference; the
word that holds another one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import structs

from perdure.registry.catalog.records import Argument, Input
from perdure.registry.entry import Entry, Provenance, Transport
from perdure.registry.errors import InputRequired, RegistryError
from perdure.registry.templates import Literal, Template, escape, join, variable_name
from perdure.risk.short_text import is_secret_name

_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_IN_DEFAULT: Final = re.compile(r"[}$]")


class NotRunnable(RegistryError):
    """A record that cannot become an entry; the message says why."""

    code = "not_runnable"


class InputPrompt(msgspec.Struct, frozen=True):
    """An input of the user. `variable` is where its value is taken from if it is not given."""

    variable: str
    label: str = ""
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    format: str = "string"
    placeholder: str = ""


class ArgGroup(msgspec.Struct, frozen=True):
    """Words of a command line that are there together or not at all.

    With a `switch`, a variable, only if that is true; with `needs`, only if that text has a value.
    """

    texts: tuple[Template, ...]
    switch: str = ""
    needs: Template | None = None

    @property
    def head(self) -> str:
        """The literal that begins the first word: an option, or a name."""
        return _literal(self.texts[0]) if self.texts else ""

    @property
    def value(self) -> str:
        """The literal that begins the second word."""
        return _literal(self.texts[1]) if len(self.texts) > 1 else ""


class Bundle(msgspec.Struct, frozen=True):
    """A file to fetch and check before anything of it is used."""

    url: str
    sha256: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`package` names the package exactly; `spec` is the word that pins it. References are the variables of `prompts`."""

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
    env: dict[str, Template] = {}
    url: Template | None = None
    headers: dict[str, Template] = {}
    prompts: dict[str, InputPrompt] = {}
    bundle: Bundle | None = None
    notes: tuple[str, ...] = ()


def make_entry(plan: Plan, alias: str, answers: Mapping[str, Template], catalog: str, now: str = "") -> Entry:
    """Raises InvalidEntry for what no registry can hold."""
    fill = _Answers(plan.prompts, answers)
    digest = f"sha256:{plan.bundle.sha256}" if plan.bundle else ""
    is_remote = plan.url is not None
    return Entry(
        name=alias,
        title=plan.title,
        description=plan.description,
        transport=plan.transport,
        command=None if is_remote else Template.literal(plan.command),
        args=() if is_remote else tuple(text for group in plan.words for text in fill.group(group)),
        env={} if is_remote else fill.values(plan.env, is_env=True),
        url=(fill.text(plan.url) or Template("")) if plan.url is not None else None,
        headers=fill.values(plan.headers),
        provenance=Provenance(
            catalog=catalog,
            name=plan.name,
            version=plan.version,
            package=plan.package,
            digest=digest,
            installed_at=now,
        ),
    )


class _Answers:
    """Puts answers, defaults or references in place of the inputs of a text."""

    def __init__(self, prompts: Mapping[str, InputPrompt], answers: Mapping[str, Template]) -> None:
        self._prompts = prompts
        self._answers = answers

    def text(self, template: Template, *, is_env: bool = False) -> Template | None:
        """None if an optional input in it has no value."""
        text = ""
        for part in template.parts:
            if isinstance(part, Literal):
                text = join(text, escape(part.text))
                continue
            answer = self._answers.get(part.variable) or self._without_answer(part.variable, is_env)
            if answer is None:
                return None
            text = join(text, answer.text)
        return Template(text)

    def values(self, templates: Mapping[str, Template], *, is_env: bool = False) -> dict[str, Template]:
        texts = {name: self.text(template, is_env=is_env) for name, template in templates.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def group(self, group: ArgGroup) -> list[Template]:
        if group.switch:
            answer = self._answers.get(group.switch)
            value = answer.text if answer is not None else self._prompts[group.switch].default or ""
            if value.lower() not in ("true", "1", "yes"):
                return []
        if group.needs is not None and self.text(group.needs) is None:
            return []
        texts = [self.text(text) for text in group.texts]
        return [text for text in texts if text is not None] if None not in texts else []

    def _without_answer(self, variable: str, is_env: bool) -> Template | None:
        """A default in the environment can be replaced from outside."""
        prompt = self._prompts[variable]
        if prompt.default is None:
            return Template(f"${variable}") if prompt.required else None
        if is_env and not _NOT_IN_DEFAULT.search(prompt.default):
            return Template(f"${{{variable}:-{prompt.default}}}")
        return Template.literal(prompt.default)


def check_answer(prompt: InputPrompt, value: Template) -> Template:
    """The value, if it is allowed. A secret must be a reference, so that it is in no file."""
    if prompt.secret and value.is_literal:
        raise InputRequired(
            f"{prompt.variable} is a secret and is not written to the registry",
            hint=f"keep it in the environment and give its name: --env '{prompt.variable}=${prompt.variable}'",
        )
    if not value.is_literal:
        return value
    text = value.resolve({})
    if prompt.choices and text not in prompt.choices:
        raise InputRequired(f"{prompt.variable} must be one of {', '.join(prompt.choices)}")
    if prompt.format == "number" and not _NUMBER.fullmatch(text):
        raise InputRequired(f"{prompt.variable} must be a number")
    if prompt.format == "boolean" and text.lower() not in ("true", "false"):
        raise InputRequired(f"{prompt.variable} must be true or false")
    return value


def _literal(template: Template) -> str:
    first = template.parts[0] if template.parts else None
    return first.text if isinstance(first, Literal) else ""


# --- The inputs of a record as templates ---


_HOLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"<[^<>]+>")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What every shell sets, and what has another meaning for every server: an input called `path` must not get the user's PATH.
_COMMON_NAMES: Final = frozenset(
    [
        "PATH", "HOME", "USER", "SHELL", "PWD", "OLDPWD", "LANG", "TERM", "TMPDIR", "TMP", "TEMP",
        "LOGNAME", "HOSTNAME", "HOST", "EDITOR", "DISPLAY", "MAIL", "AUTHORIZATION", "AUTHENTICATION",
        "COOKIE", "TOKEN",
    ]
)  # fmt: skip


class Inputs:
    """Turns the inputs of a record into templates, and collects a prompt for each variable.

    `prefix` is put before a name that has another meaning already.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = variable_name(prefix) or "SERVER"
        self._unnamed = 0
        self.prompts: dict[str, InputPrompt] = {}

    def variable(self, name: str) -> str:
        variable = variable_name(name)
        if not variable:
            self._unnamed += 1
            return f"{self._prefix}_ARG_{self._unnamed}"
        return f"{self._prefix}_{variable}" if variable in _COMMON_NAMES else variable

    def add(self, prompt: InputPrompt) -> str:
        """A reference to the input. One that is asked for twice is required if it is required once; with another default
        it is another input."""
        variable, number = prompt.variable, 1
        while (other := self.prompts.get(prompt.variable)) is not None:
            if None in (other.default, prompt.default) or other.default == prompt.default:
                prompt = structs.replace(
                    other,
                    required=other.required or prompt.required,
                    secret=other.secret or prompt.secret,
                    default=other.default if other.default is not None else prompt.default,
                )
                break
            number += 1
            prompt = structs.replace(prompt, variable=f"{variable}_{number}")
        self.prompts[prompt.variable] = prompt
        return f"${prompt.variable}"

    def environment(self, variables: Iterable[Input]) -> dict[str, Template]:
        """The child's environment; each variable is asked for under its own name."""
        return {
            variable.name: self._template(
                variable,
                variable.name if _VARIABLE.fullmatch(variable.name) else self.variable(variable.name),
            )
            for variable in variables
        }

    def header(self, header: Input) -> Template:
        return self._template(header, self.variable(header.name))

    def url(self, url: str, variables: Mapping[str, Input]) -> Template:
        return self._with_holes(url, variables, Input(is_required=True))

    def arguments(self, arguments: Iterable[Argument]) -> list[ArgGroup]:
        return [group for argument in arguments if (group := self._argument(argument)) is not None]

    def _argument(self, argument: Argument) -> ArgGroup | None:
        """None for a switch that is off."""
        if argument.type == "positional":
            hint = argument.value_hint
            is_name = _VARIABLE.fullmatch(hint.replace("-", "_")) is not None  # and not an example of a value
            variable = self.variable(hint if is_name else argument.name or hint)
            return ArgGroup((self._template(argument, variable),))
        name = argument.name if argument.name.startswith("-") else f"--{argument.name}"
        option = Template.literal(name)
        if argument.is_bare:
            return ArgGroup((option,))
        if argument.format == "boolean" and not argument.variables:
            if argument.value is not None:
                return ArgGroup((option,)) if argument.value.lower() == "true" else None
            return ArgGroup(
                (option,), switch=self._ask(argument, self.variable(argument.name)).removeprefix("$")
            )
        value = self._template(argument, self.variable(argument.name))
        if name.endswith("="):
            return ArgGroup((Template(join(option.text, value.text)),))
        return ArgGroup((option, value))

    def _template(self, source: Input, variable: str) -> Template:
        if source.value is None:
            return Template(self._ask(source, variable))
        if _PLACEHOLDER.fullmatch(source.value):  # `<your-key>`
            return Template(self._ask(source, variable, required=True))
        return self._with_holes(source.value, source.variables, source)

    def _with_holes(self, text: str, declared: Mapping[str, Input], parent: Input) -> Template:
        template, at = "", 0
        for match in _HOLE.finditer(text):
            template = join(template, escape(text[at : match.start()]))
            template = join(template, self._hole(match[1], declared.get(match[1]), parent))
            at = match.end()
        return Template(join(template, escape(text[at:])))

    def _hole(self, name: str, declared: Input | None, parent: Input) -> str:
        if declared is None:  # a variable that the record does not declare counts as required
            return self._ask(parent, self.variable(name), required=parent.default is None, label=name)
        return self._ask(declared, self.variable(name), label=name, secret=parent.is_secret)

    def _ask(
        self, source: Input, variable: str, *, required: bool = False, label: str = "", secret: bool = False
    ) -> str:
        return self.add(
            InputPrompt(
                variable=variable,
                label=label or source.name or variable,
                description=source.description,
                required=required or source.is_required,
                secret=secret or source.is_secret or (source.default is None and is_secret_name(variable)),
                default=source.default,
                choices=source.choices,
                format=source.format,
                placeholder=source.placeholder,
            )
        )

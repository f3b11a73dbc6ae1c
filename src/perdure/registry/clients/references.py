"""How each client writes a reference to a variable.

A template is written for a client only if the client would read exactly the same literals and references: a literal
`${HOME}` cannot be written for a client that would expand it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from perdure.registry.templates import Literal, Template, escape, join, variable_name

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_EDITOR_VARIABLES: Final = r"\$\{(?P<special>workspaceFolder|userHome|input:[^}]+)\}"


class Unrepresentable(ValueError):
    """The client's format cannot express it. The message says why, and holds no value."""


class ReferenceSyntax(msgspec.Struct, frozen=True):
    """`form` and `default` are how a reference is written; empty if the client has none."""

    form: str = ""
    default: str = ""
    pattern: str = ""


class ParsedText(msgspec.Struct, frozen=True):
    """A client's text as a template, and what changed in its meaning."""

    template: Template
    notes: tuple[str, ...] = ()


LITERAL_ONLY: Final = ReferenceSyntax()
BRACED: Final = ReferenceSyntax(
    "${%s}", "${%s:-%s}", rf"\$\{{(?P<variable>{_NAME})(?::-(?P<default>[^}}]*))?\}}"
)
SHELL: Final = ReferenceSyntax(
    "${%s}", "", rf"\$\{{(?P<variable>{_NAME})(?::-(?P<default>[^}}]*))?\}}|\$(?P<bare>{_NAME})"
)
EDITOR: Final = ReferenceSyntax("${env:%s}", "", rf"\$\{{env:(?P<variable>{_NAME})\}}|{_EDITOR_VARIABLES}")
SECRETS: Final = ReferenceSyntax(
    "${{ secrets.%s }}", "", rf"\$\{{\{{\s*(?:secrets|inputs)\.(?P<variable>{_NAME})\s*\}}\}}"
)
CURLY: Final = ReferenceSyntax(
    "{env:%s}", "", rf"\{{env:(?P<variable>{_NAME})\}}|\{{file:(?P<file>[^}}]*)\}}"
)


def format_template(template: Template, syntax: ReferenceSyntax) -> str:
    """Raises Unrepresentable."""
    text = ""
    for part in template.parts:
        if isinstance(part, Literal):
            text += part.text
        elif not syntax.form:
            raise Unrepresentable(
                "the client takes literal values only, and a reference is never resolved for it"
            )
        elif part.default is None:
            text += syntax.form % part.variable
        elif syntax.default:
            text += syntax.default % (part.variable, part.default)
        else:
            raise Unrepresentable("the client has no defaults for variables")
    if meaning(parse_template(text, syntax).template) != meaning(template):
        raise Unrepresentable("the client would take a part of the text for a reference")
    return text


def parse_template(text: str, syntax: ReferenceSyntax) -> ParsedText:
    """A client's text, with its references as ours and every other character as it is."""
    if not syntax.pattern:
        return ParsedText(Template.literal(text))
    source, at = "", 0
    notes: list[str] = []
    for match in re.finditer(syntax.pattern, text):
        source = join(join(source, escape(text[at : match.start()])), _reference(match, notes))
        at = match.end()
    return ParsedText(Template(join(source, escape(text[at:]))), tuple(notes))


def _reference(match: re.Match[str], notes: list[str]) -> str:
    groups = match.groupdict()
    if variable := groups.get("variable") or groups.get("bare"):
        default = groups.get("default")
        return f"${variable}" if default is None else f"${{{variable}:-{default}}}"
    if groups.get("file") is not None:
        notes.append("the content of a file is not read in; kept as text")
        return escape(match[0])
    special = groups["special"]
    if special == "workspaceFolder":
        notes.append("${workspaceFolder} became . (the working directory)")
        return "."
    if special == "userHome":
        return "$HOME"
    variable = variable_name(special.removeprefix("input:")) or "_"
    notes.append(f"the client asks for it; here it is the variable {variable}")
    return f"${variable}"


def meaning(template: Template) -> list[tuple[str, str | None, bool]]:
    """The parts of a template, however its references are written."""
    return [
        (part.text, None, True) if isinstance(part, Literal) else (part.variable, part.default, False)
        for part in template.parts
    ]

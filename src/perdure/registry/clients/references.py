"""How each client writes a reference to a variable, and what of ours it can say.

A text is said in a client's words only if the client would read it back as exactly the same literals and references:
a literal `${HOME}` cannot be told to a client that would expand it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from perdure.registry.templates import Literal, Template, variable_name

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_EDITOR_VARIABLES: Final = r"\$\{(?P<special>workspaceFolder|userHome|input:[^}]+)\}"


class Unrepresentable(ValueError):
    """The client has no words for it. The message says why, and holds no value."""


class Syntax(msgspec.Struct, frozen=True):
    """`form` and `default` are how a reference is written; empty where it cannot be."""

    form: str = ""
    default: str = ""
    pattern: str = ""


class ParsedText(msgspec.Struct, frozen=True):
    """A client's text as ours, and what had to be changed in its meaning."""

    template: Template
    notes: tuple[str, ...] = ()


LITERAL_ONLY: Final = Syntax()
BRACED: Final = Syntax("${%s}", "${%s:-%s}", rf"\$\{{(?P<variable>{_NAME})(?::-(?P<default>[^}}]*))?\}}")
SHELL: Final = Syntax(
    "${%s}", "", rf"\$\{{(?P<variable>{_NAME})(?::-(?P<default>[^}}]*))?\}}|\$(?P<bare>{_NAME})"
)
EDITOR: Final = Syntax("${env:%s}", "", rf"\$\{{env:(?P<variable>{_NAME})\}}|{_EDITOR_VARIABLES}")
SECRETS: Final = Syntax(
    "${{ secrets.%s }}", "", rf"\$\{{\{{\s*(?:secrets|inputs)\.(?P<variable>{_NAME})\s*\}}\}}"
)
CURLY: Final = Syntax("{env:%s}", "", rf"\{{env:(?P<variable>{_NAME})\}}|\{{file:(?P<file>[^}}]*)\}}")


def format_template(template: Template, syntax: Syntax) -> str:
    """The text in the client's words. Raises Unrepresentable."""
    found = ""
    for part in template.parts:
        if isinstance(part, Literal):
            found += part.text
        elif not syntax.form:
            raise Unrepresentable(
                "the client takes literal values only, and a reference is never resolved for it"
            )
        elif part.default is None:
            found += syntax.form % part.variable
        elif syntax.default:
            found += syntax.default % (part.variable, part.default)
        else:
            raise Unrepresentable("the client has no defaults for variables")
    if meaning(parse_template(found, syntax).template) != meaning(template):
        raise Unrepresentable("the client would take a part of the text for a reference")
    return found


def parse_template(text: str, syntax: Syntax) -> ParsedText:
    """A client's text, with its references as ours and every other character as it is."""
    if not syntax.pattern:
        return ParsedText(Template.literal(text))
    found, at = "", 0
    notes: list[str] = []
    for match in re.finditer(syntax.pattern, text):
        found += Template.literal(text[at : match.start()]).text + _reference(match, notes)
        at = match.end()
    return ParsedText(Template(found + Template.literal(text[at:]).text), tuple(notes))


def reference(variable: str, default: str | None = None, *, before: str = "") -> str:
    """Our words for a variable: short where nothing that follows could be taken for a part of its name."""
    if default is not None:
        return f"${{{variable}:-{default}}}"
    return f"${{{variable}}}" if re.match(r"[A-Za-z0-9_]", before) else f"${variable}"


def _reference(match: re.Match[str], notes: list[str]) -> str:
    groups = match.groupdict()
    variable = groups.get("variable") or groups.get("bare")
    if variable:
        return reference(variable, groups.get("default"), before=match.string[match.end() :])
    if groups.get("file") is not None:
        notes.append("the content of a file is not read in; kept as text")
        return Template.literal(match[0]).text
    special = groups["special"]
    if special == "workspaceFolder":
        notes.append("${workspaceFolder} became . (the working directory)")
        return "."
    if special == "userHome":
        return reference("HOME", before=match.string[match.end() :])
    variable = variable_name(special.removeprefix("input:")) or "_"
    notes.append(f"the client asks for it; here it is the variable {variable}")
    return reference(variable, before=match.string[match.end() :])


def meaning(template: Template) -> list[tuple[str, str | None, bool]]:
    """What a template says, whichever way it is written."""
    return [
        (part.text, None, True) if isinstance(part, Literal) else (part.variable, part.default, False)
        for part in template.parts
    ]

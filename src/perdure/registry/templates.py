"""Text that may refer to variables; stored unresolved.

    $VAR  ${VAR}  ${env:VAR}      the variable's value; unset is an error, empty is a value
    ${VAR:-default}               the default where it is unset or empty; also ${env:VAR:-default}
    $$                            one dollar sign
    anything else                 itself, a lone dollar sign too

A reference may be anywhere in a text: `Bearer $TOKEN`. The source text is kept as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from perdure.registry.errors import UnsetVariable

_REFERENCE: Final = re.compile(
    r"\$(?:(?P<escape>\$)"
    r"|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)"
    r"|\{(?:env:)?(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\})"
)
_NAME_CHARACTER: Final = re.compile(r"[A-Za-z0-9_]", re.ASCII)


class Literal(msgspec.Struct, frozen=True):
    """Text without references; `$$` is already one dollar sign."""

    text: str


class Reference(msgspec.Struct, frozen=True):
    """A variable, with the source text that names it."""

    variable: str
    source: str
    default: str | None = None


Part = Literal | Reference


class Template(msgspec.Struct, frozen=True):
    """A text with references. `text` is its source, exactly as in the file."""

    text: str

    @classmethod
    def literal(cls, value: str) -> Template:
        """The template of a value without references."""
        return cls(escape(value))

    @property
    def parts(self) -> tuple[Part, ...]:
        return _parts(self.text)

    def references(self) -> tuple[Reference, ...]:
        return tuple(part for part in self.parts if isinstance(part, Reference))

    @property
    def is_literal(self) -> bool:
        return not self.references()

    def resolve(self, environ: Mapping[str, str], *, entry: str = "") -> str:
        """Raises UnsetVariable, which names the variable alone."""
        return "".join(
            part.text if isinstance(part, Literal) else _value(part, environ, entry) for part in self.parts
        )

    def unset(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The variables without which it cannot be resolved."""
        return tuple(
            reference.variable
            for reference in self.references()
            if reference.default is None and reference.variable not in environ
        )

    def __str__(self) -> str:
        return self.text


def _value(reference: Reference, environ: Mapping[str, str], entry: str) -> str:
    value = environ.get(reference.variable)
    if reference.default is not None and not value:
        return reference.default
    if value is None:
        raise UnsetVariable(reference.variable, entry=entry)
    return value


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    literal, at = "", 0
    for match in _REFERENCE.finditer(text):
        literal += text[at : match.start()]
        at = match.end()
        if match["escape"]:
            literal += "$"
            continue
        if literal:
            parts.append(Literal(literal))
            literal = ""
        parts.append(Reference(match["bare"] or match["braced"], match[0], match["default"]))
    literal += text[at:]
    return (*parts, Literal(literal)) if literal else tuple(parts)


def escape(text: str) -> str:
    """A literal as it is written in a template."""
    return text.replace("$", "$$")


def join(first: str, second: str) -> str:
    """Two texts of templates as one. A `$NAME` gets braces if the second text would be read as part of its name."""
    parts = Template(first).parts if _NAME_CHARACTER.match(second) else ()
    last = parts[-1] if parts else None
    if not isinstance(last, Reference) or last.source.startswith("${"):
        return first + second
    return f"{first.removesuffix(last.source)}${{{last.variable}}}{second}"


def variable_name(*words: str) -> str:
    """A name that a variable can have, from words that may hold anything; empty if they hold no letter or digit."""
    name = re.sub(r"[^A-Z0-9]+", "_", "_".join(words).upper()).strip("_")
    return f"_{name}" if name[:1].isdigit() else name

"""Text that may refer to variables: parsed, never resolved where it is stored.

    $VAR  ${VAR}  ${env:VAR}      the variable's value; unset is an error, empty is a value
    ${VAR:-default}               the default where it is unset or empty; also ${env:VAR:-default}
    $$                            one dollar sign
    anything else                 itself, a lone dollar sign too

References may stand anywhere in a text: `Bearer $TOKEN`. The source text is kept as it was written.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from perdure.registry.errors import UnsetVariable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Literal(msgspec.Struct, frozen=True):
    """Text that stands for itself; an escaped dollar sign is already one here."""

    text: str


class Reference(msgspec.Struct, frozen=True):
    """A variable, with the source text that names it."""

    variable: str
    source: str
    default: str | None = None


Part = Literal | Reference


class Template(msgspec.Struct, frozen=True):
    """A text with references. `text` is its source, exactly as it stands in a file."""

    text: str

    @classmethod
    def literal(cls, value: str) -> Template:
        """The template that stands for this value alone."""
        return cls(value.replace("$", "$$"))

    @property
    def parts(self) -> tuple[Part, ...]:
        return _parts(self.text)

    def references(self) -> tuple[Reference, ...]:
        return tuple(part for part in self.parts if isinstance(part, Reference))

    @property
    def is_literal(self) -> bool:
        return not self.references()

    def resolve(self, environ: Mapping[str, str], *, entry: str = "") -> str:
        """The value. Raises UnsetVariable, which names the variable and nothing else."""
        return "".join(
            part.text if isinstance(part, Literal) else _value(part, environ, entry) for part in self.parts
        )

    def unset(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The variables without which it cannot be resolved."""
        return tuple(
            one.variable for one in self.references() if one.default is None and one.variable not in environ
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
    found: list[Part] = []
    literal = ""
    for piece, reference in _pieces(text):
        literal += piece
        if reference is not None:
            found += [Literal(literal), reference] if literal else [reference]
            literal = ""
    return (*found, Literal(literal)) if literal else tuple(found)


def _pieces(text: str) -> Iterator[tuple[str, Reference | None]]:
    """Text that stands for itself, and the reference behind it."""
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        yield text[at:dollar], None
        reference = _reference(text, dollar)
        if reference is not None:
            at = dollar + len(reference.source)
            yield "", reference
        else:
            at = dollar + (2 if text.startswith("$$", dollar) else 1)
            yield "$", None
    yield text[at:], None


def _reference(text: str, at: int) -> Reference | None:
    """The one that begins with the dollar sign at a place."""
    if not text.startswith("{", at + 1):
        end = _name_end(text, at + 1)
        return Reference(text[at + 1 : end], text[at:end]) if end > at + 1 else None
    for start in (at + 6, at + 2) if text.startswith("env:", at + 2) else (at + 2,):
        end = _name_end(text, start)
        name, default = text[start:end], None
        if name and text.startswith(":-", end):
            close = text.find("}", end)
            default, end = text[end + 2 : close], close
        if name and end >= 0 and text.startswith("}", end):
            return Reference(name, text[at : end + 1], default)
    return None


def _name_end(text: str, at: int) -> int:
    """Behind the name of a variable that begins at a place; the place itself where none does."""
    end = at
    while end < len(text) and (text[end] == "_" or (text[end].isascii() and text[end].isalnum())):
        end += 1
    return at if text[at:end][:1].isdigit() else end

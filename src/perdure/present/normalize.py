"""Arguments as they arrive, made into what a tool declared, only where the meaning is certain.

    strict_object(raw)        bytes of one JSON object that every reader reads alike
    presentation(given, …)    render and detail, taken out
    arguments(params, given)  aliases, integer-like strings, "true"/"false", file:// URIs, path style

Nothing is rounded, clamped or guessed: what is not certain is refused, with the nearest name or the
choices where that helps. A refusal names arguments and types, never the values that were sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect as shapes

from perdure.model.envelope import ToolError, refuse
from perdure.model.frames import DuplicateMember, members
from perdure.model.learned import learned
from perdure.model.tools import DETAILS, PRESENTATION, RENDERS, View
from perdure.present.paths import path_text

Params = TypeVar("Params", bound=msgspec.Struct)

MAX_DEPTH: Final = 64
_EXACT_FLOAT: Final = 2**53
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}", re.ASCII)
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_text = msgspec.json.Decoder(str)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _refuse(reason: str, message: str, **context: Any) -> ToolError:
    return refuse(
        "invalid_input", reason, message, reason_hint="syntax", suggested_action="fix_syntax", **context
    )


def strict_object(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """One JSON object, refused where two readers could disagree about what it says."""
    try:
        found = members(raw)
    except DuplicateMember as error:
        raise _twice(str(error)) from None
    except ValueError:
        found = None
    if found is None:
        # It is read once more to say what is wrong with it.
        if not isinstance(_strict(bytes(raw)), dict):
            raise _refuse("not_an_object", "arguments must be an object")
        raise _refuse("not_json", "arguments are not valid JSON")
    return {name: _member(value) for name, value in found.items()}


def _member(raw: msgspec.Raw) -> Any:
    """Text is by far the most of what is sent: it is read by the fastest reader, which is as strict."""
    if bytes(memoryview(raw)[:1]) == b'"':
        try:
            return _text.decode(raw)
        except (msgspec.MsgspecError, UnicodeError):
            pass  # it is read once more to say why
    return _strict(bytes(raw))


def _strict(data: bytes) -> Any:
    import json

    if _depth(data) >= MAX_DEPTH:
        raise _refuse("too_deep", f"arguments are nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_not_a_number, parse_float=_finite
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeError:
        raise _refuse("bad_text", "arguments hold text that is not valid Unicode") from None
    except ValueError:
        raise _refuse("not_json", "arguments are not valid JSON") from None


def _depth(data: bytes) -> int:
    if data.count(b"[") + data.count(b"{") < MAX_DEPTH:
        return 0
    depth = deepest = 0
    for found in _BRACKETS.finditer(data):
        mark = found.group()
        if mark in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark in (b"]", b"}"):
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _twice(next(name for name in names if names.count(name) > 1))
    return found


def _twice(name: str) -> ToolError:
    return _refuse("duplicate_argument", f"{_named(name)} is given twice", argument=_named(name))


def _not_a_number(_: str) -> Any:
    raise _refuse("not_a_number", "NaN and Infinity are not JSON numbers")


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise _refuse("number_too_large", "a number is larger than any that can be kept exactly")
    return value


def arguments(params: type[Params], given: Mapping[str, Any], *, roots: tuple[str, ...] = ()) -> Params:
    """The declared arguments of a tool from what a client sent. Raises `ToolError`."""
    declared = _declared(params)
    normal = _object(declared, given, "", roots)
    try:
        return msgspec.convert(normal, type=learned(params), strict=True)
    except msgspec.ValidationError as error:
        raise _refuse("bad_argument", _without_values(str(error))) from None


def presentation(given: Mapping[str, Any], default: View) -> tuple[View, dict[str, Any]]:
    """What every tool takes, apart from what this one takes: the view, and the other arguments."""
    rest = {name: value for name, value in given.items() if name not in PRESENTATION}
    for name, choices in (("render", RENDERS), ("detail", DETAILS)):
        if name in given and given[name] not in choices:
            raise _refuse("not_a_choice", f"{name} is not one of its choices", choices=list(choices))
    return View(given.get("render", default.render), given.get("detail", default.detail)), rest


_known: dict[type[msgspec.Struct], shapes.StructType] = {}


def _declared(params: type[msgspec.Struct]) -> shapes.StructType:
    if (found := _known.get(params)) is None:
        info = shapes.type_info(learned(params))
        assert isinstance(info, shapes.StructType)
        found = _known.setdefault(params, info)
    return found


def _without_values(message: str) -> str:
    """msgspec's sentence, which names types and places; the one that quotes a value is replaced."""
    what, _, where = message.partition(" - at ")
    if what.startswith("Invalid") or len(what) > 200:
        what = "not an accepted value"
    return f"{what} at {where.strip('`').removeprefix('$').lstrip('.')}" if where else what


def _object(
    declared: shapes.StructType, given: Mapping[str, Any], where: str, roots: tuple[str, ...]
) -> dict[str, Any]:
    fields, aliases, texts, required = _names(declared)
    normal: dict[str, Any] = {}
    for name, value in given.items():
        canonical = name if name in fields else aliases.get(name)
        if canonical is None:
            if declared.tag_field == name:
                normal[name] = value
                continue
            # What every tool takes was taken out before: only a misspelt one is still here.
            common = () if where else PRESENTATION
            raise _unknown(name, [*fields, *aliases, *common], aliases, where)
        place = f"{where}{canonical}" if where else canonical
        if type(value) is str and canonical in texts:
            settled: Any = value
        else:
            settled = _value(fields[canonical].type, value, place, roots)
        if canonical in normal and not _same(normal[canonical], settled):
            raise _refuse(
                "conflicting_alias", f"{place} is given under two names with different values", argument=place
            )
        normal[canonical] = settled
    missing = [f"{where}{name}" for name in required if name not in normal]
    if missing:
        raise _refuse("missing_argument", f"required: {', '.join(missing)}", missing=missing)
    return normal


class Names(NamedTuple):
    """The members of an object: `texts` are those of which any text is kept as it is."""

    fields: dict[str, shapes.Field]
    aliases: dict[str, str]
    texts: frozenset[str]
    required: tuple[str, ...]


_names_of: dict[int, tuple[shapes.StructType, Names]] = {}


def _names(declared: shapes.StructType) -> Names:
    """Its fields, and which other names they go by. Worked out once: what is declared stays as it is."""
    known = _names_of.get(id(declared))
    if known is not None and known[0] is declared:
        return known[1]
    fields = {field.encode_name: field for field in declared.fields}
    names = Names(
        fields,
        {alias: name for name, field in fields.items() for alias in _extra(field.type, "aliases", ())},
        frozenset(name for name, field in fields.items() if _is_text(field.type)),
        tuple(name for name, field in fields.items() if field.required),
    )
    _names_of[id(declared)] = (declared, names)
    return names


def _is_text(declared: shapes.Type) -> bool:
    match declared:
        case shapes.StrType():
            return True
        case shapes.Metadata(type=inner, extra=extra):
            return (extra or {}).get("path") is None and _is_text(inner)
        case shapes.UnionType(types=types):
            return all(isinstance(one, shapes.NoneType) or _is_text(one) for one in types)
        case _:
            return False


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _extra(declared: shapes.Type, key: str, default: Any) -> Any:
    match declared:
        case shapes.Metadata(extra=extra):
            return (extra or {}).get(key, default)
        case shapes.UnionType(types=types):
            return next((found for one in types if (found := _extra(one, key, default)) != default), default)
        case _:
            return default


def _unknown(name: str, known: list[str], aliases: Mapping[str, str], where: str) -> ToolError:
    from difflib import get_close_matches

    shown = f"{where}{_named(name)}"
    near = get_close_matches(name[:64].lower(), known, n=1, cutoff=0.6)
    if not near:
        return _refuse("unknown_argument", f"no argument {shown}", argument=shown)
    nearest = where + aliases.get(near[0], near[0])
    return _refuse(
        "unknown_argument", f"no argument {shown}; did you mean {nearest}?", argument=shown, nearest=nearest
    )


def _named(name: str) -> str:
    """A member's name where it looks like a name; anything else might be content."""
    return name if _NAME.fullmatch(name) else "(unnamed)"


def _value(declared: shapes.Type, value: Any, where: str, roots: tuple[str, ...]) -> Any:
    match declared:
        case shapes.Metadata(type=inner, extra=extra):
            style = (extra or {}).get("path")
            if style is not None and isinstance(value, str):
                return path_text(value, style, roots, where)
            return _value(inner, value, where, roots)
        case shapes.IntType():
            return _integer(value)
        case shapes.FloatType():
            return _float(value, where)
        case shapes.BoolType():
            return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        case shapes.LiteralType(values=values):
            if not any(_same(value, choice) for choice in values):
                raise _refuse("not_a_choice", f"{where} is not one of its choices", choices=list(values))
            return value
        case shapes.StructType() if isinstance(value, Mapping):
            return _object(declared, value, f"{where}.", roots)
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item) if isinstance(value, list):
            return [_value(item, element, f"{where}[{i}]", roots) for i, element in enumerate(value)]
        case shapes.DictType(value_type=item) if isinstance(value, Mapping):
            return {key: _value(item, element, f"{where}{{}}", roots) for key, element in value.items()}
        case shapes.UnionType(types=types):
            # With more than one type besides null, which one was meant is not certain.
            others = [one for one in types if not isinstance(one, shapes.NoneType)]
            return value if value is None or len(others) != 1 else _value(others[0], value, where, roots)
        case _:
            return value


def _integer(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    # 3.0 is an integer in JSON Schema; beyond 2^53 the digits that were sent may already be gone.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOAT:
        return int(value)
    return value


def _float(value: Any, where: str) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT_FLOAT:
        raise _refuse("number_too_large", f"{where} is larger than a number can be kept exactly")
    return value

"""Arguments as they arrive, made into what a tool declared, only where the meaning is certain.

    strict_object(raw)        bytes of one JSON object that every reader reads alike
    presentation(given, …)    render and detail, taken out
    arguments(params, given)  aliases, integer-like strings, "true"/"false", file:// URIs, path style,
                              one object for a list of objects, JSON for JSON text

Nothing is rounded, clamped or guessed: what is not certain is refused, with the nearest name or the
choices where that helps. All faults of one call are said at once. A refusal names arguments and types, never the values
that were sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import inspect as shapes

from perdure.present.paths import BadFileUri, path_text
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.frames import DuplicateMember, members
from perdure.protocol.msgspec_types import prepare_type
from perdure.protocol.next_step import FILL, call_again
from perdure.protocol.tools import DETAILS, PRESENTATION, RENDERS, View

Params = TypeVar("Params", bound=msgspec.Struct)

MAX_DEPTH: Final = 64
_MOST_TOLD: Final = 6
_MOST_NAMED: Final = 12
_EXACT_FLOAT: Final = 2**53
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}", re.ASCII)
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_text = msgspec.json.Decoder(str)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _refuse(reason: str, message: str, next_step: str = call_again(), **context: Any) -> ToolError:
    return refuse(
        "invalid_input",
        reason,
        message,
        next_step=next_step,
        reason_hint="syntax",
        suggested_action="fix_syntax",
        **context,
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
        # Parsed again by the slower parser, whose error says where the fault is.
        if not isinstance(_strict(bytes(raw)), dict):
            raise _refuse("not_an_object", "the arguments must be one JSON object.")
        raise _refuse("not_json", "the arguments are not valid JSON.")
    return {name: _member(value) for name, value in found.items()}


def _member(raw: msgspec.Raw) -> Any:
    """Most arguments are text: decoded by the fastest decoder, which is as strict."""
    if bytes(memoryview(raw)[:1]) == b'"':
        try:
            return _text.decode(raw)
        except (msgspec.MsgspecError, UnicodeError):
            pass  # it is read once more to say why
    return _strict(bytes(raw))


def _strict(data: bytes) -> Any:
    import json

    if _depth(data) >= MAX_DEPTH:
        raise _refuse("too_deep", f"the arguments are nested deeper than {MAX_DEPTH} levels.")
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_not_a_number, parse_float=_finite
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeError:
        raise _refuse("bad_text", "the arguments have text that is not valid Unicode.") from None
    except ValueError:
        raise _refuse("not_json", "the arguments are not valid JSON.") from None


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
    return _refuse(
        "duplicate_argument", f"{_named(name)} is given twice: give it once.", argument=_named(name)
    )


def _not_a_number(_: str) -> Any:
    raise _refuse("not_a_number", "NaN and Infinity are not numbers in JSON.")


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise _refuse("number_too_large", "a number is too large: JSON numbers go up to about 1.8e308.")
    return value


class _Faults:
    """Everything that is wrong with the arguments of one call, to be said at once."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._reason = ""
        self._changes: dict[str, Any] = {}
        self._context: dict[str, Any] = {}

    def add(self, reason: str, sentence: str, *places: str, **context: Any) -> None:
        """`places` are the arguments that the caller has to fill in anew."""
        self._reason = self._reason or reason
        self.sentences.append(sentence)
        self._changes |= {_argument(place): FILL for place in places}
        self._context = {**context, **self._context}

    def drop(self, place: str) -> None:
        """An argument that the next call leaves out."""
        if place.isidentifier():
            self._changes.setdefault(place, None)

    def refusal(self) -> ToolError:
        shown = self.sentences[:_MOST_TOLD]
        if (more := len(self.sentences) - len(shown)) > 0:
            shown.append(f"{more} more")
        several = {"faults": self.sentences} if len(self.sentences) > 1 else {}
        return _refuse(
            self._reason, f"{'; '.join(shown)}.", call_again(**self._changes), **self._context, **several
        )


def _argument(place: str) -> str:
    """The argument that a place such as `edits[0].old` is in."""
    return re.split(r"[.\[{]", place, maxsplit=1)[0]


def arguments(params: type[Params], given: Mapping[str, Any], *, roots: tuple[str, ...] = ()) -> Params:
    """The declared arguments of a tool from what a client sent. Raises `ToolError`."""
    declared = _declared(params)
    faults = _Faults()
    normal = _object(declared, given, "", roots, faults)
    if faults.sentences:
        raise faults.refusal()
    try:
        return msgspec.convert(normal, type=prepare_type(params), strict=True)
    except msgspec.ValidationError as error:
        _, _, where = str(error).partition(" - at ")
        place = where.strip("`").removeprefix("$").lstrip(".") or "arguments"
        raise _refuse("bad_argument", f"{place} has a value that is not accepted.") from None


def required(params: type[msgspec.Struct]) -> dict[str, Any]:
    """The arguments that a call must give, to be filled in."""
    return dict.fromkeys(_names(_declared(params)).required, FILL)


def given_arguments(params: msgspec.Struct) -> dict[str, Any]:
    """The arguments of a call by their declared names, without those that are as if they had not been given."""
    return {
        field.encode_name: value
        for field in msgspec.structs.fields(params)
        if (value := getattr(params, field.name)) != _default(field) and value is not None
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def presentation(given: Mapping[str, Any], default: View) -> tuple[View, dict[str, Any]]:
    """What every tool takes, apart from what this one takes: the view, and the other arguments."""
    rest = {name: value for name, value in given.items() if name not in PRESENTATION}
    for name, choices in (("render", RENDERS), ("detail", DETAILS)):
        if name in given and given[name] not in choices:
            raise _refuse(
                "not_a_choice", f"{name} must be {_listed(choices)}.", argument=name, choices=list(choices)
            )
    return View(given.get("render", default.render), given.get("detail", default.detail)), rest


_known: dict[type[msgspec.Struct], shapes.StructType] = {}


def _declared(params: type[msgspec.Struct]) -> shapes.StructType:
    if (found := _known.get(params)) is None:
        info = shapes.type_info(prepare_type(params))
        assert isinstance(info, shapes.StructType)
        found = _known.setdefault(params, info)
    return found


def _object(
    declared: shapes.StructType, given: Mapping[str, Any], where: str, roots: tuple[str, ...], faults: _Faults
) -> dict[str, Any]:
    fields, aliases, texts, required = _names(declared)
    normal: dict[str, Any] = {}
    for name, value in given.items():
        canonical = name if name in fields else aliases.get(name)
        if canonical is None:
            if declared.tag_field == name:
                normal[name] = value
                continue
            _unknown(name, fields, aliases, where, faults)
            continue
        place = f"{where}{canonical}" if where else canonical
        if type(value) is str and canonical in texts:
            settled: Any = value
        else:
            settled = _value(fields[canonical].type, value, place, roots, faults)
        if canonical in normal and not _same(normal[canonical], settled):
            others = [other for other in given if aliases.get(other) == canonical]
            faults.add(
                "conflicting_alias",
                f"{place} is given under two names with different values ({_listed([canonical, *others], 'and')})",
                place,
                argument=place,
            )
            for other in others if not where else []:
                faults.drop(other)
        normal[canonical] = settled
    missing = [f"{where}{name}" for name in required if name not in normal]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        faults.add("missing_argument", f"{_listed(missing, 'and')} {are} missing", *missing, missing=missing)
    return normal


class Names(NamedTuple):
    """The members of an object: `texts` are those of which any text is kept as it is."""

    fields: dict[str, shapes.Field]
    aliases: dict[str, str]
    texts: frozenset[str]
    required: tuple[str, ...]


_names_of: dict[int, tuple[shapes.StructType, Names]] = {}


def _names(declared: shapes.StructType) -> Names:
    """The fields of a struct and their other names. Cached: declarations do not change."""
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
        case shapes.StrType(min_length=None, max_length=None, pattern=None):
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


def _unknown(
    name: str, fields: Mapping[str, Any], aliases: Mapping[str, str], where: str, faults: _Faults
) -> None:
    from difflib import get_close_matches

    shown = f"{where}{_named(name)}"
    # What every tool takes was taken out before: only a misspelt one is still here.
    common = () if where else PRESENTATION
    near = get_close_matches(name[:64].lower(), [*fields, *aliases, *common], n=1, cutoff=0.6)
    if not where:
        faults.drop(name)
    if not near:
        accepted = _listed(list(fields)[:_MOST_NAMED], "and") if fields else "only render and detail"
        place = () if not where else (where,)
        faults.add(
            "unknown_argument", f"there is no argument {shown} (there are {accepted})", *place, argument=shown
        )
        return
    nearest = where + aliases.get(near[0], near[0])
    faults.add(
        "unknown_argument",
        f"there is no argument {shown} (did you mean {nearest}?)",
        nearest,
        argument=shown,
        nearest=nearest,
    )


def _named(name: str) -> str:
    """A member's name where it looks like a name; anything else might be content."""
    return name if _NAME.fullmatch(name) else "(unnamed)"


def _listed(words: Sequence[object], last: str = "or") -> str:
    """`a, b or c`."""
    *first, end = map(str, words)
    return f"{', '.join(first)} {last} {end}" if first else end


def _value(declared: shapes.Type, value: Any, where: str, roots: tuple[str, ...], faults: _Faults) -> Any:
    """The value converted to its declared type. Errors are added to `faults`."""
    match declared:
        case shapes.Metadata(type=inner, extra=extra):
            style = (extra or {}).get("path")
            if style is not None and isinstance(value, str):
                try:
                    return path_text(value, style, roots)
                except BadFileUri as error:
                    faults.add("bad_file_uri", f"{where}: {error}", where, argument=where)
                    return value
            if (extra or {}).get("json_text") and not isinstance(value, str):
                return None if value is None and _takes_null(inner) else _json_text(value)
            return _value(inner, value, where, roots, faults)
        case shapes.StrType():
            return _text_value(declared, value, where, faults)
        case shapes.IntType():
            value = _integer(value)
            if type(value) is not int:
                return _mistyped("a whole number", value, where, faults)
            return _bounded(declared, value, where, faults)
        case shapes.FloatType():
            if isinstance(value, bool) or not isinstance(value, int | float):
                return _mistyped("a number", value, where, faults)
            if isinstance(value, int) and abs(value) > _EXACT_FLOAT:
                faults.add("number_too_large", f"{where} must be at most 2^53", where, argument=where)
                return value
            return _bounded(declared, value, where, faults)
        case shapes.BoolType():
            value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
            return value if isinstance(value, bool) else _mistyped("true or false", value, where, faults)
        case shapes.LiteralType(values=values):
            if not any(_same(value, choice) for choice in values):
                choices = list(values)
                faults.add(
                    "not_a_choice",
                    f"{where} must be {_listed(choices)}",
                    where,
                    argument=where,
                    choices=choices,
                )
            return value
        case shapes.StructType():
            if not isinstance(value, Mapping):
                return _mistyped("an object", value, where, faults)
            return _object(declared, value, f"{where}.", roots, faults)
        case shapes.ListType(item_type=item) | shapes.VarTupleType(item_type=item):
            if isinstance(item, shapes.StructType) and _is_one_of(item, value):
                value = [value]  # one object where a list is meant
            if not isinstance(value, list):
                return _mistyped("a list", value, where, faults)
            _check_count(declared, item, len(value), where, faults)
            return [_value(item, element, f"{where}[{i}]", roots, faults) for i, element in enumerate(value)]
        case shapes.DictType(value_type=item):
            if not isinstance(value, Mapping):
                return _mistyped("an object", value, where, faults)
            return {
                key: _value(item, element, f"{where}{{}}", roots, faults) for key, element in value.items()
            }
        case shapes.UnionType(types=types):
            # With more than one type besides null, which one was meant is not certain.
            others = [one for one in types if not isinstance(one, shapes.NoneType)]
            if (value is None and len(others) < len(types)) or len(others) != 1:
                return value
            return _value(others[0], value, where, roots, faults)
        case _:
            return value


def _takes_null(declared: shapes.Type) -> bool:
    return isinstance(declared, shapes.UnionType) and declared.includes_none


def _json_text(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_one_of(declared: shapes.StructType, value: Any) -> bool:
    """Whether a value is an object with a member that this struct has."""
    names = _names(declared)
    return isinstance(value, Mapping) and any(name in names.fields or name in names.aliases for name in value)


_SENT: Final = (
    (type(None), "null"),
    (bool, "true or false"),
    (str, "a string"),
    (int, "a number"),
    (float, "a number"),
    (list, "a list"),
    (Mapping, "an object"),
)


def _mistyped(wanted: str, value: Any, where: str, faults: _Faults) -> Any:
    sent = next((name for kind, name in _SENT if isinstance(value, kind)), "something else")
    hint = ""
    if wanted == "a string" and isinstance(value, list | Mapping):
        hint = " (for JSON, send its text)"
    if sent == wanted or (sent == "a number" and wanted == "a whole number"):
        sent = "another number"
    faults.add("bad_argument", f"{where} must be {wanted}, and you sent {sent}{hint}", where, argument=where)
    return value


def _text_value(declared: shapes.StrType, value: Any, where: str, faults: _Faults) -> Any:
    if not isinstance(value, str):
        return _mistyped("a string", value, where, faults)
    problem = ""
    if len(value) < (declared.min_length or 0):
        problem = (
            "must not be empty" if declared.min_length == 1 else f"must have {declared.min_length} characters"
        )
    elif declared.max_length is not None and len(value) > declared.max_length:
        problem = f"must have at most {declared.max_length:,} characters, and it has {len(value):,}"
    elif declared.pattern is not None and not re.search(declared.pattern, value):
        problem = f"must match {declared.pattern}"
    if problem:
        faults.add("bad_argument", f"{where} {problem}", where, argument=where)
    return value


def _bounded(declared: shapes.IntType | shapes.FloatType, value: float, where: str, faults: _Faults) -> float:
    low, high = declared.ge, declared.le
    is_low = (low is not None and value < low) or (declared.gt is not None and value <= declared.gt)
    is_high = (high is not None and value > high) or (declared.lt is not None and value >= declared.lt)
    if is_low or is_high:
        if low is not None and high is not None:
            problem = f"must be from {low} to {high}"
        elif is_low:
            problem = f"must be at least {low}" if low is not None else f"must be more than {declared.gt}"
        else:
            problem = f"must be at most {high}" if high is not None else f"must be less than {declared.lt}"
        faults.add("bad_argument", f"{where} {problem}", where, argument=where)
    return value


def _check_count(
    declared: shapes.ListType | shapes.VarTupleType,
    item: shapes.Type,
    count: int,
    where: str,
    faults: _Faults,
) -> None:
    if count < (declared.min_length or 0):
        while isinstance(item, shapes.Metadata):
            item = item.type
        one = "item"
        if isinstance(item, shapes.StructType):
            one = f"{{{', '.join(field.encode_name for field in item.fields if field.required)}}}"
        state = "is empty" if not count else f"has {count} items"
        faults.add(
            "bad_argument",
            f"{where} {state}: give at least {declared.min_length} {one}",
            where,
            argument=where,
        )
    elif declared.max_length is not None and count > declared.max_length:
        faults.add(
            "bad_argument",
            f"{where} has {count:,} items: give at most {declared.max_length:,}",
            where,
            argument=where,
        )


def _integer(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    # 3.0 is an integer in JSON Schema; beyond 2^53 the digits that were sent may already be gone.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOAT:
        return int(value)
    return value

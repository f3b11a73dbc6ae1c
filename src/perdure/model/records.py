"""Frozen records of plain data, for what a command that only reads has to load.

They are what a frozen struct of msgspec is, without that package: importing it takes longer than such a command may
take in all. `__post_init__` is called where there is one, by `replaced` too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, NoReturn, Self, TypeVar, dataclass_transform

    R = TypeVar("R", bound="Record")
else:

    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        return lambda kind: kind


NOTHING: Any = {}  # the default of a dict: every record gets one of its own


@dataclass_transform(frozen_default=True)
class Record:
    """Its fields are the annotations of the class, in order, with their defaults."""

    __match_args__: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[tuple[str, ...]] = ()
    _emptied: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        fields = tuple(cls.__annotations__)
        cls.__match_args__ = fields  # type: ignore[misc]
        cls._required = tuple(name for name in fields if name not in cls.__dict__)
        cls._emptied = tuple(name for name in fields if cls.__dict__.get(name) is NOTHING)

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__match_args__
        given = self.__dict__
        given.update(zip(fields, values, strict=False))
        if len(values) > len(fields) or any(name in given or name not in fields for name in named):
            raise TypeError(f"{type(self).__name__} does not have these fields, or not twice")
        given.update(named)
        for name in self._required:
            if name not in given:
                raise TypeError(f"{type(self).__name__} needs {name}")
        for name in self._emptied:
            given.setdefault(name, {})
        self.__post_init__()

    def __post_init__(self) -> None:
        """Whether it can be what it says."""

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and astuple(self) == astuple(other)

    def __hash__(self) -> int:
        return hash((type(self), *astuple(self)))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in asdict(self).items())
        return f"{type(self).__name__}({shown})"

    def replaced(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return type(self)(**{**asdict(self), **changes})


def asdict(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__match_args__}


def astuple(record: Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__match_args__)


def changed_fields(record: Record) -> dict[str, Any]:
    """The fields that are not at their default."""
    usual = type(record).__dict__
    return {
        name: value for name, value in asdict(record).items() if name not in usual or value != usual[name]
    }

"""A record is plain data that does not change, and is checked however it is made."""

from __future__ import annotations

import copy
import pickle

import pytest

from perdure.model.records import NOTHING, Record, asdict, astuple, changed_fields


class Point(Record):
    x: int
    y: int = 0
    named: dict[str, int] = NOTHING

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("left of the edge")


class Other(Record):
    x: int
    y: int = 0
    named: dict[str, int] = NOTHING


def test_fields_are_given_by_place_or_name_and_the_rest_is_as_declared() -> None:
    assert asdict(Point(1, y=2)) == {"x": 1, "y": 2, "named": {}}
    assert astuple(Point(x=3)) == (3, 0, {})
    assert repr(Point(1)) == "Point(x=1, y=0, named={})"


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1, 2, {}, 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1})]
)
def test_what_is_no_field_or_missing_or_given_twice_is_refused(
    given: tuple[int, ...], named: dict[str, int]
) -> None:
    with pytest.raises(TypeError):
        Point(*given, **named)  # type: ignore[arg-type]


def test_a_record_does_not_change_and_shares_no_default() -> None:
    one, two = Point(1), Point(1)
    with pytest.raises(AttributeError):
        one.x = 2  # type: ignore[misc]
    one.named["a"] = 1
    assert two.named == {}
    assert Point(1).named == {}


def test_records_are_equal_by_kind_and_fields() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert hash(Word("a")) == hash(Word("a"))


def test_a_changed_copy_is_checked_again() -> None:
    assert Point(1, 2).replaced(x=5) == Point(5, 2)
    with pytest.raises(ValueError, match="left of the edge"):
        Point(1).replaced(x=-1)


def test_only_what_differs_from_its_default_is_told() -> None:
    assert changed_fields(Point(1)) == {"x": 1}
    assert changed_fields(Point(1, named={"a": 1})) == {"x": 1, "named": {"a": 1}}


def test_a_record_can_be_copied_and_taken_apart() -> None:
    assert copy.deepcopy(Word("a")) == Word("a")
    assert pickle.loads(pickle.dumps(Word("a"))) == Word("a")
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


class Word(Record):
    text: str

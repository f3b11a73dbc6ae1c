"""The members of a JSON object, held to the kind that is meant. `null` is as good as absent: some write it.

What is said of a wrong one is where it stands and what it should be, never its value.
"""

from __future__ import annotations

from typing import Any


class WrongKind(ValueError):
    """A value that is not what it should be; fit to be shown."""


def texts(value: Any, at: str = "it") -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongKind(f"{at} is not a list")
    if not all(isinstance(one, str) for one in value):
        raise WrongKind(f"{at} holds something that is not a text")
    return tuple(value)


def named_texts(value: Any, at: str = "it") -> dict[str, str]:
    if not isinstance(value, dict):
        raise WrongKind(f"{at} is not an object")
    for name, one in value.items():
        if not isinstance(one, str):
            raise WrongKind(f"{at}.{name} is not a text")
    return value


class Members:
    """An object, asked by key."""

    def __init__(self, found: Any, at: str = "") -> None:
        if not isinstance(found, dict):
            raise WrongKind(f"{at or 'it'} is not an object")
        self.found: dict[str, Any] = found
        self._at = f"{at}." if at else ""

    def text(self, key: str) -> str:
        found: str = self._of(key, str, "a text", "")
        return found

    def flag(self, key: str, usual: bool) -> bool:
        found: bool = self._of(key, bool, "true or false", usual)
        return found

    def word(self, key: str, *allowed: str) -> str:
        """One of these; the first where nothing is said."""
        value = self.text(key) or allowed[0]
        if value not in allowed:
            raise WrongKind(f"{self._at}{key} is not one of {', '.join(allowed)}")
        return value

    def seconds(self, key: str) -> float | None:
        value = self.found.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise WrongKind(f"{self._at}{key} is not a number")
        try:
            return None if value is None else float(value)
        except OverflowError:
            raise WrongKind(f"{self._at}{key} is not a number of seconds") from None

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.found.get(key)
        return () if value is None else texts(value, self._at + key)

    def named_texts(self, key: str) -> dict[str, str]:
        value = self.found.get(key)
        return {} if value is None else named_texts(value, self._at + key)

    def below(self, key: str) -> Members:
        value = self.found.get(key)
        return Members({} if value is None else value, f"{self._at}{key}")

    def _of(self, key: str, kind: type, said: str, usual: Any) -> Any:
        value = self.found.get(key)
        if value is None:
            return usual
        if not isinstance(value, kind):
            raise WrongKind(f"{self._at}{key} is not {said}")
        return value

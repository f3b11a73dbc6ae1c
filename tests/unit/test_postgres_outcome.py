"""A COMMIT whose answer was lost: what is not known is not called unchanged."""

from __future__ import annotations

import pytest

from perdure.storage.errors import StateError
from perdure.storage.state import Written

pytest.importorskip("psycopg")

from perdure.storage.postgres.state import PostgresState


def test_a_lost_round_that_only_expired_entries_has_an_unknown_outcome() -> None:
    """Nothing of it can be asked for: it has no answers."""
    store = object.__new__(PostgresState)
    with pytest.raises(StateError) as lost:
        store._settled(Written(7, [], [], {}, []))
    assert (lost.value.code, lost.value.outcome) == ("state_outcome_unknown", "unknown")

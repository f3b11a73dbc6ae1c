"""The store of the serving process: private, one process at a time, and honest about a disk that is full."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from perdure.kernel.state import InFlight, Invocation, Session
from perdure.serve.store import BLOCK, InUse, Store, Stored, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def call(identity: int | str, token: int | str | None = None) -> Invocation:
    return Invocation(
        seq=1,
        public_id=identity,
        method="tools/call",
        params=b'{"name":"t"}',
        mount="m",
        era="handshake",
        name="t",
        accepted_at=1.0,
        deadline=2.0,
        timeout=1.0,
        state=InFlight(1, 2),
        token=token,
    )


@pytest.mark.parametrize("identity", [0, -5, 2**63, 2**64, -(2**70), "7", "", '\n"\\é'])
def test_any_id_comes_back_as_it_was(path: Path, identity: int | str) -> None:
    store = Store(str(path))
    store.save_call("s", "", "", call(identity, token=identity))
    assert store.calls("s") == [call(identity, token=identity)]
    store.close()


def test_one_process_has_it_at_a_time(path: Path) -> None:
    store = Store(str(path))
    with pytest.raises(InUse):
        Store(str(path))
    store.close()
    Store(str(path)).close()


def test_its_files_are_private_whatever_they_were(path: Path) -> None:
    path.touch(0o644)
    store = Store(str(path))
    store.save_call("s", "", "", call(1))
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}
    store.close()


def test_a_full_disk_is_an_error_for_what_must_be_kept_and_none_for_tidying(path: Path) -> None:
    store = Store(str(path))
    store.save_call("s", "", "", call(1))
    pages = store._db.pragma("page_count")
    store._db.pragma("max_page_count", pages)
    large = Stored("s" * 100_000, "", "", Session(session_id="s", started_at=0.0))
    with pytest.raises(StoreError, match="full"):
        store.save_session(large)
    with pytest.raises(StoreError, match="full"):
        store.save_call("s" * 100_000, "", "", call(1))
    store._db.pragma("query_only", True)
    with pytest.raises(StoreError):
        [store.new_number() for _ in range(BLOCK + 1)]
    store.forget_call("s", 1)
    store.remove_session("s")
    store.touch(["s"])
    store.forget_old()
    assert len(store.calls("s")) == 1
    store.close()

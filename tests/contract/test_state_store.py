"""One contract over memory, SQLite and PostgreSQL: what the state tools answer, and what is there afterwards."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from state_tools import Caller, Open, Store

from perdure.protocol.calls import Done
from perdure.protocol.replay import SafeToRetry
from perdure.protocol.tools import View
from perdure.storage.state_limits import StateLimits


def wait_until_over(store: Store, key: str) -> dict[str, Any]:
    while True:
        found = store.use("get_state", key=key)
        if found["status"] == "not_found":
            return found
        time.sleep(0.01)


# --- the five compatible tools ------------------------------------------------------------------------------------


def test_a_key_is_created_read_and_updated(store: Store) -> None:
    made = store.use("set_state", key="a", value='{"n": 1}', expected_version=0)
    read = store.use("get_state", key="a")
    changed = store.use("set_state", key="a", value='{"n": 2}', expected_version=1)

    assert (made["status"], made["key"], made["version"]) == ("ok", "a", 1)
    assert (read["status"], read["value"], read["version"], read["revision"]) == (
        "ok",
        '{"n": 1}',
        1,
        made["revision"],
    )
    assert read["updated_at"].endswith("Z")
    assert (changed["version"], changed["revision"] > made["revision"]) == (2, True)
    assert "ok" not in made


def test_a_missing_key_is_not_found(store: Store) -> None:
    found = store.use("get_state", key="a")

    assert found == {"status": "not_found", "key": "a", "revision": 0}


def test_creating_what_is_there_is_a_conflict_in_the_words_clients_know(store: Store) -> None:
    store.use("set_state", key="a", value="1")

    found = store.use("set_state", key="a", value="2", expected_version=0)

    assert found["status"] == "conflict"
    assert (
        found["message"]
        == "Key already exists (version=1). Use expected_version=1 to update, or force_set_state."
    )
    assert found["actual_version"] == 1
    assert store.use("get_state", key="a")["value"] == "1"


def test_a_stale_version_is_a_conflict_in_the_words_clients_know(store: Store) -> None:
    store.use("force_set_state", key="a", value="1")
    store.use("force_set_state", key="a", value="2")

    found = store.use("set_state", key="a", value="3", expected_version=1)

    assert found["status"] == "conflict"
    assert found["message"] == "Version mismatch: expected 1, actual 2. Call get_state and retry."
    assert (found["expected_version"], found["actual_version"]) == (1, 2)


def test_updating_what_is_missing_is_not_found_in_the_words_clients_know(store: Store) -> None:
    found = store.use("set_state", key="a", value="1", expected_version=3)

    assert found["status"] == "not_found"
    assert found["message"] == "Key does not exist. Use expected_version=0 to create, or force_set_state."


@pytest.mark.parametrize(
    "value", ["{", "", "NaN", '{"a":1,"a":2}', "[" * 65 + "]" * 65, '"\\ud800"', "1e999", "01", "9" * 5000]
)
def test_what_is_not_strict_json_is_an_error_and_changes_nothing(store: Store, value: str) -> None:
    found = store.use("set_state", key="a", value=value)

    assert found["status"] == "error"
    assert found["message"].startswith("Invalid JSON: ")
    assert store.backend.revision() == 0


def test_a_version_goes_on_after_a_delete(store: Store) -> None:
    store.use("set_state", key="a", value="1")
    gone = store.use("delete_state", key="a")
    again = store.use("set_state", key="a", value="1", expected_version=0)
    stale = store.use("set_state", key="a", value="2", expected_version=1)

    assert (gone["status"], gone["deleted"]) == ("ok", True)
    assert (again["version"], stale["status"]) == (3, "conflict")
    assert store.use("delete_state", key="nothing") == {
        "status": "ok",
        "key": "nothing",
        "deleted": False,
        "revision": again["revision"],
    }


def test_a_delete_may_expect_a_version(store: Store) -> None:
    store.use("set_state", key="a", value="1")

    assert store.use("delete_state", key="a", expected_version=2)["status"] == "conflict"
    assert store.use("delete_state", key="b", expected_version=2)["status"] == "not_found"
    assert store.use("delete_state", key="a", expected_version=1)["deleted"] is True


def test_listing_by_prefix_is_literal_and_pages(store: Store) -> None:
    for key in ("a_b", "axb", "a%", "A_b", "b", "a\U0010ffff", "aé"):
        store.use("set_state", key=key, value=f'"{key}"')

    assert [row["key"] for row in store.use("list_state", prefix="a_")["keys"]] == ["a_b"]
    assert [row["key"] for row in store.use("list_state", prefix="a%")["keys"]] == ["a%"]
    everything, cursor = [], None
    while True:
        given = {"cursor": cursor} if cursor else {}
        page = store.use("list_state", prefix="a", limit=2, values=True, **given)
        everything += [(row["key"], row["value"]) for row in page["keys"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    assert everything == [(k, f'"{k}"') for k in ("a%", "a_b", "axb", "aé", "a\U0010ffff")]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("%", ["A_b", "a%c", "a_b", "axb"]),
        ("a_b", ["a_b", "axb"]),
        ("a\\_b", ["a_b"]),
        ("a\\%%", ["a%c"]),
        ("%b", ["A_b", "a_b", "axb"]),
        ("A%", ["A_b"]),
        ("\\a_b", ["a_b", "axb"]),
    ],
)
def test_a_pattern_is_case_sensitive_like_with_an_escape(
    store: Store, pattern: str, found: list[str]
) -> None:
    for key in ("a_b", "axb", "A_b", "a%c"):
        store.use("set_state", key=key, value="1")

    assert [row["key"] for row in store.use("list_state", pattern=pattern)["keys"]] == found
    assert store.use("list_state", pattern=pattern, prefix="zz")["keys"] == []


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"pattern": "a\\"}, {"cursor": "é"}, {"limit": 1001}])
def test_a_list_that_cannot_be_meant_is_refused(store: Store, arguments: dict[str, Any]) -> None:
    assert store.refused("list_state", **arguments)["error"] == "invalid_input"


def test_a_misspelt_argument_is_refused_and_nothing_is_written(store: Store) -> None:
    found = store.refused("set_state", key="a", value="1", expectedVersion=0)

    assert found["context"]["nearest"] == "expected_version"
    assert store.backend.revision() == 0


@pytest.mark.parametrize("key", ["", "k" * 513, "é" * 257, "a\0b"])
def test_a_key_that_cannot_be_kept_is_refused(store: Store, key: str) -> None:
    assert store.refused("set_state", key=key, value="1")["error"] == "invalid_input"
    assert store.use("set_state", key="k" * 512, value="1")["status"] == "ok"


def test_a_value_that_is_too_large_is_refused(store: Store) -> None:
    found = store.refused("set_state", key="a", value='"' + "x" * (1024 * 1024 - 1) + '"')

    assert (found["error"], found["reason_hint"]) == ("quota_exceeded", "size_limit")
    assert store.use("set_state", key="a", value='"' + "x" * (1024 * 1024 - 2) + '"')["status"] == "ok"


def test_concise_json_keeps_what_a_client_needs(store: Store) -> None:
    store.use("set_state", key="a", value="1")

    found = store.raw("get_state", Caller(view=View("json", "concise")), key="a")["structuredContent"]

    assert found == {"status": "ok", "key": "a", "version": 1, "revision": 1, "value": "1"}


# --- revisions, history -------------------------------------------------------------------------------------------


def test_a_value_can_be_read_at_a_revision(store: Store) -> None:
    one = store.use("set_state", key="a", value="1")["revision"]
    store.use("set_state", key="b", value="7")
    two = store.use("set_state", key="a", value="2")["revision"]
    gone = store.use("delete_state", key="a")["revision"]

    assert store.use("get_state", key="a", at_revision=one)["value"] == "1"
    assert store.use("get_state", key="a", at_revision=two - 1)["value"] == "1"
    assert store.use("get_state", key="a", at_revision=two)["value"] == "2"
    assert store.use("get_state", key="a", at_revision=gone)["status"] == "not_found"
    assert store.use("get_state", key="a", at_revision=0)["status"] == "not_found"
    assert store.refused("get_state", key="a", at_revision=gone + 1)["error"] == "invalid_input"


def test_history_says_who_when_and_how(store: Store) -> None:
    store.use("set_state", Caller("alice", "s1"), key="a", value='{"x":1}')
    store.use("state_patch", Caller("bob", "s2"), key="a", op="merge", value='{"y":2}')
    store.use("delete_state", Caller("carol", "s3"), key="a")

    found = store.use("state_history", key="a", diff=True)["versions"]

    assert [(v["version"], v["client"], v["session"], v["tool"], v["deleted"]) for v in found] == [
        (3, "carol", "s3", "delete_state", True),
        (2, "bob", "s2", "state_patch", False),
        (1, "alice", "s1", "set_state", False),
    ]
    assert [v["diff"] for v in found] == [None, '{"y":2}', '{"x":1}']
    assert len(store.use("state_history", key="a", limit=1)["versions"]) == 1
    assert store.use("state_history", key="b")["status"] == "not_found"


def test_a_version_can_be_brought_back(store: Store) -> None:
    store.use("set_state", key="a", value='"old"')
    store.use("set_state", key="a", value='"new"')

    found = store.use("state_patch", key="a", op="revert", value="1")

    assert (found["version"], found["value"]) == (3, '"old"')
    assert store.refused("state_patch", key="a", op="revert", value="9")["error"] == "not_found"


def test_old_versions_and_answers_are_forgotten_and_the_newest_stays(store: Store) -> None:
    store.use("set_state", Caller(key="k1"), key="a", value="1")
    store.use("set_state", key="a", value="2")
    last = store.use("set_state", key="a", value="3")["revision"]
    later = int((time.time() + 60) * 1_000_000)

    while store.backend.forget(answers_before=later, history_before=later, limit=1):
        pass

    assert [v["version"] for v in store.use("state_history", key="a")["versions"]] == [3]
    assert store.use("state_wait", key="a", after=0, timeout_s=5)["revision"] == last
    assert store.refused("get_state", key="a", at_revision=1)["context"]["reason"] == "history_dropped"
    assert isinstance(store.surface.probe("k1"), SafeToRetry)


# --- patches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "op", "value", "after"),
    [
        ('{"a":1,"b":{"c":2}}', "merge", '{"b":{"c":null,"d":3}}', '{"a":1,"b":{"d":3}}'),
        ("[1]", "merge", '{"a":null,"b":1}', '{"b":1}'),
        (None, "merge", '{"a":1}', '{"a":1}'),
        ("41", "increment", "1", "42"),
        (None, "increment", "5", "5"),
        ("1", "increment", "0.5", "1.5"),
        ("[1]", "append", '{"x":2}', '[1,{"x":2}]'),
        (None, "append", "1", "[1]"),
    ],
)
def test_a_patch_is_made_by_the_store(
    store: Store, before: str | None, op: str, value: str, after: str
) -> None:
    if before is not None:
        store.use("set_state", key="a", value=before)

    found = store.use("state_patch", key="a", op=op, value=value)

    assert (found["status"], found["value"]) == ("ok", after)
    assert store.use("get_state", key="a")["value"] == after


@pytest.mark.parametrize(
    ("op", "value"), [("increment", "1"), ("append", "1"), ("increment", '"x"'), ("merge", "{")]
)
def test_a_patch_that_does_not_fit_is_refused(store: Store, op: str, value: str) -> None:
    store.use("set_state", key="a", value='{"b":true}')

    assert store.refused("state_patch", key="a", op=op, value=value)["error"] == "invalid_input"
    assert store.use("get_state", key="a")["version"] == 1


def test_a_patch_that_nests_too_deep_is_refused(store: Store) -> None:
    store.use("set_state", key="a", value="[]")

    found = store.refused("state_patch", key="a", op="append", value="[" * 64 + "]" * 64)

    assert "nested" in found["context"]["message"]
    assert store.use("get_state", key="a")["value"] == "[]"


def test_a_patch_has_a_precondition(store: Store) -> None:
    store.use("set_state", key="a", value="1")

    assert (
        store.use("state_patch", key="a", op="increment", value="1", expected_version=4)["status"]
        == "conflict"
    )
    assert store.use("state_patch", key="a", op="increment", value="1", expected_version=1)["value"] == "2"


# --- transactions -------------------------------------------------------------------------------------------------


def test_a_transaction_writes_all_or_the_other_list(store: Store) -> None:
    store.use("set_state", key="from", value="[1]")
    move = {
        "compare": [{"key": "from", "version": 1}, {"key": "to", "exists": False}],
        "then": [
            {"op": "delete", "key": "from"},
            {"op": "set", "key": "to", "value": "[1]"},
        ],
        "else": [{"op": "set", "key": "failed", "value": "true"}],
    }

    done = store.use("state_txn", **move)
    again = store.use("state_txn", **move)

    assert (done["status"], done["succeeded"]) == ("ok", True)
    assert [(r["op"], r["key"], r["version"]) for r in done["results"]] == [
        ("delete", "from", 2),
        ("set", "to", 1),
    ]
    assert (again["status"], again["succeeded"]) == ("conflict", False)
    assert {f["key"] for f in again["failed"]} == {"from", "to"}
    assert store.use("get_state", key="failed")["value"] == "true"
    both = store.use("state_history", key="to")["versions"][0]["revision"]
    assert both == store.use("state_history", key="from")["versions"][0]["revision"] == done["revision"]


def test_a_transaction_compares_values_by_their_meaning(store: Store) -> None:
    store.use("set_state", key="a", value='{"x": 1, "y": [true]}')

    def matches(value: str) -> bool:
        return bool(store.use("state_txn", compare=[{"key": "a", "value": value}])["succeeded"])

    assert matches('{"y":[true],"x":1}')
    assert not matches('{"y":[1],"x":1}')
    assert not matches('{"y":[true],"x":1.0}')


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"compare": [{"key": "a"}]},
        {"compare": [{"key": "a", "version": 1, "exists": True}]},
        {"then": [{"op": "set", "key": "a"}]},
        {"then": [{"op": "set", "key": "a", "value": "{"}]},
        {"then": [{"op": "delete", "key": "a", "value": "1"}]},
        {"then": [{"op": "set", "key": "a", "value": "1"}, {"op": "delete", "key": "a"}]},
        {"then": [{"op": "set", "key": f"k{i}", "value": "1"} for i in range(129)]},
        {"then": [{"op": "put", "key": "a", "value": "1"}]},
        {"else": [{"op": "put", "key": "a", "value": "1"}]},
        {"else": [{"op": "set", "key": "a", "value": "1", "ttl": 5}]},
    ],
)
def test_a_transaction_that_cannot_be_meant_is_refused_whole(store: Store, arguments: dict[str, Any]) -> None:
    assert store.refused("state_txn", **arguments)["error"] == "invalid_input"
    assert store.backend.revision() == 0


def test_a_transaction_of_128_keys_is_one_revision(store: Store) -> None:
    ops = [{"op": "set", "key": f"k{i:03}", "value": str(i)} for i in range(128)]

    done = store.use("state_txn", then=ops)

    waited = store.use("state_wait", prefix="k", after=0, timeout_s=5)
    assert {c["revision"] for c in waited["changes"]} == {done["revision"]} == {1}
    assert len(waited["changes"]) == 128


# --- leases, once -------------------------------------------------------------------------------------------------


def test_a_lease_is_held_renewed_and_released(store: Store) -> None:
    got = store.use("lease", action="acquire", name="l", owner="a", ttl_s=30)
    other = store.use("lease", action="acquire", name="l", owner="b")
    status = store.use("lease", action="status", name="l")
    renewed = store.use("lease", action="renew", name="l", token=got["token"], ttl_s=60)
    released = store.use("lease", action="release", name="l", token=got["token"])
    late = store.use("lease", action="renew", name="l", token=got["token"])
    after = store.use("lease", action="acquire", name="l", owner="b")

    assert (got["status"], got["owner"]) == ("ok", "a")
    assert (other["status"], other["owner"], "token" in other) == ("held", "a", False)
    assert (status["owner"], status["token"]) == ("a", got["token"])
    assert (renewed["status"], renewed["token"]) == ("ok", got["token"])
    assert renewed["expires_at"] > got["expires_at"]
    assert (released["status"], late["status"]) == ("ok", "lost")
    assert after["token"] > got["token"]
    assert store.use("lease", action="status", name="nothing")["status"] == "not_found"


def test_an_old_token_cannot_write(store: Store) -> None:
    old = store.use("lease", action="acquire", name="l", owner="a", ttl_s=0.05)["token"]
    while store.use("lease", action="status", name="l")["status"] != "not_found":
        time.sleep(0.01)
    new = store.use("lease", action="acquire", name="l", owner="b", ttl_s=60)["token"]

    refused = store.use("set_state", key="a", value="1", lease="l", lease_token=old)
    in_txn = store.use(
        "state_txn",
        compare=[{"key": "l", "lease_token": old}],
        then=[{"op": "set", "key": "a", "value": "1"}],
    )
    done = store.use("set_state", key="a", value="2", lease="l", lease_token=new)

    assert (refused["status"], refused["reason"]) == ("conflict", "stale_token")
    assert (in_txn["status"], in_txn["failed"][0]["reason"]) == ("conflict", "stale_token")
    assert (done["status"], done["version"]) == ("ok", 1)
    assert store.refused("set_state", key="a", value="1", lease="l")["error"] == "invalid_input"


def test_an_occurrence_runs_once(store: Store) -> None:
    first = store.use("once", action="begin", key="cron:1")
    second = store.use("once", action="begin", key="cron:1")
    done = store.use("once", action="finish", key="cron:1", token=first["token"], outcome='{"sent":3}')
    again = store.use("once", action="finish", key="cron:1", token=first["token"])
    third = store.use("once", action="begin", key="cron:1")

    assert (first["status"], second["status"]) == ("run", "running")
    assert (done["status"], again["status"], third["status"]) == ("done", "done", "done")
    assert third["outcome"] == '{"sent":3}'
    assert store.use("once", action="status", key="cron:1")["outcome"] == '{"sent":3}'


def test_a_run_that_takes_too_long_is_lost(store: Store) -> None:
    first = store.use("once", action="begin", key="cron:1", ttl_s=0.05)
    while store.use("once", action="status", key="cron:1")["status"] == "running":
        time.sleep(0.01)

    assert store.use("once", action="status", key="cron:1")["status"] == "lost"
    second = store.use("once", action="begin", key="cron:1")
    assert second["status"] == "run"
    assert store.use("once", action="finish", key="cron:1", token=first["token"])["status"] == "lost"
    assert store.use("once", action="finish", key="cron:1", token=second["token"])["status"] == "done"


# --- time to live -------------------------------------------------------------------------------------------------


def test_expiry_is_a_change_and_never_a_stale_read(store: Store) -> None:
    made = store.use("set_state", key="a", value="1", ttl_s=0.15)
    assert "expires_at" in store.use("get_state", key="a")

    waited = store.use("state_wait", key="a", after=made["revision"], timeout_s=20)

    assert [(c["key"], c["version"], c["deleted"]) for c in waited["changes"]] == [("a", 2, True)]
    assert store.use("get_state", key="a")["status"] == "not_found"
    assert store.use("list_state", values=True)["keys"] == []
    assert store.use("state_history", key="a")["versions"][0]["tool"] == "expiry"


def test_a_key_that_expired_unnoticed_is_created_anew(store: Store) -> None:
    store.use("set_state", key="a", value="1", ttl_s=0.02)
    wait_until_over(store, "a")

    stale = store.use("set_state", key="a", value="2", expected_version=1)
    made = store.use("set_state", key="a", value="2", expected_version=0)

    assert (stale["status"], made["status"], made["version"]) == ("not_found", "ok", 3)


@pytest.mark.parametrize("ttl_s", [0, -1, 1e12])
def test_a_time_to_live_that_cannot_be_meant_is_refused(store: Store, ttl_s: float) -> None:
    assert store.refused("set_state", key="a", value="1", ttl_s=ttl_s)["error"] == "invalid_input"


# --- namespaces ---------------------------------------------------------------------------------------------------


def test_namespaces_are_apart_and_have_quotas(open_backend: Open) -> None:
    store = Store(open_backend(), StateLimits(namespace_keys=2, namespace_bytes=100))
    store.use("set_state", key="a", value="1")
    store.use("set_state", key="a", value="2", namespace="other")
    store.use("set_state", key="b", value="1")

    assert store.use("get_state", key="a")["value"] == "1"
    assert store.refused("set_state", key="c", value="1")["error"] == "quota_exceeded"
    assert (
        store.refused("set_state", key="a", value=f'"{"x" * 100}"')["context"]["reason"] == "namespace_bytes"
    )
    assert store.use("set_state", key="a", value="3")["status"] == "ok"
    store.use("delete_state", key="b")
    assert store.use("set_state", key="c", value="1")["status"] == "ok"


# --- waiting ------------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_change_of_another_process(open_backend: Open) -> None:
    here, there = Store(open_backend()), Store(open_backend())
    before = there.use("set_state", key="job:1", value="1")["revision"]
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(here.use, "state_wait", prefix="job:", timeout_s=30)
        time.sleep(0.1)
        there.use("set_state", key="other", value="1")
        made = there.use("set_state", key="job:2", value="1")
        found = waiting.result(30)

    assert before < made["revision"]
    assert (found["status"], [c["key"] for c in found["changes"]]) == ("changed", ["job:2"])
    assert found["revision"] >= made["revision"]


def test_no_change_is_missed_by_a_chain_of_waits(open_backend: Open) -> None:
    here, there = Store(open_backend()), Store(open_backend())
    total = 60

    def write() -> None:
        for i in range(total):
            there.use("force_set_state", key=f"k{i % 7}", value=str(i))

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    after = 0
    while len(seen) < total:
        found = here.use("state_wait", prefix="k", after=after, timeout_s=30)
        assert found["status"] == "changed"
        seen += [change["revision"] for change in found["changes"]]
        after = found["revision"]
    writer.join()

    assert seen == list(range(1, total + 1))


def test_a_wait_times_out_and_can_be_cancelled(store: Store) -> None:
    assert store.use("state_wait", key="a", timeout_s=0.05) == {
        "ok": True,
        "status": "timeout",
        "revision": 0,
        "changes": [],
    }
    caller = Caller()
    caller.cancelled.set()
    assert store.raw("state_wait", caller, key="a", timeout_s=60)["isError"]
    assert store.refused("state_wait", key="a", prefix="b")["error"] == "invalid_input"
    assert store.refused("state_wait")["error"] == "invalid_input"


# --- exactly once -------------------------------------------------------------------------------------------------


def test_an_invocation_key_is_found_with_its_result_and_takes_effect_once(open_backend: Open) -> None:
    here = Store(open_backend())
    caller = Caller(key="inv-1")
    made = here.use("state_patch", caller, key="n", op="increment", value="1")
    there = Store(open_backend())

    found = there.surface.probe("inv-1")
    again = there.use("state_patch", Caller(key="inv-1"), key="n", op="increment", value="1")

    assert isinstance(found, Done)
    assert found.payload == {k: v for k, v in made.items() if k != "ok"}
    assert again == made
    assert there.use("get_state", key="n")["value"] == "1"
    assert isinstance(there.surface.probe("inv-2"), SafeToRetry)


def test_a_refused_call_leaves_no_trace_among_those_that_share_its_round(store: Store) -> None:
    store.use("set_state", key="taken", value="1")

    def write(i: int) -> str:
        expected = 0 if i % 2 else -1
        key = "taken" if i % 2 else f"k{i}"
        return str(store.use("set_state", key=key, value="2", expected_version=expected)["status"])

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(write, range(64)))

    assert found == ["ok", "conflict"] * 32
    assert store.use("get_state", key="taken")["version"] == 1
    assert store.backend.revision() == 33


def test_concurrent_increments_lose_nothing(open_backend: Open) -> None:
    stores = [Store(open_backend()) for _ in range(3)]

    def increment(i: int) -> None:
        store = stores[i % 3]
        while True:
            found = store.use("get_state", key="n")
            version = found.get("version", 0)
            value = str(int(found.get("value", "0")) + 1)
            if store.use("set_state", key="n", value=value, expected_version=version)["status"] == "ok":
                return

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(increment, range(90)))

    assert stores[0].use("get_state", key="n")["value"] == "90"


def test_a_wait_that_was_lost_with_its_worker_still_sees_what_changed_since_it_was_made(store: Store) -> None:
    store.use("set_state", key="before", value="1")
    time.sleep(0.05)
    made = time.monotonic()
    changed = store.use("set_state", key="a", value="1")

    again = Caller(age_s=time.monotonic() - made + 0.01)
    seen = store.use("state_wait", again, prefix="", timeout_s=5)
    missed = store.use("state_wait", prefix="", timeout_s=0)

    assert [one["revision"] for one in seen["changes"]] == [changed["revision"]]
    assert missed["status"] == "timeout"


def test_changes_of_one_transaction_come_in_the_order_of_their_keys(store: Store) -> None:
    store.use("state_txn", then=[{"op": "set", "key": key, "value": "1"} for key in "cab"])

    assert [one["key"] for one in store.use("state_wait", prefix="", after=0)["changes"]] == ["a", "b", "c"]


# --- what was never given out, and what cannot be said ---------------------------------------------------------------


@pytest.mark.parametrize("cursor", ["", "!!!!", "YQ", "_w==", "AA==", "YV9i!"])
def test_a_cursor_that_was_never_given_out_does_not_begin_again(store: Store, cursor: str) -> None:
    store.use("set_state", key="a", value="1")

    assert store.refused("list_state", cursor=cursor)["context"]["argument"] == "cursor"


@pytest.mark.parametrize("after", [-1, 2**63, 10**30])
def test_a_revision_that_no_store_can_reach_is_refused(store: Store, after: int) -> None:
    assert store.refused("state_wait", key="a", after=after)["context"]["argument"] == "after"


def test_a_sum_that_is_not_exact_is_refused_and_changes_nothing(store: Store) -> None:
    large = "1" + "0" * 400
    store.use("set_state", key="a", value=large)

    refused = store.refused("state_patch", key="a", op="increment", value="0.5")

    assert (refused["error"], refused["context"]["reason"]) == ("invalid_input", "unfit_value")
    assert store.use("get_state", key="a")["value"] == large
    assert store.use("state_patch", key="a", op="increment", value="1")["value"] == large[:-1] + "1"


@pytest.mark.parametrize("version", ["true", "1.0", '"1"', "null"])
def test_only_a_number_names_a_version_to_go_back_to(store: Store, version: str) -> None:
    store.use("set_state", key="a", value="1")

    assert store.refused("state_patch", key="a", op="revert", value=version)["error"] == "invalid_input"

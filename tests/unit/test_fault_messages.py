"""A client that shows its model nothing but the message of an error still tells the truth."""

from __future__ import annotations

import msgspec
import pytest

from perdure.protocol import faults
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import Fault, Outcome, Retry


def message(
    fault: Fault,
    outcome: Outcome = "unknown",
    retry: Retry = "never",
    attempts: int = 1,
    cause: Fault | None = None,
) -> str:
    error = host_error(
        faults.OUTCOME_UNKNOWN,
        fault,
        mount="shop",
        call="place_order",
        attempts=attempts,
        outcome=outcome,
        retry=retry,
        cause=cause,
    )
    return str(msgspec.json.decode(error)["message"])


KILLED = Fault("process", "killed", 2, "ended by SIGKILL")
NO_COMMAND = Fault("process", "spawn_failed", 1, "nosuchcmd: No such file or directory", "check the command")
SIGN_IN = Fault("downstream", "sign_in_required", 1, "shop wants a sign-in", "perdure registry login shop")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            message(KILLED),
            "shop was ended by SIGKILL while place_order ran (sent once). It may or may not have taken effect: "
            "check before you send it again.",
        ),
        (
            message(KILLED, retry="safe", attempts=2),
            "shop was ended by SIGKILL while place_order ran (sent 2 times). It may or may not have taken effect; "
            "it is safe to send it again.",
        ),
        (
            message(Fault("replay", "replays_exhausted", 2, "process/killed"), "unknown", "safe", 2, KILLED),
            "shop was lost each time that place_order was sent to it (sent 2 times; at last ended by SIGKILL). "
            "It may or may not have taken effect; it is safe to send it again.",
        ),
        (
            message(Fault("process", "circuit_open", 5, "process/killed"), "not_started", "later", 0, KILLED),
            "shop is not available: it was ended by SIGKILL. place_order did not run. It is started again by "
            "itself; to do it now, call mounts with action=restart and name=shop.",
        ),
        (
            message(NO_COMMAND, "not_started", "later", 0),
            "shop is not available: nosuchcmd: No such file or directory. place_order did not run. Check the command, "
            "then call mounts with action=restart and name=shop.",
        ),
        (
            message(Fault("process", "disabled", 3), "not_started", "later", 0),
            "shop is not available: it is disabled. place_order did not run. To enable it, call mounts with "
            "action=enable and name=shop.",
        ),
        (
            message(Fault("process", "stopped", 3, "x", SIGN_IN.hint), "not_started", "later", 0, SIGN_IN),
            "shop is not available: shop wants a sign-in. place_order did not run. Ask the user to type: "
            "perdure registry login shop",
        ),
        (
            message(Fault("timeout", "deadline", 1, "no answer within 60 s")),
            "shop did not finish place_order in time (no answer within 60 s, sent once). It may or may not have taken "
            "effect: check before you send it again.",
        ),
        (
            message(
                Fault("resource", "queue_full", 1, "256 requests wait already"), "not_started", "later", 0
            ),
            "place_order was not sent to shop: 256 requests wait already. place_order did not run. Send it again later.",
        ),
        (
            message(Fault("protocol", "unreadable_answer", 1, "not valid JSON")),
            "shop answered place_order with something that cannot be passed on (not valid JSON). It may or may not have "
            "taken effect: check before you send it again.",
        ),
    ],
)
def test_the_message_says_what_happened_what_is_known_and_what_to_do(said: str, expected: str) -> None:
    assert said == expected


def test_the_codes_are_outside_the_range_that_the_protocol_reserves() -> None:
    codes = [
        value for value in vars(faults).values() if isinstance(value, int) and not isinstance(value, bool)
    ]
    assert sorted(codes) == list(range(-31099, -31093))

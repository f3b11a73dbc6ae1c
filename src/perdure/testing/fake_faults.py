"""The fake server's faults: tools that wedge, flood, break the protocol, leave orphans or die."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from perdure.testing.fake_call import FOR_EVER, Call, json_result, text_result
from perdure.testing.fake_ledger import kill_self
from perdure.testing.fake_wire import Object, encode

_OVERSIZE: Final = 32 * 1024 * 1024
_FLOOD_BATCH: Final = 64 * 1024


def wedge(call: Call) -> Object:
    """Runs on the reading thread and holds the lock of the writing ones: nothing moves, not even ping."""
    with call.wire.lock:
        time.sleep(call.number("ms", FOR_EVER) / 1000)
    return text_result("unwedged")


def stop_reading(call: Call) -> None:
    """Runs on the reading thread: calls that already run are still answered."""
    call.answer(text_result("stopped reading"))
    time.sleep(call.number("ms", FOR_EVER) / 1000)


def flood(call: Call) -> Object:
    seconds = call.number("seconds", 1)
    lines = _flood_lines(call)
    batch = lines * max(1, _FLOOD_BATCH // len(lines))

    def pour() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            call.wire.write(batch)

    if call.text("answer", "first") == "last":
        pour()
        return text_result("flooded")
    threading.Thread(target=pour, daemon=True).start()
    return text_result("flooding")


def _flood_lines(call: Call) -> bytes:
    padding = "x" * max(0, call.count("line_bytes", 100))
    match kind := call.text("kind", "noise"):
        case "noise":
            return f"noise {padding}\n".encode()
        case "notifications":
            params = {"level": "debug", "logger": "flood", "data": padding}
            return encode({"jsonrpc": "2.0", "method": "notifications/message", "params": params}) + b"\n"
        case "pings":
            return encode({"jsonrpc": "2.0", "id": "flood", "method": "ping"}) + b"\n"
        case "list_changed":
            return encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}) + b"\n"
        case "unknown_notifications":
            return (
                encode({"jsonrpc": "2.0", "method": "notifications/x", "params": {"data": padding}}) + b"\n"
            )
        case "late_answers":
            return encode({"jsonrpc": "2.0", "id": call.id, "result": {"content": []}}) + b"\n"
        case "junk_json":
            junk: list[object] = [
                {"junk": padding},
                [1, 2, padding],
                padding,
                {"jsonrpc": "2.0"},
                {"jsonrpc": "1.0", "id": 1, "result": {}},
                {"jsonrpc": "2.0", "id": None, "result": None},
                {"jsonrpc": "2.0", "id": "nobody", "result": {"junk": padding}},
            ]
            return b"".join(encode(value) + b"\n" for value in junk)
        case _:
            raise ValueError(f"no flood of {kind}")


def _frame(call: Call, result: object, identity: object = None) -> bytes:
    shown = call.id if identity is None else identity
    return encode({"jsonrpc": "2.0", "id": shown, "result": result})


def _with_text(call: Call, text: bytes) -> bytes:
    """The good answer with raw bytes in place of its text."""
    return _good(call).replace(b"answered badly", text)


def _good(call: Call) -> bytes:
    return _frame(call, call.session.complete("tools/call", text_result("answered badly")))


def _other_type(call: Call) -> bytes:
    return _frame(call, text_result("wrong id"), str(call.id) if isinstance(call.id, int) else [call.id])


def _half(call: Call) -> bytes:
    frame = _good(call)
    return frame[: len(frame) // 2]


_BAD_ANSWERS: Final[dict[str, Callable[[Call], bytes]]] = {
    "duplicate": lambda call: _good(call) + b"\n" + _good(call),
    "late": _good,
    "foreign": lambda call: _frame(call, {}, 987654321) + b"\n" + _frame(call, {}, "nobody-asked"),
    "half_frame": _half,
    "nan": lambda call: _good(call)[:-2] + b',"structuredContent":{"n":NaN}}}',
    "lone_surrogate": lambda call: _with_text(call, rb"\ud800"),
    "not_object": lambda call: _frame(call, "not an object"),
    "frame_not_object": lambda call: b"[" + _good(call) + b"]",
    "both_result_and_error": lambda call: _good(call)[:-1] + b',"error":{"code":-32603,"message":"both"}}',
    "neither": lambda call: encode({"jsonrpc": "2.0", "id": call.id}),
    "oversize": lambda call: _with_text(call, b"x" * call.count("bytes", _OVERSIZE)),
    "bad_utf8": lambda call: _with_text(call, b"\xff\xfe\xc3"),
    "wrong_id_type": _other_type,
    "null_id": lambda call: encode({"jsonrpc": "2.0", "id": None, "result": {}}),
    "wrong_version": lambda call: _good(call).replace(b'"2.0"', b'"1.0"', 1),
    "duplicate_member": lambda call: _good(call)[:-1] + b',"id":"another"}',
}
BAD_KINDS: Final = tuple(_BAD_ANSWERS)


def answer_badly(call: Call) -> Object | None:
    """Write the bad frame; then the good answer, nothing, or die before the line is ended."""
    kind = call.text("kind", "duplicate")
    if kind not in _BAD_ANSWERS:
        raise ValueError(f"kind is one of {', '.join(BAD_KINDS)}")
    then = call.text("then", "answer" if kind == "foreign" else "nothing")
    # Not call.wait: a late answer comes although the client cancelled.
    time.sleep(call.number("delay_ms", 1000 if kind == "late" else 0) / 1000)
    bad = _BAD_ANSWERS[kind](call)
    if then == "die":
        call.wire.write(bad)
        kill_self()
    call.wire.write(bad + b"\n")
    return text_result("answered after all") if then == "answer" else None


def grandchild(call: Call) -> Object:
    """The orphan inherits standard output: the pipe outlives the server, and with `session` its group."""
    seconds = call.number("seconds", 30)
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    pid = os.posix_spawnp(
        "sleep", ["sleep", f"{seconds:f}"], os.environ, file_actions=[null], setsid=call.flag("session")
    )
    return json_result({"pid": pid})


def die(call: Call) -> None:
    call.wait(call.number("delay_ms", 0))
    if call.flag("answer"):
        call.answer(text_result("dying"))
    if "code" in call.arguments:
        os._exit(call.count("code", 0))
    wanted = call.arguments.get("signal", "SIGKILL")
    if isinstance(wanted, int):
        number = signal.Signals(wanted)
    else:
        number = signal.Signals["SIG" + str(wanted).removeprefix("SIG")]
    # --stubborn must not save the server from its own order; only the main thread may change a handler.
    if number == signal.SIGTERM and threading.current_thread() is threading.main_thread():
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(FOR_EVER)

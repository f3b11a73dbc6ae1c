"""The fake server's honest tools: they answer what they promise, and die only where they are told to."""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any, Final

from perdure.testing.fake_call import FOR_EVER, Call, Cancelled, json_result, text_result
from perdure.testing.fake_ledger import kill_self
from perdure.testing.fake_wire import INVALID_PARAMS, Object, Refusal, encode

_DEFAULT_QUESTIONS: Final[dict[str, Object | None]] = {
    "sampling/createMessage": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        "maxTokens": 16,
    },
    "elicitation/create": {
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
    "roots/list": None,
    "ping": None,
}


def echo(call: Call) -> Object:
    call.wait(call.number("delay_ms", 0))
    text = call.text("text")
    return text_result(text, {"text": text})


def effect_result(tool: str, key: str, pid: int) -> Object:
    return text_result(f"{tool} {key} done by {pid}", {"tool": tool, "key": key, "pid": pid})


def effect(call: Call) -> Object | None:
    """Die before the effect; after it, with half an answer written or with none; or after answering."""
    crash = call.text("crash", "none")
    call.wait(call.number("delay_ms", 0))
    dies = crash != "none" and call.may_crash()
    if dies and crash == "before":
        kill_self()
    call.ledgers.performed(call.tool, call.key)
    call.wait(call.number("linger_ms", 0))
    result = effect_result(call.tool, call.key, os.getpid())
    if dies and crash == "during":
        frame = encode(
            {"jsonrpc": "2.0", "id": call.id, "result": call.session.complete("tools/call", result)}
        )
        call.wire.write(frame[: len(frame) // 2])
    if dies and crash in ("during", "after"):
        kill_self()
    if dies and crash == "after_answer":
        call.answer(result)
        kill_self()
    return result


def find_effect(call: Call) -> Object:
    """The probe: done with the result the lost call would have had, absent, or unknown."""
    tool = call.arguments.get("tool")
    if not call.ledgers.knows_effects or call.key.startswith("unknown"):
        return json_result({"status": "unknown"})
    found = call.ledgers.find(call.key, tool)
    if found is None:
        return json_result({"status": "absent"})
    return json_result({"status": "done", "result": effect_result(found[0], call.key, found[1])})


def slow(call: Call) -> Object:
    milliseconds = call.number("ms", 1000)
    call.wait(milliseconds)
    return text_result(f"slept {milliseconds:g} ms", {"key": call.key})


def hang(call: Call) -> None:
    call.wait(FOR_EVER)


def progress(call: Call) -> Object:
    """Report 1 to n of n; the token 0 is a token."""
    total = call.count("n", 3)
    crash_at = call.count("crash_at", 0)
    token = call.meta.get("progressToken")
    for step in range(1, total + 1):
        call.wait(call.number("delay_ms", 0))
        if token is not None:
            call.wire.notify(
                "notifications/progress",
                {"progressToken": token, "progress": step, "total": total, "message": f"step {step}"},
            )
        if step == crash_at and call.may_crash():
            kill_self()
    return text_result(f"{total} steps", {"steps": total, "token": token})


def log(call: Call) -> Object:
    level = call.text("level", "info")
    sent = call.session.logs(level, call.meta)
    if sent:
        message = {"level": level, "logger": call.text("logger", "fake"), "data": call.arguments.get("data")}
        call.wire.notify("notifications/message", message)
    return json_result({"sent": sent})


def _question(call: Call) -> tuple[str, Object | None]:
    method = call.text("method", "sampling/createMessage")
    params = call.arguments.get("params", _DEFAULT_QUESTIONS.get(method))
    return method, params


def ask(call: Call) -> Object:
    return _ask_by_rounds(call) if call.session.modern else _ask_by_request(call)


def _ask_by_request(call: Call) -> Object:
    method, params = _question(call)
    response: Object = {}
    for _ in range(max(1, call.count("rounds", 1))):
        identity, question = call.session.ask(method, params)
        try:
            call.wait_for(question.done)
        except Cancelled:
            call.session.abandon(identity)
            raise
        response = question.response
        if "error" in response:
            return text_result(json.dumps(response["error"]), is_error=True)
    result = response.get("result")
    if method == "roots/list" and isinstance(result, dict):
        call.session.roots = result.get("roots")
    return text_result(json.dumps(result, ensure_ascii=False))


def _ask_by_rounds(call: Call) -> Object:
    """The state carries everything, so that another generation can serve the retry."""
    method, params = _question(call)
    if method == "ping":
        return text_result("ping is not an input request", is_error=True)
    state = call.params.get("requestState")
    done = 0 if state is None else _read_state(state, call)
    responses = call.params.get("inputResponses")
    if done and not (isinstance(responses, dict) and f"ask-{done}" in responses):
        raise Refusal(INVALID_PARAMS, f"inputResponses lacks 'ask-{done}'")
    if done >= max(1, call.count("rounds", 1)):
        return text_result(json.dumps(responses, ensure_ascii=False))
    return _input_required(call, method, params, done + 1)


def _input_required(call: Call, method: str, params: Object | None, number: int) -> Object:
    question: Object = {"method": method}
    if params is not None:
        question["params"] = params
    state = base64.b64encode(encode({"round": number, "key": call.key})).decode()
    return {
        "resultType": "input_required",
        "inputRequests": {f"ask-{number}": question},
        "requestState": state,
    }


def _read_state(state: Any, call: Call) -> int:
    try:
        found = json.loads(base64.b64decode(state, validate=True))
        number = int(found["round"])
    except (ValueError, TypeError, KeyError):
        raise Refusal(INVALID_PARAMS, "requestState is not ours") from None
    if found.get("key") != call.key:
        raise Refusal(INVALID_PARAMS, "requestState belongs to another call")
    return number


def ask_then_die(call: Call) -> Object:
    """Die with the question open (2026: with `input_required` answered); behave after `times` deaths."""
    if call.params.get("requestState") is None and call.may_crash():
        method, params = _question(call)
        if call.session.modern:
            call.answer(_input_required(call, method, params, 1))
        else:
            call.session.ask(method, params)
        call.wait(call.number("delay_ms", 0))
        kill_self()
    return ask(call)


def change_catalog(call: Call) -> Object:
    kind = call.text("kind", "tools")
    if "add" in call.arguments:
        call.catalog.add(kind, call.text("add"))
    if "remove" in call.arguments:
        call.catalog.remove(kind, call.text("remove"))
    notified = 0 if call.flag("silent") else call.session.list_changed(kind)
    return json_result({"notified": notified})


def touch_resource(call: Call) -> Object:
    uri = call.text("uri", f"{call.catalog.scheme}://a")
    call.catalog.touch(uri)
    return json_result({"notified": call.session.resource_updated(uri)})


def close_listens(call: Call) -> Object:
    return json_result({"ended": call.session.end_listens()})


def whoami(call: Call) -> Object:
    session = call.session
    return json_result(
        {
            "pid": os.getpid(),
            "cwd": os.getcwd(),
            "argv": sys.argv,
            "env_names": sorted(os.environ),
            "era": session.era,
            "protocol": session.protocol,
            "initialize": session.client_of(call.meta),
            "initialized": session.initialized,
            "roots": session.roots,
            "roots_changed": session.roots_changed,
            "log_level": session.log_level,
            "subscriptions": sorted(session.subscriptions),
            "listens": [{"id": identity, **honored} for identity, honored in session.listens.items()],
            "foreign_responses": session.foreign_responses,
        }
    )


def big(call: Call) -> Object:
    return text_result("x" * call.count("bytes", 1_000_000))


def cwd(call: Call) -> Object:
    return text_result(os.getcwd())


def custom_meta(call: Call) -> None:
    """Answer with members nobody knows: in the result, in its _meta and in the frame."""
    result = text_result(json.dumps(call.params, ensure_ascii=False))
    result |= {"x-extra": {"kept": True}, "_meta": {"x.example/note": [1, 2.50, None]}}
    frame: Object = {"jsonrpc": "2.0", "id": call.id, "result": call.session.complete("tools/call", result)}
    call.wire.send({**frame, "x-frame": "kept"})


def from_catalog(call: Call) -> Object:
    """A tool that only a catalog file or `change_catalog` names: it repeats what it was given."""
    return json_result({"tool": call.tool, "arguments": call.arguments})

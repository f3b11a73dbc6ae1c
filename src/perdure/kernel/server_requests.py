"""What servers ask of the client: sampling, elicitation, roots, and whatever comes later (law 14).

| server | client | how the question travels |
|---|---|---|
| handshake | handshake | a request, under an id of the host's own |
| handshake | 2026 | `input_required`; the client's retry carries the answer and a ticket |
| 2026 | handshake | requests, one per question; the call is sent again with the answers |
| 2026 | 2026 | untouched: the result and the retry pass through |

A question is never repeated by the host. When its server is lost the client is told to drop it.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel.client_requests import Incoming
from perdure.kernel.context import Context
from perdure.kernel.internal_events import InputAnswered, InputExpired, InputNeeded, TaskQuestionsChanged
from perdure.kernel.state import Ask, Draining, InFlight, Invocation, Link, Live, Overdue, Parked
from perdure.protocol import eras
from perdure.protocol.frames import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Members,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_members,
    encode_notification,
    encode_raw_error,
    encode_request,
    encode_result,
    joined,
    members,
    salvage_id,
)

_encode = msgspec.json.encode
_ABILITY = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}


class _InputRequired(msgspec.Struct):
    resultType: str = "complete"
    inputRequests: dict[str, Raw] | None = None
    requestState: str | None = None


class InputRequest(msgspec.Struct):
    method: str
    params: Raw | msgspec.UnsetType = msgspec.UNSET  # `Raw | None` would take nothing but null


class InputRequired(msgspec.Struct, frozen=True):
    """The questions of a 2026 server by their names, and the state that it wants back with the answers."""

    questions: dict[str, InputRequest]
    request_state: str | None


# --- a handshake server asks -----------------------------------------------------------------------------


def on_child_request(k: Context, link: Link, request: Request) -> None:
    if request.method == "ping":
        k.to_child(link, encode_result(request.id, b"{}"))
        return
    is_public = isinstance(link.stage, Live | Draining)
    if not is_public or (k.state.session.initialized and not k.state.session.live):
        _defer(k, link, request)
        return
    ability = _ABILITY.get(request.method)
    if ability is not None and ability not in abilities(k.state.session.capabilities):
        k.to_child(link, encode_error(request.id, METHOD_NOT_FOUND, f"the client does not offer {ability}"))
    elif len(k.state.asks) >= k.limits.asks:
        k.to_child(link, encode_error(request.id, INVALID_REQUEST, "too many questions are open"))
    elif k.state.session.live:
        _ask_handshake_client(k, link, request)
    else:
        _ask_modern_client(k, link, request, ability)


def _defer(k: Context, link: Link, request: Request) -> None:
    """The server, or the client, is not ready for it yet: what it asks waits until then. Known roots it may have at once."""
    if request.method == "roots/list" and k.state.session.roots is not None:
        k.to_child(link, encode_result(request.id, k.state.session.roots))
    elif len(link.deferred) < k.limits.deferred:
        link.deferred.append(encode_request(request.id, request.method, request.params, request.extra))
    else:
        k.to_child(link, encode_error(request.id, INVALID_REQUEST, "too many questions are open"))


def on_client_ready(k: Context) -> None:
    for mount in k.state.mounts.values():
        for link in mount.links.values():
            if isinstance(link.stage, Live | Draining):
                resume_deferred(k, link)


def resume_deferred(k: Context, link: Link) -> None:
    waiting, link.deferred = link.deferred, []
    for frame in waiting:
        message = decode(frame)
        if isinstance(message, Request):
            on_child_request(k, link, message)


def _ask_handshake_client(k: Context, link: Link, request: Request) -> None:
    identity = k.mint()
    params = bytes(request.params) if request.params is not None else None
    token, params = _own_token(params, identity)
    k.state.asks[identity] = Ask(
        link.mount,
        link.generation,
        request.id,
        request.method,
        token=token,
        asked_at=k.now,
        running=tuple(call.seq for call in k.in_flight(link)),
    )
    k.to_client(encode_request(identity, request.method, params, request.extra))


def _own_token(params: bytes | None, identity: int) -> tuple[RequestId | None, bytes | None]:
    """Progress on a question comes back under the host's id, so that two servers' tokens cannot meet."""
    if params is None or b'"progressToken"' not in params:
        return None, params
    try:
        members_of_params = members(params)
        meta = members(members_of_params["_meta"])
        token: RequestId = msgspec.json.decode(meta["progressToken"], type=RequestId)
    except (ValueError, KeyError, msgspec.MsgspecError):
        return None, params
    meta["progressToken"] = Raw(_encode(identity))
    return token, joined({**members_of_params, "_meta": encode_members(meta)})


def _ask_modern_client(k: Context, link: Link, request: Request, ability: str | None) -> None:
    """Tie the question to the oldest call that can carry it; stdio servers do not say whose it is."""
    if ability is None:
        k.to_child(link, encode_error(request.id, METHOD_NOT_FOUND, "the client takes no such request"))
        return
    for call in sorted(k.state.calls.values(), key=lambda c: c.seq):
        if (
            is_open_on(call, link)
            and call.method in eras.INPUT_METHODS
            and ability in call.abilities
            and call.era == "modern"
        ):
            identity = k.mint()
            params = bytes(request.params) if request.params is not None else None
            k.state.asks[identity] = Ask(
                link.mount,
                link.generation,
                request.id,
                request.method,
                call.seq,
                str(identity),
                None,
                params,
                k.now,
            )
            k.emit(InputNeeded(call))
            return
    k.to_child(
        link, encode_error(request.id, INVALID_REQUEST, "no request of the client's is open to ask in")
    )


def is_open_on(call: Invocation, link: Link) -> bool:
    match call.state:
        case InFlight() | Overdue() | Parked():
            return call.is_on(link)
        case _:
            return False


# --- a 2026 server asks ----------------------------------------------------------------------------------


def read_input_required(result: Raw) -> InputRequired | None:
    """What a 2026 server asks in place of a result; None where it is a result. Raises MsgspecError if unreadable."""
    if b"input_required" not in bytes(result):
        return None
    try:
        required = msgspec.json.decode(result, type=_InputRequired)
    except msgspec.MsgspecError:
        return None
    if required.resultType != "input_required":
        return None
    questions = {
        key: msgspec.json.decode(raw, type=InputRequest)
        for key, raw in (required.inputRequests or {}).items()
    }
    return InputRequired(questions, required.requestState)


def missing_ability(k: Context, required: InputRequired) -> str:
    """The first thing asked for that the client does not offer; empty where it offers all."""
    offered = abilities(k.state.session.capabilities)
    needed = (_ABILITY.get(question.method) for question in required.questions.values())
    return next((ability for ability in needed if ability is not None and ability not in offered), "")


def ask_for_call(k: Context, link: Link, call: Invocation, required: InputRequired) -> dict[int, str]:
    """Ask the client each question; the ids under which it was asked, with the name of each in the call."""
    asked: dict[int, str] = {}
    for key, question in required.questions.items():
        identity = k.mint()
        asked[identity] = key
        params = None if question.params is msgspec.UNSET else bytes(question.params)
        kept = params if call.task else None
        k.state.asks[identity] = Ask(
            link.mount,
            link.generation,
            None,
            question.method,
            call.seq,
            key,
            params=kept,
            asked_at=k.now,
        )
        if not call.task:  # of a task the client is told when it asks how it stands
            k.to_client(encode_request(identity, question.method, params))
    return asked


# --- a 2026 client is asked ------------------------------------------------------------------------------


def open_questions(k: Context, call: Invocation) -> Members:
    """The questions of a call, as `input_required` carries them."""
    questions: Members = {}
    for ask in k.state.asks.values():
        if ask.call == call.seq:
            question: Members = {"method": Raw(_encode(ask.method))}
            if ask.params is not None:
                question["params"] = Raw(ask.params)
            questions[ask.input_key] = encode_members(question)
    return questions


def take_answers(k: Context, link: Link, call: Invocation, answers: Members) -> None:
    """Hand the answers that came with a retry to the server that asked."""
    for identity, ask in list(k.state.asks.items()):
        if ask.call == call.seq and ask.input_key in answers:
            del k.state.asks[identity]
            if ask.method == "roots/list":
                k.state.session.roots = bytes(answers[ask.input_key])
            if ask.child_id is not None:
                k.to_child(link, encode_result(ask.child_id, answers[ask.input_key]))


def ticket_of(request: Incoming) -> str | None:
    """The host's own ticket in a retry, or None: a server's own request state is the server's business."""
    raw = request.params.get("requestState")
    if raw is None or request.era != "modern" or request.method not in eras.INPUT_METHODS:
        return None
    try:
        ticket = msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None
    return ticket if ticket.startswith("perdure.") else None


# --- a handshake client answers --------------------------------------------------------------------------


def on_client_answer(k: Context, response: Response) -> None:
    ask = k.state.asks.pop(response.id, None) if type(response.id) is int else None
    if ask is None:
        k.quarantine("unexpected_client_answer")
        return
    assert type(response.id) is int
    if ask.method == "roots/list" and response.result is not None:
        k.state.session.roots = bytes(response.result)
    link = k.link(ask.mount, ask.generation)
    if link is None:
        return
    if ask.child_id is None:
        k.emit(InputAnswered(response.id, ask, response))
    elif response.result is not None:
        k.to_child(link, encode_result(ask.child_id, response.result, response.extra))
    else:
        k.to_child(link, encode_raw_error(ask.child_id, response.error or Raw(b"{}"), response.extra))


def on_client_progress(k: Context, params: Members) -> None:
    try:
        identity = msgspec.json.decode(params.get("progressToken", Raw(b"null")))
    except msgspec.MsgspecError:
        return
    ask = k.state.asks.get(identity) if type(identity) is int else None
    link = k.link(ask.mount, ask.generation) if ask is not None else None
    if ask is not None and link is not None and ask.token is not None:
        child_params = {**params, "progressToken": Raw(_encode(ask.token))}
        k.to_child(link, encode_notification("notifications/progress", encode_members(child_params)))


# --- taking questions back -------------------------------------------------------------------------------


def on_child_cancel(k: Context, link: Link, child_id: RequestId) -> None:
    link.deferred = [frame for frame in link.deferred if salvage_id(frame) != child_id]
    for identity, ask in list(k.state.asks.items()):
        if (ask.mount, ask.generation, ask.child_id) == (link.mount, link.generation, child_id):
            _drop(k, identity, ask, "the server withdrew its question")


def cancel_of(k: Context, link: Link) -> None:
    for identity, ask in list(k.state.asks.items()):
        if (ask.mount, ask.generation) == (link.mount, link.generation):
            _drop(k, identity, ask, "the server that asked is gone")


def withdraw_for(k: Context, call: Invocation) -> None:
    for identity, ask in list(k.state.asks.items()):
        if ask.call == call.seq:
            _drop(k, identity, ask, "the call has ended")
            link = k.link(ask.mount, ask.generation)
            if link is not None and ask.child_id is not None:
                k.to_child(link, encode_error(ask.child_id, INVALID_REQUEST, "the call has ended"))


def _drop(k: Context, identity: int, ask: Ask, reason: str) -> None:
    del k.state.asks[identity]
    asker = k.state.calls.get(ask.call)
    if not _is_parked(k, ask) and not (asker is not None and asker.task):
        params = _encode({"requestId": identity, "reason": reason})
        k.to_client(encode_notification("notifications/cancelled", params))


def is_waited_for(k: Context, call: Invocation) -> bool:
    """Whether a question is open that the call may wait for: its own, or one asked while it was running."""
    return any(call.seq == ask.call or call.seq in ask.running for ask in k.state.asks.values())


def timers(k: Context) -> list[float]:
    return [ask.asked_at + k.limits.question_s for ask in k.state.asks.values() if not _is_parked(k, ask)]


def tick(k: Context) -> None:
    """A question that the client leaves unanswered is taken back, so that no call waits for it without end (law 10)."""
    for identity, ask in list(k.state.asks.items()):
        if identity not in k.state.asks or _is_parked(k, ask) or ask.asked_at + k.limits.question_s > k.now:
            continue
        _drop(k, identity, ask, "it was not answered in time")
        link, call = k.link(ask.mount, ask.generation), k.state.calls.get(ask.call)
        if ask.child_id is not None and link is not None:
            k.to_child(link, encode_error(ask.child_id, INVALID_REQUEST, "the client did not answer in time"))
            if call is not None and call.task:
                k.emit(TaskQuestionsChanged(call))
        elif call is not None:
            k.emit(InputExpired(call))


def _is_parked(k: Context, ask: Ask) -> bool:
    """Whether it went to the client as the result of its call, which has a deadline of its own. That of a task did not."""
    call = k.state.calls.get(ask.call)
    return ask.call != 0 and ask.child_id is not None and not (call is not None and call.task)


def abilities(capabilities: bytes) -> tuple[str, ...]:
    """Which of the askable things a client says it offers."""
    try:
        declared = members(capabilities)
    except ValueError:
        return ()
    return tuple(a for a in _ABILITY.values() if a in declared and bytes(declared[a]) != b"null")

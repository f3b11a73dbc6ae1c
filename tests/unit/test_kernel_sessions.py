"""A client's session: opening in both eras, what the host answers itself, and frames that are not right."""

from __future__ import annotations

from typing import Any

import pytest

from harness.kernel.stage import ENVELOPE, Stage, tool
from perdure.kernel.events import ClientClosed, ClientFrame, ClientOversize, Exit, Shutdown
from perdure.kernel.state import ChildCatalog
from perdure.protocol.eras import LATEST_MODERN, META_CAPABILITIES, META_CLIENT, META_VERSION
from perdure.protocol.mounts import Limits, MountSpec

WORKER = MountSpec("w", builtin=True)
MOUNTED = MountSpec("m", prefix="m__")
DONE = {"content": [{"type": "text", "text": "done"}]}


# --- C6, H10: opening ---------------------------------------------------------------------------------


def test_initialize_is_answered_at_once_and_only_observed_events_make_the_session_live() -> None:
    stage = Stage(WORKER)
    stage.notify("notifications/initialized")
    assert not stage.kernel.state.session.live
    stage.request(
        1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c"}}
    )
    assert stage.answer(1)["result"]["protocolVersion"] == "2025-06-18"
    assert (stage.kernel.state.session.initialized, stage.kernel.state.session.live) == (True, False)
    stage.notify("notifications/initialized")
    assert stage.kernel.state.session.live


def test_a_second_initialize_is_refused_and_changes_nothing() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    before = stage.kernel.state.session.client_info
    stage.request(2, "initialize", {"protocolVersion": "2024-11-05", "clientInfo": {"name": "other"}})
    assert stage.answer(2)["error"]["code"] == -32600
    assert stage.kernel.state.session.client_info == before


def test_initialized_while_a_wrapped_server_is_still_asked_who_it_is_does_not_count() -> None:
    stage = Stage(MountSpec("m"), wrapped=True)
    stage.initialize()
    assert not stage.kernel.state.session.live
    stage.serve("m", [tool("look")])
    assert stage.answer("init")["result"]["serverInfo"] == {"name": "m", "version": "1"}
    stage.notify("notifications/initialized")
    assert stage.kernel.state.session.live


def test_an_unknown_version_is_answered_with_the_latest_of_the_handshake_era() -> None:
    stage = Stage(WORKER)
    stage.request(1, "initialize", {"protocolVersion": "1999-01-01", "capabilities": {}})
    assert stage.answer(1)["result"]["protocolVersion"] == "2025-11-25"


def test_a_client_may_probe_discover_and_go_on_with_initialize_on_the_same_pipe() -> None:
    stage = Stage(WORKER)
    stage.request(1, "server/discover", modern=True)
    assert LATEST_MODERN in stage.answer(1)["result"]["supportedVersions"]
    stage.initialize()
    assert stage.answer("init")["result"]["protocolVersion"] == "2025-11-25"
    stage.serve("w", [tool("get", "convergent")])
    stage.call(2, "get")
    stage.reply(stage.got("w", "tools/call")[0], DONE)
    assert stage.answer(2)["result"] == DONE


@pytest.mark.parametrize("missing", [META_VERSION, META_CAPABILITIES])
def test_a_2026_request_without_its_envelope_is_refused(missing: str) -> None:
    stage = Stage(WORKER)
    meta = {key: value for key, value in ENVELOPE.items() if key != missing}
    stage.request(1, "server/discover", {"_meta": meta})
    assert stage.answer(1)["error"]["code"] == -32602


def test_a_2026_request_in_an_unknown_version_is_told_which_are_known() -> None:
    stage = Stage(WORKER)
    stage.request(1, "tools/list", {"_meta": {**ENVELOPE, META_VERSION: "2031-01-01"}})
    assert stage.answer(1)["error"] == {
        "code": -32022,
        "message": f"unsupported protocol version 2031-01-01: use {LATEST_MODERN}.",
        "data": {"supported": [LATEST_MODERN], "requested": "2031-01-01"},
    }


def test_what_a_client_calls_itself_cannot_break_the_handshake_with_a_server() -> None:
    stage = Stage(MOUNTED)
    stage.request(1, "tools/list", {"_meta": {**ENVELOPE, META_CLIENT: 5}})
    stage.serve("m", [])
    assert stage.got("m", "initialize")[0].params["clientInfo"] == {"name": "unknown", "version": "0"}


# --- law 16: answered in every phase -----------------------------------------------------------------------


def phases() -> list[Any]:
    def cold(stage: Stage) -> None:
        pass

    def starting(stage: Stage) -> None:
        stage.initialize()

    def serving(stage: Stage) -> None:
        stage.initialize()
        stage.serve("w", [])
        stage.serve("m", [])

    def waiting(stage: Stage) -> None:
        serving(stage)
        stage.lose("w")
        stage.lose("w")

    def open_circuit(stage: Stage) -> None:
        serving(stage)
        for _ in range(12):
            if stage.kernel.state.mounts["m"].links:
                stage.lose("m")
            else:
                stage.tick()

    def disabled(stage: Stage) -> None:
        serving(stage)
        stage.ask_host("mounts", action="disable", name="m")

    def rolling(stage: Stage) -> None:
        from perdure.kernel.events import Reload

        serving(stage)
        stage.feed(Reload())

    def closing(stage: Stage) -> None:
        serving(stage)
        stage.call(1, "m__x")
        stage.feed(Shutdown())

    return [cold, starting, serving, waiting, open_circuit, disabled, rolling, closing]


@pytest.mark.parametrize("bring", phases(), ids=lambda f: f.__name__)
@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "2026"])
def test_the_host_answers_for_itself_in_every_phase(bring: Any, modern: bool) -> None:
    from perdure.kernel.state import ChildCatalog

    known = {name: ChildCatalog(tools=[b'{"name":"t","inputSchema":{}}']) for name in ("w", "m")}
    stage = Stage(WORKER, MOUNTED, catalogs=known)
    bring(stage)
    stage.request("a", "ping", modern=modern)
    stage.call("b", "health", modern=modern)
    stage.call("c", "telemetry", modern=modern)
    for number, kind in enumerate(("tools", "prompts", "resources", "resources/templates")):
        stage.request(f"l{number}", f"{kind}/list", modern=modern)
    for identity in ("a", "b", "c", "l0", "l1", "l2", "l3"):
        result = stage.answer(identity)["result"]
        assert ("resultType" in result) == modern, identity


def test_a_list_waits_for_the_first_catalog_no_longer_than_its_grace() -> None:
    stage = Stage(WORKER, limits=Limits(list_grace_s=5.0))
    stage.initialize()
    stage.request(1, "tools/list")
    assert stage.answers(1) == []
    stage.serve("w", [tool("get", "convergent")])
    assert [t["name"] for t in stage.answer(1)["result"]["tools"]] == [
        "health",
        "telemetry",
        "mounts",
        "tools",
        "get",
    ]
    late = Stage(WORKER, limits=Limits(list_grace_s=5.0))
    late.initialize()
    late.request(1, "tools/list")
    late.wait(5.0)
    assert len(late.answer(1)["result"]["tools"]) == 4
    late.serve("w", [tool("get", "convergent")])
    assert late.heard("notifications/tools/list_changed")


def test_a_persisted_catalog_answers_the_list_while_the_worker_starts_and_a_difference_is_announced() -> None:
    from perdure.kernel.state import ChildCatalog

    old = ChildCatalog(b'{"tools":{}}', tools=[b'{"name":"old","inputSchema":{"type":"object"}}'])
    stage = Stage(WORKER, catalogs={"w": old})
    stage.initialize()
    stage.request(1, "tools/list")
    assert "old" in [t["name"] for t in stage.answer(1)["result"]["tools"]]
    stage.serve("w", [tool("new", "convergent")])
    assert len(stage.heard("notifications/tools/list_changed")) == 1
    stage.request(2, "tools/list")
    assert "new" in [t["name"] for t in stage.answer(2)["result"]["tools"]]


def test_an_unknown_cursor_is_refused() -> None:
    stage = Stage(WORKER)
    stage.request(1, "tools/list", {"cursor": "page-2"})
    assert stage.answer(1)["error"]["code"] == -32602


def test_one_failing_mount_degrades_only_itself() -> None:
    stage = Stage(WORKER, MOUNTED, limits=Limits(unproductive_starts=1))
    stage.initialize()
    stage.serve("w", [tool("get", "convergent")])
    stage.lose("m")
    stage.call(1, "m__look")
    assert stage.answer(1)["error"]["code"] == -31098
    stage.call(2, "get")
    stage.reply(stage.got("w", "tools/call")[0], DONE)
    assert stage.answer(2)["result"] == DONE


# --- A4 jsonrpc, law 17: frames that are not right -------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "identity", "code"),
    [
        (b'{"id":1,"method":"ping"}', 1, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":""}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', 1, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', 1, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}', 1, -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', None, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}', 1, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":1,"a":2}}}', 1, -32602),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
        (b"{nonsense", None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', 1, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', 1, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":""}}', 1, -32602),
    ],
)
def test_a_malformed_frame_is_answered_under_its_id_and_the_session_lives(
    frame: bytes, identity: int | None, code: int
) -> None:
    from perdure.kernel.state import ChildCatalog

    stage = Stage(WORKER, catalogs={"w": ChildCatalog()})
    stage.feed(ClientFrame(frame))
    assert stage.answer(identity)["error"]["code"] == code
    stage.request("after", "ping")
    assert stage.answer("after")["result"] == {}


def test_a_malformed_frame_does_not_answer_the_request_whose_id_it_borrows() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", [tool("get", "convergent")])
    stage.call(1, "get")
    stage.feed(ClientFrame(b'{"jsonrpc":"2.0","id":1,"method":7}'))
    assert stage.answers(1) == []
    assert stage.answer(None)["error"]["code"] == -32600


def test_an_oversize_frame_is_refused_under_its_id_where_that_can_be_read() -> None:
    stage = Stage(WORKER)
    stage.feed(ClientOversize(99, b'{"jsonrpc":"2.0","id":"big","method":"x","params":{"a":"', b'"}}'))
    stage.feed(ClientOversize(99, b'{"method":"x","params":{"id":5,"a":"', b'"}}'))
    assert stage.answer("big")["error"]["data"]["code"] == "frame_too_large"
    assert stage.answer(None)["error"]["data"]["limit"] == Limits().frame_bytes


def test_an_unknown_method_goes_to_the_only_server_that_can_have_it() -> None:
    stage = Stage(WORKER)
    stage.request(1, "x/y")
    assert stage.answer(1)["error"]["code"] == -32601
    one = Stage(WORKER, MOUNTED)
    one.request(1, "x/y", {"a": 1})
    one.serve("m", [])
    assert one.got("m", "x/y")[0].params == {"a": 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("safe_writ", "no tool safe_writ here: did you mean safe_write?"),
        ("mcp__perdure__safe_write", "no tool mcp__perdure__safe_write here: did you mean safe_write?"),
        ("write_file", "no tool write_file here: use safe_write (whole file) or edit (passages)."),
        ("WriteFile", "no tool WriteFile here: use safe_write (whole file) or edit (passages)."),
        ("str_replace", "no tool str_replace here: use edit (passages) or safe_write (whole file)."),
        ("read_text_file", "no tool read_text_file here: use read."),
        ("delete_file", "no tool delete_file here: use transaction with op=delete."),
        ("move_file", "no tool move_file here: use transaction with op=move."),
        ("apply_patch", "no tool apply_patch here: use transaction with op=patch, or edit (passages)."),
        ("bash", "no tool bash here: no tool here runs commands; use that of your client."),
        (
            "list_directory",
            "no tool list_directory here: no tool here lists or searches files; use those of your client, then read.",
        ),
        (
            "qqqq",
            "no tool qqqq here, nor one with a similar name: tools/list has them all, and health says which servers "
            "are missing.",
        ),
    ],
)
def test_an_unknown_tool_is_answered_with_the_one_to_use(name: str, message: str) -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", [tool(one, "probe") for one in ("safe_write", "edit", "read", "transaction")])
    stage.call(1, name)
    assert stage.answer(1)["error"]["code"] == -32602
    assert stage.answer(1)["error"]["message"] == message


def test_an_unknown_tool_is_not_answered_with_one_that_is_not_here() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", [tool("get_state", "convergent")])
    stage.call(1, "write_file")
    assert "safe_write" not in stage.answer(1)["error"]["message"]


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("tools/call", {}, "tools/call needs name, a string."),
        ("prompts/get", {"name": "x"}, "no prompt x here: prompts/list names what there is."),
        (
            "resources/read",
            {"uri": "a:b"},
            "no server here has the resource a:b: resources/list names what there is.",
        ),
        ("tools/list", {"cursor": "x"}, "no cursor was given out: every list is one page. Leave cursor out."),
        (
            "logging/setLevel",
            {"level": "loud"},
            "level must be one of debug, info, notice, warning, error, critical, alert, emergency.",
        ),
        ("initialize", {}, "the session is initialized already: send initialize once."),
        ("no/such", {}, "no method no/such here."),
        (
            "completion/complete",
            {},
            "completion/complete needs ref: a prompt by its name, or a resource by its uri.",
        ),
    ],
)
def test_a_refused_request_says_what_to_send_instead(
    method: str, params: dict[str, Any], message: str
) -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", [])
    stage.request(1, method, params)
    assert stage.answer(1)["error"]["message"] == message


# --- the end -----------------------------------------------------------------------------------------------------


def test_a_shutdown_finishes_what_runs_and_refuses_new_work() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", [tool("get", "convergent")])
    stage.call(1, "get")
    assert Exit() not in stage.feed(Shutdown())
    stage.call(2, "get")
    assert stage.answer(2)["error"]["data"]["code"] == "closing"
    (sent,) = stage.got("w", "tools/call")
    effects = stage.says("w", 1, {"id": sent.id, "result": DONE})
    assert stage.answer(1)["result"] == DONE
    assert effects[-1] == Exit()


def test_whoever_still_waits_at_the_end_is_told_what_is_known() -> None:
    stage = Stage(WORKER, limits=Limits(in_flight=1, drain_s=5.0))
    stage.initialize()
    stage.serve("w", [tool("once", "never")])
    stage.call(1, "once")
    stage.call(2, "once")
    stage.request(3, "subscriptions/listen", {"notifications": {}}, modern=True)
    stage.feed(Shutdown())
    assert stage.answer(3)["result"]["resultType"] == "complete"
    stage.wait(5.0)
    assert stage.answer(1)["error"]["data"]["outcome"] == "unknown"
    assert stage.answer(2)["error"]["data"]["outcome"] == "not_started"


def test_a_client_that_leaves_with_nothing_open_ends_the_host_at_once() -> None:
    stage = Stage(WORKER)
    assert stage.feed(ClientClosed())[-1] == Exit()


# --- what servers declare -----------------------------------------------------------------------------------


def test_the_first_answer_declares_the_extensions_of_every_eager_server() -> None:
    specs = [MountSpec(name, ("x",), prefix=f"{name}__") for name in ("a", "b")]
    stage = Stage(*specs, MountSpec("c", ("x",), prefix="c__", start="lazy"))
    stage.request(1, "server/discover", modern=True)
    stage.serve("a", [], extensions={"x.example/one": {}})
    assert not stage.answers(1)
    stage.serve("b", [], extensions={"x.example/two": {}})
    declared = stage.answer(1)["result"]["capabilities"]["extensions"]
    assert declared == {"x.example/one": {}, "x.example/two": {}}


def test_the_first_answer_waits_no_longer_than_its_grace_and_lists_still_wait() -> None:
    stage = Stage(MountSpec("a", ("x",), prefix="a__"))
    stage.request(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
    stage.wait(1.4)
    assert not stage.answers(1)
    stage.wait(0.2)
    assert "extensions" not in stage.answer(1)["result"]["capabilities"]
    stage.request(2, "tools/list")
    assert not stage.answers(2)
    stage.serve("a", [tool("t")])
    assert [found["name"] for found in stage.answer(2)["result"]["tools"]][-1:] == ["a__t"]


def test_a_persisted_catalog_answers_at_once() -> None:
    known = ChildCatalog(capabilities=b'{"extensions":{"x.example/one":{}}}')
    stage = Stage(MountSpec("a", ("x",), prefix="a__"), catalogs={"a": known})
    stage.request(1, "server/discover", modern=True)
    assert stage.answer(1)["result"]["capabilities"]["extensions"] == {"x.example/one": {}}


def test_a_method_of_an_extension_goes_to_the_one_server_that_declared_it() -> None:
    stage = Stage(*[MountSpec(name, ("x",), prefix=f"{name}__") for name in ("a", "b", "c")])
    stage.initialize()
    stage.serve("a", [], extensions={"x.example/graphs": {}, "x.example/maps": {}})
    stage.serve("b", [], extensions={"x.example/maps": {}})
    stage.serve("c", [])
    stage.request(1, "graphs/query", {"q": 1})
    [sent] = stage.got("a", "graphs/query")
    assert sent.params == {"q": 1}
    stage.request(2, "maps/find")
    assert stage.answer(2)["error"] == {
        "code": -32602,
        "message": "a and b offer maps/find: name one of them in _meta as perdure/mount.",
        "data": {"mounts": ["a", "b"]},
    }
    stage.request(3, "maps/find", **{"perdure/mount": "b"})
    assert len(stage.got("b", "maps/find")) == 1
    stage.request(4, "other/find")
    assert stage.answer(4)["error"]["code"] == -32601

"""A surface for tests: tools that echo, wait, fail in every way and keep a journal. Run, it is a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from perdure.present.shape import Field, Shape
from perdure.protocol.calls import Call, Done, KeyStatus
from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import call_again
from perdure.protocol.replay import CONVERGENT, JOURNAL, NEVER, SAFE_TO_RETRY, STILL_UNKNOWN
from perdure.protocol.tools import ToolSpec, View, arg
from perdure.surfaces.port import Resource, Tool
from perdure.worker.server import serve_stdio


class EchoParams(msgspec.Struct):
    path: Annotated[str, arg("Where.", aliases=("file_path",), path="relative")]
    content: Annotated[str, arg("What.")] = ""
    count: Annotated[int, arg("How often.", ge=1, le=99)] = 1
    mode: Annotated[Literal["create", "append"], arg("How.")] = "create"


class WaitParams(msgspec.Struct):
    seconds: Annotated[float, arg("How long at most.")] = 30.0
    steps: Annotated[int, arg("Progress notifications to send first.")] = 0


class FailParams(msgspec.Struct):
    how: Annotated[str, arg("In which way.")]
    secret: Annotated[str, arg("Must never come back.")] = ""


class NoParams(msgspec.Struct):
    pass


ECHO = Shape(
    "echoed {path}  {bytes}  sha256 {sha256}",
    (
        Field("path"),
        Field("bytes", "bytes"),
        Field("sha256", "digest"),
        Field("mode", full_only=True),
        Field("rows", "table", columns=(Field("n"), Field("content", full_only=True))),
    ),
)


class ProbingSurface:
    name = "probing"

    def __init__(self) -> None:
        self.started = threading.Event()

    def tools(self) -> Sequence[Tool]:
        return (
            Tool(
                ToolSpec(
                    name="echo",
                    title="Echo",
                    description="Say it again.",
                    params=EchoParams,
                    replay=JOURNAL,
                    aliases=("rw.echo",),
                    conflict=("/path",),
                    deadline_s=30,
                ),
                ECHO,
                self.echo,
            ),
            Tool(_spec("wait", WaitParams), Shape("waited {cancelled}", (Field("cancelled"),)), self.wait),
            Tool(_spec("fail", FailParams), Shape("never", ()), self.fail),
            Tool(
                _spec("whoami", NoParams),
                Shape("{client}", (Field("client"), Field("session"), Field("invocation_key"))),
                self.whoami,
            ),
            Tool(_spec("noisy", NoParams), Shape("made noise", ()), self.noisy),
            Tool(_spec("speak", NoParams), Shape("spoke", ()), self.speak),
        )

    def resources(self) -> Sequence[Resource]:
        return (Resource("probing://doc", "doc", "A document.", lambda: "# doc\n", "text/markdown"),)

    def probe(self, key: str) -> KeyStatus:
        match key:
            case "done":
                return Done({"path": "a.txt", "bytes": 3, "sha256": "ab" * 32}, View("json", "full"))
            case "failed":
                return Done(
                    refuse("conflict", "taken", "it was taken.", next_step=call_again()).envelope,
                    View("json"),
                )
            case "absent":
                return SAFE_TO_RETRY
            case _:
                return STILL_UNKNOWN

    def echo(self, params: EchoParams, call: Call) -> dict[str, Any]:
        return {
            "path": params.path,
            "bytes": len(params.content.encode()),
            "sha256": "4b0c12" + "0" * 58,
            "mode": params.mode,
            "rows": [{"n": n, "content": params.content} for n in range(params.count)],
        }

    def wait(self, params: WaitParams, call: Call) -> dict[str, Any]:
        for step in range(params.steps):
            call.progress(step, params.steps, f"step {step}")
            call.progress(step, params.steps, "does not advance")
        until = time.monotonic() + params.seconds
        while not call.cancelled.is_set() and time.monotonic() < until:
            time.sleep(0.005)
        was_cancelled = call.cancelled.is_set()
        os.write(2, b"wait ended\n")
        return {"cancelled": was_cancelled}

    def fail(self, params: FailParams, call: Call) -> object:
        match params.how:
            case "refused":
                raise refuse(
                    "blocked",
                    "classified",
                    "not written: the content was refused.",
                    next_step=call_again(),
                    reason_hint="content_filter",
                    suggested_action="redact",
                    detected_patterns=("github_pat",),
                    retry_budget=2,
                    draft="d_1",
                )
            case "unexpected":
                raise KeyError(params.secret)
            case "exit":
                sys.exit(params.secret)
            case "os":
                raise PermissionError(13, params.secret, "/etc/shadow")
            case "deep":
                return self.fail(params, call)
            case "no object":
                return 7
        raise AssertionError(params.secret)

    def whoami(self, _: NoParams, call: Call) -> dict[str, Any]:
        return {"client": call.client, "session": call.session, "invocation_key": call.invocation_key}

    def noisy(self, _: NoParams, call: Call) -> dict[str, Any]:
        print("a stray print")
        sys.stdout.flush()
        os.write(1, b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        subprocess.run(["sh", "-c", "echo from a child; cat"], check=True)
        return {}

    def speak(self, _: NoParams, call: Call) -> dict[str, Any]:
        call.log("info", "quiet")
        call.log("error", "loud")
        return {}


def _spec(name: str, params: type[msgspec.Struct]) -> ToolSpec:
    reads = name in ("whoami", "speak")
    return ToolSpec(
        name=name,
        title=name.title(),
        description=f"The {name} tool.",
        params=params,
        replay=CONVERGENT if reads else NEVER,
        read_only=reads,
    )


if __name__ == "__main__":
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    raise SystemExit(serve_stdio([ProbingSurface()], view=View(**options), roots=("/srv/project",)))

"""Files that a host reads, mutated and saved while it runs and while it starts.

    python -m harness.host.file_mutations [--mutations 1000] [--starts 20] [--seed N] [--file mcp.md …]

| file | read by |
|---|---|
| `mcp.md`, `mcp.json` | the host, at its start and when they change |
| `perdure.toml` | the host and the worker, at their start |
| `policy.yaml` | the worker, at the first call that writes |
| a client's file | the commands that import from it; the host does not look at it |

Mutations are bytes flipped, cut, repeated and inserted, and what a text editor does not make: a FIFO, a folder, a link to
itself, 200 MB, invalid UTF-8, a file without permissions. Each is saved three times:

- running: a host serves a mount that has nothing to do with the file. It must answer a ping after each save.
- reading: everything that reads the file at a start, in this process. Nothing may be raised but what callers expect.
- starting: a real host starts on it, its other mount is called, `health` is asked.

Where `health` shows a fault of the file, it must name the file, and the line where there is one.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from harness.host.storm import Score
from perdure.testing import fake_server
from perdure.testing.raw_client import Ended, RawClient

ANSWER_S: Final = 30.0
LOOK_S: Final = 0.02
FAKE: Final = (sys.executable, "-S", fake_server.__file__)
LARGE: Final = 200 * 1024 * 1024
# A host that looks at its registry more often than it usually does. Everything else is `perdure run`.
HOST: Final = (
    "import sys\n"
    "import perdure.host.stdio\n"
    f"perdure.host.stdio.LOOK_S = {LOOK_S}\n"
    "from perdure.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)

_MD: Final = f"""\
# MCP servers

Prose, and a list:

- one

## first
description: A server
command: {sys.executable}
args: ["-c", "pass"]
env: A=1, "B=v,w"
timeout: startup=5, call=60
tools: allow=a,b
replay a: probe b {{"key": "/key"}}
start: lazy

```
## not a server
```
<!-- nor
## this -->

## second
url: https://localhost:1/mcp
headers: Authorization=Bearer $TOKEN
start: lazy

## Allowed commands
- {os.path.basename(sys.executable)}
"""
_JSON: Final = json.dumps(
    {
        "mcpServers": {
            "first": {"command": sys.executable, "args": ["-c", "pass"], "env": {"A": "1"}},
            "second": {"type": "http", "url": "https://localhost:1/mcp", "headers": {"X": "$TOKEN"}},
            "third": {
                "command": "npx",
                "perdure": {"start": "lazy", "tools": {"allow": ["a"]}, "timeouts": {"call": 5}},
            },
        },
        "perdure": {"allowedCommands": [os.path.basename(sys.executable), "npx"]},
    },
    indent=2,
)
_TOML: Final = """\
render = "json"
log-level = "warning"
surfaces = ["write", "state"]

[mounts]
extra = "true"

[timeouts]
call = 300

[limits]
pending = 1024
queue = 256

[keep]
days = 90

[policy]
version = 1
"""
_YAML: Final = """\
version: 1
paths:
  deny:
    - "*.pem"
    - secrets/**
limits:
  file_bytes: 1000000
"""


class Subject(NamedTuple):
    """A file: its sound content, and where it lies below the folder of a run."""

    name: str
    content: bytes
    place: str
    options: tuple[str, ...] = ()


SUBJECTS: Final = {
    one.name: one
    for one in (
        Subject("mcp.md", _MD.encode(), "registry/mcp.md", ("--registry", "registry/mcp.md")),
        Subject("mcp.json", _JSON.encode(), "registry/mcp.json", ("--registry", "registry/mcp.json")),
        Subject("perdure.toml", _TOML.encode(), "config/perdure/perdure.toml"),
        Subject("policy.yaml", _YAML.encode(), "policy.yaml", ("--policy", "policy.yaml")),
        Subject("client", _JSON.encode(), "client/claude_desktop_config.json"),
    )
}

_ODD: Final = (
    b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\\ud800", b'"\\ud800": 1,', b"\\u0000", b'"', b"'",
    b"{", b"}", b"[", b"]", b"{,}", b"[,]", b",", b":", b"=", b"#", b"## ", b"\n## \n", b"```\n", b"<!--", b"-->", b"$",
    b"${", b"*a", b"&a ", b"\t", b"- ", b"-1", b"1e999", b"9" * 5000, b"nan", b"true", b"null",
    b"!!python/object:os.system ", b"[" * 3000, b"{" * 3000, b"a." * 2000, b"x" * 200_000, b'"a",' * 50_000,
    b"\n" * 50_000, b'{"a":' * 3000,
)  # fmt: skip


def mutated(rng: random.Random, content: bytes) -> bytes:
    """One to three changes of a sound content."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 1, 2, 5, 20, 100)))
        match rng.randrange(8):
            case 0:
                data[at:end] = b""
            case 1:
                data[at:at] = data[at:end] * rng.choice((1, 2, 50))
            case 2 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 3:
                data[at:] = b""
            case 4:
                rows = bytes(data).split(b"\n")
                rng.shuffle(rows)
                data[:] = b"\n".join(rows)
            case 5:
                data[:] = bytes(data).replace(b"\n", rng.choice((b"\r\n", b"\r", b"")))
            case _:
                data[at : rng.choice((at, end))] = rng.choice(_ODD)
    return bytes(data)


# How a fault ends that is one of the file as a whole.
_OF_THE_WHOLE: Final = (
    "is a folder; a registry is a file",
    " bytes",
    "is not a file",
    "it cannot be read",
    "it is not valid YAML",  # the parser does not say where
    *(os.strerror(number) for number in (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENOENT)),
)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGE)


def _not_utf_8(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00broken\n" * 10)


def _forbidden(path: Path) -> None:
    path.write_bytes(b"x = 1\n")
    path.chmod(0)


def _missing(path: Path) -> None:
    pass


SPECIAL: Final[tuple[Callable[[Path], None], ...]] = (
    _fifo,
    Path.mkdir,
    _loop,
    _large,
    _not_utf_8,
    _forbidden,
    _missing,
)


def save(path: Path, rng: random.Random, content: bytes, number: int) -> str:
    """The next mutation in the place of the file; what it was."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    special = SPECIAL[number // 10 % len(SPECIAL)] if number % 10 == 9 else None
    if special is not None:
        path.unlink(missing_ok=True)
        special(path)
        return special.__name__.strip("_")
    data = mutated(rng, content)
    if not path.is_file() or not os.access(path, os.W_OK) or rng.random() < 0.5:  # as an editor that renames
        beside = path.with_name(path.name + ".new")
        beside.write_bytes(data)
        os.replace(beside, path)
    else:
        path.write_bytes(data)
    return "mutated"


class Folder:
    """A place of its own for one run: workspace, home, configuration, and the file."""

    def __init__(self, root: Path, subject: Subject) -> None:
        self.root = root
        self.subject = subject
        self.path = root / subject.place
        self.path.parent.mkdir(parents=True, exist_ok=True)
        (root / "workspace").mkdir()
        self.path.write_bytes(subject.content)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "RW_"))}
        self.environ = {
            **kept,
            "HOME": str(root),
            "PERDURE_HOME": str(root / "home"),
            "XDG_CONFIG_HOME": str(root / "config"),
        }
        state = [f"--{kind}={root / kind}" for kind in ("effects", "dispatches", "state")]
        self.mount = f"good={shlex.join((*FAKE, '--name=good', *state))}"

    def host(self) -> RawClient:
        options = [
            str(self.root / word) if word == self.subject.place else word for word in self.subject.options
        ]
        words = ["run", "--mount", self.mount, "--render", "json", *options]
        client = RawClient([sys.executable, "-P", "-c", HOST, *words], self.environ, self.root / "workspace")
        client.initialize(timeout=ANSWER_S)
        return client


def _use(client: RawClient, tool: str, **arguments: Any) -> Any:
    return client.wait(client.start_call(tool, arguments), ANSWER_S)


def check(client: RawClient, folder: Folder, score: Score, what: str) -> None:
    """Other mounts work, the built-in tools answer, and a fault of the file is named with its place."""
    said = _use(client, "good__echo", text=what)
    if said.get("result", {}).get("content", [{}])[0].get("text") != what:
        score.violations.append(f"{what}: the other mount did not answer: {said}")
    if folder.subject.name == "policy.yaml":
        written = _use(client, "safe_write", path="a.txt", content=what)
        if "result" not in written:
            score.violations.append(f"{what}: safe_write was not answered in words: {written}")
    health = _use(client, "health", render="json", detail="full")["result"]["structuredContent"]
    faults = [fault["detail"] for fault in health.get("file_faults", [])]
    faults += [
        row["last_fault"]["detail"]
        for row in health["mounts"]
        if row.get("last_fault", {}).get("code") == "invalid_entry"
    ]
    for detail in faults:
        score.counts["faults shown in health"] += 1
        # The worker's are in the words of the write tools, which show no path of the machine.
        place = folder.path.name if detail.startswith("nothing could be written") else str(folder.path)
        if place not in detail:
            score.violations.append(f"{what}: a fault does not name the file: {detail}")
        elif "line " not in detail and not detail.rstrip(".").endswith(_OF_THE_WHOLE):
            score.violations.append(f"{what}: a fault does not name the line: {detail}")


# --- while it runs ------------------------------------------------------------------------------------------------


def run_beside(folder: Folder, rng: random.Random, mutations: int, score: Score) -> None:
    with folder.host() as client:
        slowest = 0.0
        try:
            for number in range(mutations):
                what = f"{folder.subject.name} running {number} {save(folder.path, rng, folder.subject.content, number)}"
                time.sleep(LOOK_S * 1.5)
                asked = time.monotonic()
                client.request("ping", timeout=ANSWER_S)
                slowest = max(slowest, time.monotonic() - asked)
                score.counts["saved while a host runs"] += 1
                if number % 20 == 9 or number == mutations - 1:
                    check(client, folder, score, what)
        except (Ended, TimeoutError, AssertionError) as error:
            score.violations.append(
                f"{what}: the host: {type(error).__name__}: {str(error)[:200]} {client.stderr[-500:]}"
            )
            return
        score.figures[f"{folder.subject.name}: slowest ping while it runs"] = f"{slowest * 1000:.0f} ms"
        if client.close(ANSWER_S) != 0:
            score.violations.append(f"{folder.subject.name}: the host did not end in good order")


# --- while it starts ----------------------------------------------------------------------------------------------


def read_all(folder: Folder, rng: random.Random, mutations: int, score: Score) -> None:
    """What a start reads, in this process: so often that a process each time would take hours."""
    read = _READERS[folder.subject.name]
    slowest = 0.0
    for number in range(mutations):
        what = save(folder.path, rng, folder.subject.content, number)
        began = time.thread_time()
        try:
            read(folder)
        except Exception as error:
            kept = folder.root.parent / f"{folder.subject.name}.{number}"
            if folder.path.is_file() and what == "mutated":
                shutil.copy(folder.path, kept)
            score.violations.append(
                f"{folder.subject.name} reading {number} {what}: {type(error).__name__}: {str(error)[:200]} ({kept})"
            )
        slowest = max(slowest, time.thread_time() - began)
        score.counts["read as at a start"] += 1
    score.figures[f"{folder.subject.name}: slowest read"] = f"{slowest * 1000:.0f} ms of CPU"


def _read_host(folder: Folder) -> None:
    from perdure.host import compose, launch
    from perdure.host.registry_mounts import RegistryMounts
    from perdure.host.settings import load
    from perdure.protocol.faults import Fault
    from perdure.surfaces.ops.health import health

    given: dict[str, Any] = {"workspace": [str(folder.root / "workspace")]}
    if folder.subject.name.startswith("mcp"):
        given["registry"] = str(folder.path)
    settings = load(given, folder.environ, leave_out_faults=True)
    specs = launch.specs_of(settings)
    registry = RegistryMounts(settings, folder.environ, frozenset(specs))
    specs |= registry.specs()
    kernel = compose.new_kernel(
        specs,
        settings,
        wrapped=False,
        tools=registry.tools_of(specs),
        file_faults={"settings": settings.faults, "registry": registry.faults},
    )
    kernel.start(time.monotonic())
    launched = [registry.launch(spec, folder.environ) for spec in specs.values() if spec.managed]
    shown = [one for one in launched if isinstance(one, Fault)]
    msgspec.json.encode([health(kernel), shown])
    registry.restore(registry.dump())


def _read_policy(folder: Folder) -> None:
    from perdure.protocol.envelope import ToolError
    from perdure.workspace import policy_file

    try:
        policy_file.load(str(folder.path), [str(folder.root / "workspace")])
    except ToolError as error:
        if "policy.yaml" not in str(error.envelope.context):
            raise ValueError("the refusal does not name the file") from None


def _read_client(folder: Folder) -> None:
    from perdure.registry.clients.import_servers import import_from
    from perdure.registry.clients.table import CLIENTS
    from perdure.registry.errors import RegistryError
    from perdure.registry.file.backend import open_markdown

    backend = open_markdown(str(folder.root / "empty.md"), folder.environ)
    try:
        import_from(CLIENTS["claude-desktop"], str(folder.path), backend, apply=False)
    except RegistryError:
        pass


_READERS: Final[dict[str, Callable[[Folder], None]]] = {
    "mcp.md": _read_host,
    "mcp.json": _read_host,
    "perdure.toml": _read_host,
    "policy.yaml": _read_policy,
    "client": _read_client,
}


def start_on(folder: Folder, rng: random.Random, starts: int, score: Score) -> None:
    for number in range(starts):
        # Every second one special, so that a few starts meet all of them.
        place = number // 2 * 10 + (9 if number % 2 else 0)
        what = (
            f"{folder.subject.name} starting {number} {save(folder.path, rng, folder.subject.content, place)}"
        )
        try:
            with folder.host() as client:
                check(client, folder, score, what)
                score.counts["hosts started"] += 1
                if client.close(ANSWER_S) != 0:
                    score.violations.append(f"{what}: the host did not end in good order")
        except (Ended, TimeoutError, AssertionError) as error:
            score.violations.append(
                f"{what}: the host did not serve: {type(error).__name__}: {str(error)[:300]}"
            )


def run(name: str, mutations: int, starts: int, seed: int, *, saves: int | None = None) -> Score:
    """All three for one file. `saves` is how many are saved beside a running host, where that is another number."""
    score = Score()
    subject = SUBJECTS[name]
    beside = mutations if saves is None else saves
    for act, count in ((run_beside, beside), (read_all, mutations), (start_on, starts)):
        with tempfile.TemporaryDirectory(prefix="file-mutations-") as place:
            act(Folder(Path(place), subject), random.Random(f"{seed} {name} {act.__name__}"), count, score)
    return score


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutations", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--file", action="append", choices=tuple(SUBJECTS))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    is_sound = True
    for name in options.file or SUBJECTS:
        score = run(name, options.mutations, options.starts, options.seed)
        is_sound = is_sound and not score.violations
        print(f"{name}  {'held' if not score.violations else 'BROKEN'}", flush=True)
        for what, count in score.counts.items():
            print(f"  {what}: {count}")
        for what, figure in score.figures.items():
            print(f"  {what}: {figure}")
        for violation in score.violations[:20]:
            print(f"  {violation}")
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())

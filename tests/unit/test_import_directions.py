"""Who may import whom: the directions of the design, read from the source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "perdure"
FILES = sorted(ROOT.rglob("*.py"))

# Each room may look into the rooms to its right, and into itself.
BASE = {"platform", "protocol"}
PORTS = {"storage", "text", "validate", "risk", "present"} | BASE
WEB = {"http"}
MIDDLE = {"surfaces", "registry", "kernel", "workspace"} | PORTS
SHELL = {"supervise", "telemetry", "bridge"}
ALLOWED = {
    "platform": {"platform"},
    "protocol": {"protocol"},
    "text": {"text", "risk"} | BASE,
    "present": {"present", "storage"} | BASE,
    "validate": {"validate"} | BASE,
    "risk": {"risk"} | BASE,
    "storage": PORTS - {"present"},
    "workspace": {"workspace"} | PORTS,
    "kernel": {"kernel"} | BASE,
    "surfaces": {"surfaces", "workspace", "kernel"} | PORTS,
    "http": {"http", "platform"},
    "registry": {"registry"} | PORTS | WEB,
    "hooks": {"hooks", "workspace", "storage", "text"} | BASE,
    "supervise": {"supervise", "kernel"} | BASE,
    "telemetry": {"telemetry", "kernel"} | BASE,
    "bridge": {"bridge", "registry"} | BASE,
    "host": {"host", "hooks"} | SHELL | MIDDLE,
    "worker": {"worker", "hooks", "supervise"} | MIDDLE,
    "serve": {"serve", "host", "hooks"} | SHELL | MIDDLE | WEB,
    "dash": {"dash", "serve", "host"} | SHELL | MIDDLE | WEB,
    "cli": {"cli", "dash", "serve", "host", "worker", "hooks", "testing"} | SHELL | MIDDLE | WEB,
}
IO = {
    "asyncio",
    "http",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
}
# Distributions whose module has another name.
PACKAGE_OF = {"pyjwt": "jwt", "ruamel.yaml": "ruamel", "opentelemetry-api": "opentelemetry"}
OF_MCP = {"anyio", "httpx2", "mcp_types", "pydantic"}  # installed with the SDK
# Where the modules of each optional extra are imported.
OF_EXTRA = {
    "remote": "bridge/",
    "postgres": "storage/postgres/",
    "oauth": "serve/oauth.py",
    "otel": "telemetry/otlp_process.py",
    "seal": "storage/cipher.py",
    "top": "cli/top_live.py",
}
# What a system may lack or do differently: only the ports in platform/ use it.
SYSTEM_MODULES = {
    "ctypes",
    "fcntl",
    "grp",
    "msvcrt",
    "pty",
    "pwd",
    "resource",
    "select",
    "selectors",
    "signal",
    "termios",
    "tty",
    "winreg",
}
SYSTEM_NAMES = re.compile(
    r"os\.(fork|forkpty|posix_spawn|posix_spawnp|exec[lv]\w*|wait|wait3|wait4|waitid|waitpid|W[A-Z]+|kill|killpg|setsid"
    r"|[gs]etpgid|[gs]etpriority|nice|get(e?[ug]id|groups)|umask|fchmod|[fl]?chown|f?statvfs|(get|set|list|remove)xattr"
    r"|O_(CLOEXEC|DIRECTORY|NOFOLLOW|NONBLOCK|PATH|TMPFILE)|fwalk|copy_file_range|posix_fadvise|fsync|fdatasync|sync|mkfifo|uname|pread|pwrite|set_blocking)"
    r"|os\.dir_fd|/proc|socket\.(AF_UNIX|SO_PEERCRED|TCP_USER_TIMEOUT)|asyncio\.(start|open)_unix_\w+"
)
# The test kit's fake servers and clients end processes by themselves: a bug in a port must not hide in both sides.
TEST_KIT = {"signal", "os.kill", "os.posix_spawnp", "os.pread"}
COMPOSERS = {"host/compose.py", "worker/compose.py", "workspace/workspace.py"}
BACKENDS = ("perdure.storage.sqlite", "perdure.storage.postgres", "perdure.storage.memory")


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports(file: Path) -> list[str]:
    """Every module that a file imports, in functions too, but not for types only."""
    tree = parsed(file)
    typing_only: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typing_only.update(ast.walk(node))
    found: list[str] = []
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            module = node.module or ""
            found += [f"{module}.{alias.name}" for alias in node.names] if module == "perdure" else [module]
            found += [
                f"{module}.{a.name}" for a in node.names if module in ("perdure.storage", "perdure.surfaces")
            ]
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "perdure" and len(parts) > 1 else ""


def name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("file", [f for f in FILES if name(f).split("/")[0] in ALLOWED], ids=name)
def test_every_module_looks_only_where_it_may(file: Path) -> None:
    here = name(file).split("/")[0]
    for module in imports(file):
        there = room(module)
        if there and not there.startswith("__"):
            assert there in ALLOWED[here], f"{name(file)} imports {module}"


def test_storage_raises_its_own_errors_and_one_module_turns_them_into_answers() -> None:
    for file in FILES:
        of_storage = {module for module in imports(file) if room(module) == "storage"}
        if name(file).startswith("storage/"):
            answers = {"perdure.protocol.envelope", "perdure.protocol.next_step"} & set(imports(file))
            assert not answers, f"{name(file)} imports {answers}"
        elif name(file).startswith("present/"):
            assert of_storage <= {"perdure.storage.errors"}, name(file)


def test_every_room_has_a_rule() -> None:
    rooms = {name(f).split("/")[0] for f in FILES if "/" in name(f)}
    assert rooms <= {*ALLOWED, "testing"}


def test_the_kernel_does_no_io_and_has_no_clock() -> None:
    for file in FILES:
        if name(file).startswith("kernel/"):
            found = {module.split(".")[0] for module in imports(file)} & IO
            assert not found, f"{name(file)} imports {found}"
            assert "perdure.platform.fault_points" not in imports(file), name(
                file
            )  # a fault point may end the process


def names_in(file: Path) -> set[str]:
    """Every `module.name` that a file uses or imports. `os.dir_fd` is an `os` function on an open directory."""
    found: set[str] = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and str(node.value).startswith("/proc"):
            found.add("/proc")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("os."):
            found |= {"os.dir_fd" for keyword in node.keywords if str(keyword.arg).endswith("dir_fd")}
    return found


def test_what_differs_between_systems_is_used_only_by_the_ports_in_platform() -> None:
    for file in FILES:
        if name(file).startswith("platform/"):
            continue
        used = {module.split(".")[0] for module in imports(file)} & SYSTEM_MODULES
        used |= set(filter(SYSTEM_NAMES.fullmatch, names_in(file)))
        used -= TEST_KIT if name(file).startswith("testing/") else set()
        assert not used, f"{name(file)} uses {used}"


def test_only_commands_that_act_as_a_client_use_the_test_kit() -> None:
    for file in FILES:
        if not name(file).startswith("testing/") and name(file) not in ("cli/demo.py", "cli/host_session.py"):
            assert "testing" not in map(room, imports(file)), name(file)


def test_surfaces_do_not_import_each_other_nor_a_backend() -> None:
    for file in FILES:
        parts = name(file).split("/")
        if parts[0] != "surfaces" or len(parts) < 3:
            continue
        for module in imports(file):
            assert not module.startswith(BACKENDS), f"{name(file)} imports {module}"
            other = module.split(".")
            if (
                other[:2] == ["perdure", "surfaces"]
                and len(other) > 2
                and (ROOT / "surfaces" / other[2]).is_dir()
            ):
                assert other[2] == parts[1], f"{name(file)} imports {module}"


def test_only_the_composers_wire_a_backend() -> None:
    for file in FILES:
        if name(file) in COMPOSERS or name(file).startswith(("storage/", "testing/", "cli/")):
            continue
        for module in imports(file):
            assert not module.startswith(BACKENDS), f"{name(file)} imports {module}"


def modules_of(requirements: list[str]) -> set[str]:
    distributions = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in requirements}
    return {PACKAGE_OF.get(d, d.replace("-", "_").split(".")[0]) for d in distributions}


def test_what_an_extra_installs_is_imported_only_where_that_extra_is_used() -> None:
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(OF_EXTRA) | {"all"} == set(extras)
    for file in FILES:
        allowed = modules_of(project["dependencies"]) | {"perdure"}
        for extra, place in OF_EXTRA.items():
            if name(file).startswith(place):
                allowed |= modules_of(extras[extra]) | (OF_MCP if extra == "remote" else set())
        third_party = {module.split(".")[0] for module in imports(file)} - set(sys.stdlib_module_names)
        assert third_party <= allowed, f"{name(file)} imports {third_party - allowed}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types count, too: two modules that need each other's types are one."""
    modules = {
        f"perdure.{name(file)[:-3].replace('/', '.').removesuffix('.__init__')}": file for file in FILES
    }
    graph: dict[str, set[str]] = {}
    for module, file in modules.items():
        graph[module] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & modules.keys()
                graph[module] |= submodules or {node.module} & modules.keys()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))

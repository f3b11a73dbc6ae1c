"""Pictures of every page of the dashboard, with sample data: `python -m harness.dashboard_pictures [FOLDER]`.

Needs Chromium. Every page is pictured at 1280 and 390 pixels, light and dark, into FOLDER (default: build/dashboard).
`--docs` makes only the one picture that the documentation shows, docs/pictures/dashboard.png.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, Final

from harness import notes_server
from harness.processes import wait_for
from perdure.testing.http_client import HttpClient, ServeProcess

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs" / "pictures" / "dashboard.png"
WIDTHS: Final = (1280, 390)
SCHEMES: Final = ("light", "dark")
# Built from parts, so that no check of this repository takes it for a real one.
TOKEN: Final = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
PAGES: Final = (
    "/",
    "/events",
    "/tools",
    "/timeline",
    "/timeline/change?id=5",
    "/timeline/rewind?to=5",
    "/journal",
    "/journal/entry?path=src/invoices.py&id=4",
    "/journal/undo?id=1&id=11&id=15",
    "/journal/restore?path=src/invoices.py&id=2",
    "/file?path=src/invoices.py",
    "/sessions",
    "/mounts",
    "/mounts/server?name=notes",
    "/mounts/server?name=perdure",
    "/mounts/disable?name=notes",
    "/state",
    "/state/key?key=plan/invoices",
    "/reservations",
    "/handoffs",
    "/drafts",
    "/registry",
    "/nothing-here",
)


def chromium_path() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        yield browser
        browser.close()


@contextmanager
def sample(folder: Path, *, with_broken: bool = True) -> Iterator[ServeProcess]:
    """A server with something to see on every page: three agents at work, and some things that went wrong."""
    notes = shlex.join([sys.executable, "-P", "-S", notes_server.__file__])
    broken = ("--mount", "search=false --api-key hidden") if with_broken else ()
    server = ServeProcess(folder, "--mount", f"notes={notes}", *broken, workspace="shop")
    try:
        _work(server)
        yield server
    finally:
        server.stop()


def agent(server: ServeProcess, name: str) -> HttpClient:
    client = server.client()
    client.name = name
    client.initialize()
    return client


def _work(server: ServeProcess) -> None:
    claude, cursor, codex = (agent(server, name) for name in ("claude-code", "cursor", "codex"))
    wait_for(lambda: _is_ready(claude), 60)
    first = "def total(lines):\n    return sum(line.price for line in lines)\n"
    with_tax = "def total(lines, tax=0.19):\n    return sum(line.price for line in lines) * (1 + tax)\n"
    codex.call("safe_write", {"path": "README.md", "content": "# Shop\n\nInvoices and carts.\n"})
    claude.call("safe_write", {"path": "src/invoices.py", "content": first})
    claude.call("safe_write", {"path": "src/cart.py", "content": "class Cart:\n    pass\n"})
    claude.call("safe_write", {"path": "src/invoices.py", "content": with_tax, "mode": "overwrite"})
    files = ("tests/test_cart.py", "tests/test_invoices.py", "tests/conftest.py")
    claude.call(
        "transaction",
        {"ops": [{"op": "write", "path": path, "content": "import pytest\n"} for path in files]},
    )
    cursor.call("transaction", {"ops": [{"op": "move", "path": "src/cart.py", "to": "src/basket.py"}]})
    cursor.call("safe_write", {"path": "src/orders.py", "content": "ORDERS = []\n"})
    for number in range(30):
        claude.call("notes__add", {"text": f"note {number}"})
        codex.call("notes__search", {"text": str(number)})
        cursor.call("read", {"path": "README.md"})
    codex.call("safe_write", {"path": ".env", "content": f"GITHUB_TOKEN={TOKEN}\n", "render": "json"})
    cursor.call("edit", {"path": "README.md", "edits": [{"old": "nowhere", "new": "x"}], "render": "json"})
    codex.call("safe_write", {"path": "README.md", "content": "again\n", "render": "json"})
    codex.call("set_state", {"key": "plan/invoices", "value": '{"owner": "claude-code", "step": 2, "of": 5}'})
    claude.call("set_state", {"key": "plan/carts", "value": '{"owner": "cursor", "step": 1, "of": 3}'})
    codex.call("lease", {"action": "acquire", "name": "deploy", "owner": "codex"})
    codex.call("scratch_put", {"content": "build log", "label": "last build"})
    codex.call("checkpoint", {"name": "before-release", "data": {"step": 2}})
    read = claude.call("read", {"path": "src/invoices.py", "render": "json", "detail": "full"})
    steps = [
        {"id": "tax", "description": "Add tax to invoices", "depends_on": [], "status": "done"},
        {"id": "rounding", "description": "Round to cents", "depends_on": ["tax"], "status": "pending"},
    ]
    envelope = {
        "task_id": "invoices",
        "status": "partial",
        "agent": "claude-code",
        "summary": "Invoices have tax now. Rounding to cents is not done yet.",
        "next_steps": ["Round totals to cents", "Port the PDF export"],
        "last_good_state": [{"path": "src/invoices.py", "sha256": read["structuredContent"]["sha256"]}],
        "steps": steps,
    }
    claude.call(
        "handoff_write", {"envelope": envelope, "body": "The tax rate is a default argument for now."}
    )
    cursor.call("edit", {"path": "src/invoices.py", "edits": [{"old": "0.19", "new": "0.20"}]})
    cursor.call("undo", {"path": "src/orders.py"})
    _run_shell_commands(server)
    cursor.call(
        "reserve", {"action": "acquire", "paths": ["src/billing", "assets/**"], "reason": "split the billing"}
    )
    codex.call("reserve", {"action": "acquire", "paths": ["plans/*.md"], "mode": "shared"})
    claude.call("notes__add", {"text": "crash"})
    codex.call("notes__search", {"text": "back"})


def _run_shell_commands(server: ServeProcess) -> None:
    """Two turns of a client whose hooks record its shell."""
    commands = (
        ("main", "sed -i 's/price/net_price/' src/invoices.py"),
        ("main", "mkdir -p docs && printf 'Prices are net.\\n' > docs/prices.md"),
        ("tester", "printf 'def test_total(): ...\\n' >> tests/test_invoices.py"),
        ("main", "rm -rf tests"),
    )
    for number, (agent_name, command) in enumerate(commands):
        if number % 2 == 0:
            _send_hook(server, "UserPromptSubmit", prompt="go on")
        call = {
            "tool_name": "Bash",
            "tool_use_id": f"call-{number}",
            "tool_input": {"command": command},
            "tool_response": {},
            **({"agent_id": agent_name, "agent_type": agent_name} if agent_name != "main" else {}),
        }
        _send_hook(server, "PreToolUse", **call)
        subprocess.run(["sh", "-c", command], cwd=server.workspace, check=True)
        _send_hook(server, "PostToolUse", **call)


def _send_hook(server: ServeProcess, event: str, **more: Any) -> None:
    folder = str(server.workspace)
    fields = {"hook_event_name": event, "session_id": "0b5e9d1c-shell", "cwd": folder, **more}
    subprocess.run(
        [sys.executable, "-P", "-m", "perdure", "hook", "journal", "--client", "claude-code"],
        input=json.dumps(fields).encode(),
        cwd=folder,
        env={**os.environ, "PERDURE_HOME": str(server.root / "home"), "CLAUDE_PROJECT_DIR": folder},
        check=True,
    )


def _is_ready(client: HttpClient) -> bool:
    """So that no call counts the start of its server."""
    found = client.call("health", {"render": "json", "detail": "full"})["structuredContent"]["mounts"]
    return all(row["state"] == "ready" for row in found if row["name"] != "search")


def pages(server: ServeProcess, browser: Any) -> list[str]:
    """All addresses, with those of one session and one draft."""
    page = browser.new_page()
    found = list(PAGES)
    for path, pattern in (("/sessions", r"/sessions/session\?[^\"]*"), ("/drafts", r"/drafts/draft\?[^\"]*")):
        page.goto(f"http://127.0.0.1:{server.port}{path}")
        addresses = re.findall(pattern, page.content())
        if addresses:
            found.append(unescape(addresses[-1]))
    page.close()
    return found


def file_name(path: str) -> str:
    """Two servers are two pictures; the other pages are shown once."""
    path = path.replace("?name=", "/").split("?")[0]
    return re.sub(r"\W+", "-", path).strip("-") or "overview"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "dashboard")
    parser.add_argument("--docs", action="store_true", help="only the picture of the documentation")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        sample(Path(folder), with_broken=not options.docs) as server,
        chromium() as browser,
    ):
        home = f"http://127.0.0.1:{server.port}"
        if options.docs:
            DOCS.parent.mkdir(parents=True, exist_ok=True)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(home)
            page.get_by_text("Live", exact=True).wait_for()
            page.wait_for_timeout(3000)  # some seconds of calls for the charts
            page.screenshot(path=DOCS)
            return
        options.folder.mkdir(parents=True, exist_ok=True)
        addresses = pages(server, browser)
        for width in WIDTHS:
            for scheme in SCHEMES:
                context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
                page = context.new_page()
                for path in addresses:
                    page.goto(home + path)
                    page.screenshot(
                        path=options.folder / f"{file_name(path)}-{scheme}-{width}.png", full_page=True
                    )
                context.close()
    print(f"{len(addresses) * len(WIDTHS) * len(SCHEMES)} pictures in {options.folder}")


if __name__ == "__main__":
    main()

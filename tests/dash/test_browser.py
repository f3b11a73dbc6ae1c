"""The dashboard in a real Chromium: nothing on its console, live, by keyboard, in the dark, and for screen readers.

Screenshots of every page are left in `tests/dash/screenshots/`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from visitor import PAGES, agent, furnish

from perdure.testing.http_client import HttpClient, ServeProcess

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURES = Path(__file__).parent / "screenshots"
AXE = "axe-core@4"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here: apt-get install chromium to run the browser tests"
    ),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("seen"), "--mount", "broken=false")
    furnish(agent(process))
    yield process
    assert process.stop() == 0


class Window:
    """A page in the browser that keeps what went wrong in it."""

    def __init__(self, browser: Any, port: int, **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self._home = f"http://127.0.0.1:{port}"
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def open(self, path: str) -> None:
        self.page.goto(self._home + path)

    def wait_until_live(self) -> None:
        self.page.get_by_text("Live", exact=True).wait_for()

    def picture(self, name: str) -> None:
        PICTURES.mkdir(exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def background(self) -> str:
        return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def window(chromium: Any, lived_in: ServeProcess) -> Iterator[Window]:
    made = Window(chromium, lived_in.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The accessibility checker's own source."""
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed: the accessibility check needs axe-core from there")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run([npm, "pack", AXE], cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"npm could not fetch axe-core: {done.stderr[-300:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        found = archive.extractfile("package/axe.min.js")
        assert found is not None
        return found.read().decode()


def name_of(path: str) -> str:
    return re.sub(r"\W+", "-", path.split("?")[0]).strip("-") or "overview"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_without_a_word_on_the_console(window: Window, path: str) -> None:
    window.open(path)
    if window.page.locator("body[data-live]").count():
        window.wait_until_live()
    assert window.page.locator("h1").count() == 1
    window.picture(name_of(path))
    assert window.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(chromium: Any, lived_in: ServeProcess, axe: str, scheme: str) -> None:
    window = Window(chromium, lived_in.port, bypass_csp=True, color_scheme=scheme)
    for path in PAGES:
        window.open(path)
        window.page.evaluate(axe)
        found = window.page.evaluate("axe.run()")
        assert found["passes"], path
        said = [f"{one['id']}: {[node['html'] for node in one['nodes']]}" for one in found["violations"]]
        assert said == [], path
    window.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_where_people_sign_in(chromium: Any, tmp_path: Path, axe: str, scheme: str) -> None:
    process = ServeProcess(tmp_path, env={"PERDURE_TOKEN": "open sesame"})
    window = Window(chromium, process.port, bypass_csp=True, color_scheme=scheme)
    window.open("/sign-in")
    for wrong in (False, True):
        if wrong:
            window.page.get_by_label("Token").fill("wrong")
            window.page.get_by_role("button", name="Sign in").click()
            window.page.get_by_role("alert").wait_for()
        window.page.evaluate(axe)
        found = window.page.evaluate("axe.run()")
        assert [one["id"] for one in found["violations"]] == []
        assert found["passes"]
    window.close()
    assert process.stop() == 0


def test_axe_would_find_something(chromium: Any, lived_in: ServeProcess, axe: str) -> None:
    window = Window(chromium, lived_in.port, bypass_csp=True)
    window.open("/state")
    window.page.evaluate("document.documentElement.removeAttribute('lang')")
    window.page.evaluate(axe)
    assert "html-has-lang" in {one["id"] for one in window.page.evaluate("axe.run()")["violations"]}
    window.close()


def test_a_write_appears_without_reloading(window: Window, lived_in: ServeProcess) -> None:
    client: HttpClient = agent(lived_in, "live writer")
    window.open("/journal")
    window.wait_until_live()
    window.page.evaluate("window.isSamePage = true")
    client.call("safe_write", {"path": "appears.txt", "content": "now\n", "mode": "overwrite"})
    window.page.locator("code", has_text="appears.txt").first.wait_for()
    assert window.page.evaluate("window.isSamePage")
    assert window.wrong == []


def test_undo_by_click_brings_the_file_back(window: Window, lived_in: ServeProcess) -> None:
    client = agent(lived_in, "mistaken")
    client.call("safe_write", {"path": "dear.txt", "content": "precious\n"})
    client.call("safe_write", {"path": "dear.txt", "content": "ruined\n", "mode": "overwrite"})
    file = lived_in.workspace / "dear.txt"
    window.open("/journal?path=dear.txt")
    window.page.get_by_role("link", name="Undo change").first.click()
    assert "-ruined" in window.page.locator(".diff").inner_text()
    assert file.read_text() == "ruined\n"
    window.page.get_by_role("button", name="Undo now").click()
    window.page.get_by_text("The change was taken back.").wait_for()
    assert file.read_text() == "precious\n"
    assert window.wrong == []


def test_what_somebody_types_is_not_swapped_away(window: Window, lived_in: ServeProcess) -> None:
    client = agent(lived_in)
    window.open("/journal")
    window.wait_until_live()
    field = window.page.get_by_label("Path")
    field.fill("half a wo")
    client.call("safe_write", {"path": "meanwhile.txt", "content": "x\n", "mode": "overwrite"})
    window.page.locator("code", has_text="meanwhile.txt").first.wait_for()
    assert field.input_value() == "half a wo"


def test_the_theme_follows_the_system_and_the_button(chromium: Any, lived_in: ServeProcess) -> None:
    window = Window(chromium, lived_in.port, color_scheme="dark")
    window.open("/")
    dark = window.background()
    window.picture("overview-dark")
    window.page.get_by_role("button", name="Theme: light or dark").click()
    light = window.background()
    assert light != dark
    window.open("/state")
    assert window.background() == light
    window.close()


def test_everything_is_reached_by_keyboard(window: Window) -> None:
    window.open("/mounts")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.textContent") == "Skip to content"
    window.page.keyboard.press("Enter")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.closest('main') !== null")
    window.page.get_by_role("button", name="Restart perdure").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_url("**/mounts")
    assert window.wrong == []


def test_signing_in_opens_the_pages(chromium: Any, tmp_path: Path) -> None:
    process = ServeProcess(tmp_path, env={"PERDURE_TOKEN": "open sesame"})
    window = Window(chromium, process.port)
    window.open("/journal")
    window.picture("sign-in")
    window.page.get_by_label("Token").fill("open sesame")
    window.page.get_by_role("button", name="Sign in").click()
    window.wait_until_live()
    assert "sesame" not in window.page.url
    window.page.get_by_role("button", name="Sign out").click()
    window.page.get_by_label("Token").wait_for()
    assert window.wrong == []
    window.close()
    assert process.stop() == 0


def test_a_restart_of_the_server_is_seen_through(chromium: Any, tmp_path: Path) -> None:
    process = ServeProcess(tmp_path)
    window = Window(chromium, process.port)
    window.open("/journal")
    window.wait_until_live()
    process.restart()
    agent(process).call("safe_write", {"path": "after.txt", "content": "x\n"})
    window.page.locator("code", has_text="after.txt").first.wait_for()
    window.close()
    assert process.stop() == 0

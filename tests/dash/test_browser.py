"""The dashboard in a real Chromium: nothing on its console, live, by keyboard, in the dark, and for screen readers.

Screenshots of every page are left in `tests/dash/screenshots/`.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from visitor import agent

from harness.dashboard_pictures import SCHEMES, WIDTHS, chromium_path, file_name, pages, sample
from harness.dashboard_pictures import chromium as open_chromium
from perdure.testing.http_client import HttpClient, ServeProcess

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PICTURES = Path(__file__).parent / "screenshots"
AXE = "axe-core@4"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        chromium_path() is None, reason="no Chromium here: apt-get install chromium to run the browser tests"
    ),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """With sample data on every page, and a server that keeps failing."""
    with sample(tmp_path_factory.mktemp("seen")) as process:
        yield process


@pytest.fixture(scope="module")
def addresses(lived_in: ServeProcess, chromium: Any) -> list[str]:
    return [*pages(lived_in, chromium), "/state?lease=deploy", "/file/compare?path=src/invoices.py&from=2"]


class Window:
    """A page in the browser that keeps what went wrong in it."""

    def __init__(self, browser: Any, port: int, width: int = 1280, **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 844}, **context)
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


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_its_window_without_a_word_on_the_console(
    chromium: Any, lived_in: ServeProcess, addresses: list[str], width: int, scheme: str
) -> None:
    window = Window(chromium, lived_in.port, width, color_scheme=scheme)
    for path in addresses:
        window.open(path)
        if window.page.locator("body[data-live]").count():
            window.wait_until_live()
        assert window.page.locator("h1").count() == 1
        window.picture(f"{file_name(path)}-{scheme}-{width}")
        wide = window.page.evaluate(
            """[...document.querySelectorAll("body *")].filter((one) => {
              if (one.closest("nav, pre, .skip, .unseen, thead")) return false;
              return one.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
            }).map((one) => one.outerHTML.slice(0, 120))"""
        )
        assert wide == [], path
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert [said for said in window.wrong if "404" not in said] == []
    window.close()


def test_the_header_is_small_on_a_narrow_screen(chromium: Any, lived_in: ServeProcess) -> None:
    window = Window(chromium, lived_in.port, 390)
    window.open("/registry")
    assert window.page.locator("header").bounding_box()["height"] < 110
    place = window.page.locator("nav [aria-current]").bounding_box()
    assert place["x"] >= 0
    assert place["x"] + place["width"] <= 390
    window.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(
    chromium: Any, lived_in: ServeProcess, addresses: list[str], axe: str, width: int, scheme: str
) -> None:
    window = Window(chromium, lived_in.port, width, bypass_csp=True, color_scheme=scheme)
    for path in addresses:
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
    window.page.get_by_text("1 change was undone.").wait_for()
    assert file.read_text() == "precious\n"
    assert window.wrong == []


def test_what_somebody_types_is_not_swapped_away(window: Window, lived_in: ServeProcess) -> None:
    client = agent(lived_in)
    window.open("/journal")
    window.wait_until_live()
    field = window.page.get_by_label("Path contains")
    field.fill("half a wo")
    client.call("safe_write", {"path": "meanwhile.txt", "content": "x\n", "mode": "overwrite"})
    window.page.locator("code", has_text="meanwhile.txt").first.wait_for()
    assert field.input_value() == "half a wo"
    # nor when they look elsewhere before it is sent
    field.blur()
    client.call("safe_write", {"path": "later.txt", "content": "x\n", "mode": "overwrite"})
    window.page.locator("code", has_text="later.txt").first.wait_for()
    assert field.input_value() == "half a wo"


def test_rows_do_not_move_under_the_pointer(window: Window, lived_in: ServeProcess) -> None:
    # given a pointer over a row of the journal
    client = agent(lived_in)
    client.call("safe_write", {"path": "aimed-at.txt", "content": "x\n", "mode": "overwrite"})
    window.open("/journal")
    window.wait_until_live()
    row = window.page.locator("tr", has_text="aimed-at.txt").first
    row.hover()
    before = row.bounding_box()
    # when changes come
    for number in (1, 2):
        client.call("safe_write", {"path": f"new-{number}.txt", "content": "x\n", "mode": "overwrite"})
    bar = window.page.get_by_role("button", name="2 new changes")
    bar.wait_for()
    # then the rows stay, until the bar is pressed
    assert window.page.get_by_text("new-2.txt").count() == 0
    assert row.bounding_box()["height"] == before["height"]
    bar.dispatch_event(
        "click"
    )  # with a mouse the pointer would leave the row, and the page would follow by itself
    window.page.locator("tr", has_text="new-2.txt").first.wait_for()
    assert bar.count() == 0
    assert window.wrong == []


def test_ticked_changes_are_undone_with_one_preview(window: Window, lived_in: ServeProcess) -> None:
    client = agent(lived_in, "hasty")
    for name in ("one", "two"):
        client.call("safe_write", {"path": f"hasty-{name}.txt", "content": "x\n"})
    window.open("/journal?client=hasty")
    button = window.page.get_by_role("button", name="Undo selected")
    assert not button.is_visible()
    for box in window.page.get_by_role("checkbox").all():
        box.check()
    button.click()
    window.page.get_by_text("2 changes in 2 files will be undone").wait_for()
    window.page.get_by_role("button", name="Undo now").click()
    window.page.get_by_text("2 changes were undone.").wait_for()
    assert not (lived_in.workspace / "hasty-one.txt").exists()
    assert window.wrong == []


def test_recent_times_are_relative_and_name_their_zone(window: Window, lived_in: ServeProcess) -> None:
    agent(lived_in).call("safe_write", {"path": "timed.txt", "content": "x\n"})
    window.open("/journal?path=timed.txt")
    time = window.page.locator("tbody time").first
    assert time.inner_text().endswith(("just now", "s ago"))
    assert "UTC" in time.get_attribute("title")


def test_the_theme_goes_through_auto_light_and_dark_and_says_which(
    chromium: Any, lived_in: ServeProcess
) -> None:
    window = Window(chromium, lived_in.port, color_scheme="dark")
    window.open("/")
    button = window.page.locator("#theme")
    seen = {}
    for theme in ("auto", "light", "dark", "auto"):
        assert button.inner_text() == f"Theme: {theme}"
        seen[theme] = window.background()
        button.click()
    assert seen["auto"] == seen["dark"] != seen["light"]
    window.open("/state")  # the choice is kept
    assert button.inner_text() == "Theme: light"
    assert window.background() == seen["light"]
    window.close()


def test_everything_is_reached_by_keyboard(window: Window) -> None:
    window.open("/mounts/server?name=perdure")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.textContent") == "Skip to content"
    window.page.keyboard.press("Enter")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.closest('main') !== null")
    window.page.get_by_role("button", name="Restart perdure").focus()
    window.page.keyboard.press("Enter")
    window.page.wait_for_url("**/mounts/server?name=perdure&done=restart")
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

"""The pictures of the documents: the recording is drawn from lines of output, and both are small enough for a page."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_demo", DOCS / "record_demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_every_line_is_drawn_and_a_long_one_is_wrapped(recorder: ModuleType) -> None:
    drawn = texts(recorder.draw(["$ perdure demo", "", "  a <b> & c", "word " * 40], "A run"))
    assert drawn[:2] == ["$ perdure demo", "\u00a0 a <b> & c"]
    assert " ".join(drawn[2:]).split() == ["word"] * 40
    assert max(map(len, drawn)) <= recorder.COLUMNS


def test_the_recording_shows_the_whole_demo_and_is_small() -> None:
    picture = (DOCS / "pictures" / "demo.svg").read_bytes()
    assert len(picture) < 100_000
    drawn = texts(picture.decode())
    assert drawn[0] == "$ perdure demo"
    assert any("kill -9" in line for line in drawn)
    assert any("every promise held" in line.lower() for line in drawn[-3:])


def test_the_recording_of_the_rescue_ends_with_the_files_back() -> None:
    picture = (DOCS / "pictures" / "rescue.svg").read_bytes()
    assert len(picture) < 100_000
    drawn = [line.replace("\u00a0", " ") for line in texts(picture.decode())]
    gone, back = (number for number, line in enumerate(drawn) if line == "$ ls src")
    assert "ls: " in drawn[gone + 1]
    assert drawn[back + 1].split() == ["app.py", "util.py"]


def test_the_screenshot_is_a_picture() -> None:
    picture = (DOCS / "pictures" / "dashboard.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 500_000

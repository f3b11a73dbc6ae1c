"""Bars for what takes longer than a second: on a terminal only, on standard error only, and gone at the end."""

from __future__ import annotations

import io
import json

import pytest
from commands import Terminal, perdure

from perdure.cli import output
from perdure.cli.output import Progress
from testbed import Bed


class Screened(io.StringIO):
    """A terminal of sorts, for the drawing alone."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, after: float, out: io.StringIO | None = None) -> str:
    monkeypatch.setattr(output, "AFTER_S", after)
    monkeypatch.setattr(output, "EVERY_S", 0.0)
    out = Screened() if out is None else out
    with Progress(out, io.StringIO()) as bar:
        for number in range(1, 101):
            bar.at("journal", number, 100)
    return out.getvalue()


def test_it_shows_how_far_it_is_and_leaves_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = drawn(monkeypatch, 0.0)
    assert "journal  ████████████░░░░░░░░░░░░  50%  50 of 100" in shown
    assert shown.endswith("\r\x1b[K")


def test_what_is_over_in_a_moment_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 3600.0) == ""


def test_what_is_no_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 0.0, io.StringIO()) == ""


def test_a_bar_does_not_stand_among_the_lines_of_an_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "AFTER_S", 0.0)
    out = Screened()
    with Progress(out, Screened()) as bar:
        bar.at("export", 1)
    assert out.getvalue() == ""


@pytest.fixture
def at_once(bed: Bed) -> dict[str, str]:
    """An environment in which bars are shown from the beginning."""
    folder = bed.root / "at-once"
    folder.mkdir()
    code = "from perdure.cli import output\noutput.AFTER_S = output.EVERY_S = 0.0\n"
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder)}


@pytest.mark.thorough
def test_verify_and_import_show_theirs_on_a_terminal_and_say_the_same_in_the_end(
    bed: Bed, at_once: dict[str, str]
) -> None:
    client = bed.run()
    for number in range(5):
        client.use("safe_write", {"path": f"f{number}", "content": "x\n"})
    lines = "".join(json.dumps({"key": f"k{n}", "value": "1"}) + "\n" for n in range(300))
    (bed.workspace / "keys.jsonl").write_text(lines)

    verified = Terminal(bed, "verify", **at_once)
    assert verified.end() == 0
    imported = Terminal(bed, "state", "import", "keys.jsonl", **at_once)
    assert imported.end() == 0

    for stage in ("journal  ", "5 of 5", "contents  ", "files  "):
        assert stage in verified.shown
    assert verified.shown.rstrip().endswith("\x1b[Ksound  5 writes")
    assert "import  " in imported.shown
    assert "100%" in imported.shown
    assert imported.shown.rstrip().endswith("imported 300  skipped 0")
    piped = perdure(bed, "verify", **at_once)
    assert (piped.stdout, piped.stderr) == ("sound  5 writes\n", "")
    exported = perdure(bed, "state", "export", **at_once)
    assert len(exported.stdout.splitlines()) == 300
    assert exported.stderr == ""

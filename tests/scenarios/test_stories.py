"""Every story that the layers exist for ends well with Perdure, and worse with a server that only writes files."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.stories.__main__ import lines, told
from harness.stories.agents import Plain
from harness.stories.eight import STORIES, Story

pytestmark = pytest.mark.thorough

# Where a plain server has the same ending, it takes more calls or more bytes to get there.
SAME_ENDING = {"a large write is cut", "a file too large for one call", "a worker killed in the middle"}


@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_a_story_ends_better(story: Story, tmp_path: Path) -> None:
    with_perdure, plain = told(story, tmp_path)
    print("\n".join(lines(story, with_perdure, plain)))
    assert with_perdure.is_good, with_perdure.end
    assert with_perdure.resent == 0
    assert plain.is_good is (story.name in SAME_ENDING), plain.end
    if plain.is_good:
        assert plain.calls > with_perdure.calls
    assert plain.calls + plain.resent > with_perdure.calls or not plain.is_good


def test_there_are_eight_stories_and_the_document_tells_each() -> None:
    document = (Path(__file__).resolve().parents[2] / "docs/explanation/scenarios.md").read_text()
    assert len(STORIES) == 8
    assert [story.name for story in STORIES if story.name not in document.lower()] == []


def test_the_plain_server_dies_in_the_middle_of_a_file(tmp_path: Path) -> None:
    """Otherwise the stories would show nothing."""
    agent = Plain(tmp_path / "plain", die_after=10_000)
    assert agent.use("write_file", path="a", content="x" * 30_000) is None
    assert 0 < len(agent.text("a")) < 30_000
    assert agent.use("write_file", path="a", content="x" * 30_000) == "written"
    assert agent.resent == 30_000
    agent.close()

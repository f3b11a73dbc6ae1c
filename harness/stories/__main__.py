"""Replays the stories and prints both endings side by side."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.stories.agents import PLAIN, Outcome
from harness.stories.eight import STORIES, Story


def told(story: Story, folder: Path, command: Sequence[str] = PLAIN) -> tuple[Outcome, Outcome]:
    """With Perdure, and without."""
    return story.perdure(folder / "perdure"), story.plain(folder / "plain", command)


def lines(story: Story, with_perdure: Outcome, plain: Outcome) -> list[str]:
    found = [story.name]
    for name, one in (("perdure", with_perdure), ("plain", plain)):
        seconds = f"{one.seconds:6.2f} s" if one.is_good else "   never"
        found.append(f"  {name:8} {one.calls:3} calls  {one.resent:9,} bytes again  {seconds}  {one.end}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="The failures that the layers exist for, told twice.")
    parser.add_argument(
        "--plain", metavar="COMMAND", help="a file server; its folder is added to the command"
    )
    parser.add_argument("--story", type=int, metavar="N", help=f"only this one, 1 to {len(STORIES)}")
    options = parser.parse_args()
    command = tuple(shlex.split(options.plain)) if options.plain else PLAIN
    is_good = True
    for number, story in enumerate(STORIES, 1):
        if options.story in (None, number):
            with tempfile.TemporaryDirectory() as folder:
                pair = told(story, Path(folder), command)
            print("\n".join(lines(story, *pair)), flush=True)
            is_good &= pair[0].is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

"""The registry's reading commands understand simple options without a parser, and exactly as the parser does."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module

import pytest

from perdure.cli.registry import COMMANDS, _options, add_shared

QUICK = [name for name, (module, _) in COMMANDS.items() if hasattr(import_module(module), "QUICK")]
WORDS: list[list[str]] = [
    [],
    ["a"],
    ["--json"],
    ["--json", "a"],
    ["a", "--registry", "x.md"],
    ["--workspace", "/tmp", "--json", "a"],
    ["--registry=x.md", "a"],
    ["--reg", "x.md", "a"],
    ["a", "b"],
    ["--nothing"],
    ["--registry"],
]


def parsed(name: str, words: list[str]) -> dict[str, object] | None:
    module = import_module(COMMANDS[name][0])
    parser = argparse.ArgumentParser(prog="x")
    add_shared(parser)
    module.add(parser)
    try:
        return vars(parser.parse_args(words))
    except SystemExit:
        return None


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize("name", QUICK)
def test_the_short_cut_gives_what_the_parser_gives(name: str, words: list[str]) -> None:
    module = import_module(COMMANDS[name][0])
    expected = parsed(name, words)
    if expected is None:
        with pytest.raises(SystemExit):
            _options(module, name, words)
    else:
        assert vars(_options(module, name, words)) == expected


@pytest.mark.parametrize("words", [["list"], ["validate"], ["refresh-capabilities"]])
def test_a_reading_command_loads_no_parser_and_nothing_it_does_not_use(words: list[str]) -> None:
    source = (
        "import sys\n"
        "from perdure.cli.main import main\n"
        f"main(['registry', *{words!r}])\n"
        "heavy = {'argparse', 'typing_extensions', 'inspect', 'ruamel', 'asyncio', 'ssl', 'apsw', 'difflib'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_list_and_show_and_validate_take_it() -> None:
    assert {"list", "show", "validate"} <= set(QUICK)

"""How many of the formats in public rule sets the risk check finds.

    python -m harness.corpora.public_rules gitleaks.toml RULES_FOLDER… [--missed]

A TOML file is a configuration of gitleaks: for each rule some secrets are made from its pattern, and for a rule that asks
for a vendor's name they are assigned to it. A folder has rules in YAML with examples, as Nosey Parker and Kingfisher keep
them. A rule counts as found if the risk check warns of most of its examples. The rule sets are not part of this project:
fetch them from their repositories.
"""

from __future__ import annotations

import argparse
import random
import re
import re._parser as regex_parser  # type: ignore[import-not-found]
import string
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from perdure import risk

SAMPLES: Final = 5
MOST_REPEATS: Final = 60
PRINTABLE: Final = string.ascii_letters + string.digits + "-_+/.=~"
_ASSIGNED: Final = "(?:=|>|:{1,3}=|"
_CLASSES: Final = {"[[:alnum:]]": "[A-Za-z0-9]", "[:alnum:]": "A-Za-z0-9", "\\z": "\\Z"}


class Sampler:
    """Makes texts that match a pattern."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def sample(self, pattern: str) -> str:
        for old, new in _CLASSES.items():
            pattern = pattern.replace(old, new)
        flags = "".join(re.findall(r"\(\?([a-z]+)\)", pattern))
        pattern = re.sub(r"\(\?[a-z]+\)", "", pattern)
        pattern = re.sub(r"\(\?([a-z]*)-[a-z]+:", "(?:", pattern)
        prefix = f"(?{flags})" if flags else ""
        return "".join(self._parts(regex_parser.parse(prefix + pattern)))

    def _parts(self, items: Any) -> Iterator[str]:
        for operation, argument in items:
            match str(operation):
                case "LITERAL":
                    yield chr(argument)
                case "NOT_LITERAL":
                    yield self._random.choice([c for c in PRINTABLE if c != chr(argument)])
                case "ANY":
                    yield self._random.choice(PRINTABLE)
                case "IN":
                    yield self._random.choice(sorted(self._characters(argument)))
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    low, high, inner = argument
                    most = min(int(high), max(int(low), MOST_REPEATS))
                    for _ in range(self._random.randint(int(low), most)):
                        yield from self._parts(inner)
                case "SUBPATTERN":
                    yield from self._parts(argument[3])
                case "BRANCH":
                    yield from self._parts(self._random.choice(argument[1]))

    def _characters(self, items: Any) -> set[str]:
        chosen: set[str] = set()
        is_negated = False
        for operation, argument in items:
            match str(operation):
                case "NEGATE":
                    is_negated = True
                case "LITERAL":
                    chosen.add(chr(argument))
                case "RANGE":
                    chosen |= {chr(code) for code in range(argument[0], argument[1] + 1)}
                case "CATEGORY":
                    chosen |= {c for c in PRINTABLE if _is_in_category(c, str(argument))}
        return set(PRINTABLE) - chosen if is_negated else chosen or {" "}


def _is_in_category(character: str, category: str) -> bool:
    name = category.rpartition("_")[2].lower()
    is_in = {"digit": str.isdigit, "space": str.isspace}.get(name, lambda c: c.isalnum() or c == "_")(
        character
    )
    return is_in != ("NOT" in category)


def gitleaks_examples(path: Path) -> Iterator[tuple[str, list[str]]]:
    sampler = Sampler(1)
    for rule in tomllib.loads(path.read_text())["rules"]:
        if "regex" not in rule:
            continue
        examples = []
        for _ in range(SAMPLES):
            try:
                examples.append(_gitleaks_example(sampler, rule))
            except re.error:
                break
        yield rule["id"], examples


def _gitleaks_example(sampler: Sampler, rule: Mapping[str, Any]) -> str:
    pattern = rule["regex"]
    if _ASSIGNED in pattern:
        value = pattern.partition("{0,5}(")[2].rpartition(")(?:")[0]
        return f'{rule["keywords"][0]}_api_key = "{sampler.sample(value)}"'
    return f'value = "{sampler.sample(pattern)}"'


def yaml_examples(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for path in sorted(folder.rglob("*.y*ml")):
        for rule in YAML(typ="safe", pure=True).load(path.read_text())["rules"]:
            if examples := [str(example) for example in rule.get("examples") or ()]:
                yield rule["id"], examples


def is_found(text: str) -> bool:
    return risk.scan(text).verdict in ("medium", "high")


def main() -> int:
    parser = argparse.ArgumentParser(description="Formats of public rule sets that the risk check finds.")
    parser.add_argument("sources", nargs="+", type=Path, metavar="FILE|FOLDER")
    parser.add_argument("--missed", action="store_true", help="list the rules that are not found")
    options = parser.parse_args()
    for source in options.sources:
        rules = list(yaml_examples(source) if source.is_dir() else gitleaks_examples(source))
        missed = [
            (name, examples) for name, examples in rules if sum(map(is_found, examples)) * 2 <= len(examples)
        ]
        print(
            f"{source.name}: {len(rules) - len(missed)} of {len(rules)} ({1 - len(missed) / len(rules):.1%})"
        )
        for name, examples in missed if options.missed else ():
            print(f"    {name}  {examples[0][:100]!r}" if examples else f"    {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

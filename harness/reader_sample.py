"""A random sample of what people and models read, for a reader to judge: `python -m harness.reader_sample --seed 1`.

Prints sentences drawn from documents, help texts, tool texts and errors, then counts pronouns used as the subject of
a clause. Each sentence should have a component or the reader as its subject and be clear at the first reading.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = ROOT / "docs" / "reference"
PRONOUNS: Final = ("who", "whoever", "nobody", "somebody")
MIN_WORDS: Final = 4

# A pronoun is a subject where a clause begins with it: at the start, after punctuation or after a conjunction.
# "the person who asked", "of somebody else" and "one change: who made it, and when" do not match.
_CONJUNCTION: Final = r"\b(?:and|or|but|that|than|since|because|where|when|if|while|as|what) "
_VERB: Final = r"(?! else\b)(?= \w)"
_SUBJECT: Final = re.compile(
    rf"(?:^|[.;,—–] ?|{_CONJUNCTION})(who)\b{_VERB}"
    rf"|(?:^|[.:;,(—–] ?|{_CONJUNCTION})(whoever|nobody|somebody)\b{_VERB}",
    re.I,
)
_LIST: Final = re.compile(r"(?:[^\s,]+, )+[^\s,]+\.?")  # names between commas are no sentence


class Sentence(NamedTuple):
    source: str
    text: str


def read_sentences() -> dict[str, list[Sentence]]:
    """Every sentence by group: docs, help texts, tool texts, errors."""
    generated = {"commands.md", "tools.md", "reasons.md", "errors.md"}
    documents = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    written = [path for path in documents if path.name not in generated]
    return {
        "docs": [sentence for path in written for sentence in read_document(path)],
        "help texts": list(read_help_texts()),
        "tool texts": read_document(REFERENCE / "tools.md"),
        "errors": [*read_document(REFERENCE / "reasons.md"), *read_document(REFERENCE / "errors.md")],
    }


def read_document(path: Path) -> list[Sentence]:
    """The sentences of a Markdown file: paragraphs, list items and table cells, without code blocks."""
    source = path.relative_to(ROOT).as_posix()
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->|<[^>\n]+>", "", text, flags=re.S)
    blocks: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            blocks += ["", *re.split(r"(?<!\\)\|", line.strip().strip("|")), ""]
        elif not line.strip() or line.startswith(("#", "    ")):
            blocks.append("")
        elif re.match(r"\s*(?:[-*]|\d+\.) ", line):
            blocks += ["", re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line)]
        elif blocks:
            blocks[-1] = f"{blocks[-1]} {line.strip()}".strip()
        else:
            blocks.append(line.strip())
    return [Sentence(source, sentence) for block in blocks for sentence in split_sentences(block)]


def read_help_texts() -> Iterator[Sentence]:
    from perdure.cli.completion import places, tree

    seen: set[str] = set()
    for place, node in places(tree()):
        source = f"perdure {place.strip('/').replace('/', ' ')}".strip()
        for text in [node.help, *(option.help for option in node.options)]:
            for sentence in split_sentences(text):
                if sentence not in seen:  # many commands share an option
                    seen.add(sentence)
                    yield Sentence(source, sentence)


def split_sentences(text: str) -> Iterator[str]:
    """Sentences of at least four words, with the text of each link in place of the link."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text.replace("**", "")).strip(" >")
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"(])", plain):
        words = re.sub(r"`[^`]*`", "", sentence).split()
        if len(sentence.split()) >= MIN_WORDS and len(words) > 1 and not _LIST.fullmatch(sentence.strip()):
            yield sentence.strip()


def find_subjects(sentences: Iterable[Sentence]) -> list[tuple[str, Sentence]]:
    """Each pronoun that is the subject of a clause, with its sentence. A question may begin with one."""
    return [
        ((match[1] or match[2]).lower(), sentence)
        for sentence in sentences
        if not sentence.text.rstrip('"*').endswith("?")
        for match in _SUBJECT.finditer(sentence.text)
    ]


def read_comments() -> list[Sentence]:
    """Comments and docstrings of the code: counted, not drawn."""
    found: list[Sentence] = []
    for folder in ("src", "harness", "bench"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.relative_to(ROOT).as_posix()
            tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
            for token in tokens:
                if token.type == tokenize.COMMENT or (
                    token.type == tokenize.STRING and token.string.startswith('"""')
                ):
                    text = " ".join(token.string.strip('#"').split())
                    found += [Sentence(source, sentence) for sentence in split_sentences(text)]
    return found


def draw(groups: dict[str, list[Sentence]], count: int, seed: int) -> list[Sentence]:
    """The same number from each group, so that a large one does not crowd out a small one."""
    groups = {name: list(dict.fromkeys(group)) for name, group in groups.items()}
    chooser = random.Random(seed)
    share = count // len(groups)
    drawn = [sentence for group in groups.values() for sentence in chooser.sample(group, share)]
    left = [sentence for group in groups.values() for sentence in group if sentence not in set(drawn)]
    return drawn + chooser.sample(left, count - len(drawn))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.reader_sample", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (default 1)")
    parser.add_argument("--count", type=int, default=60, help="how many sentences (default 60)")
    parser.add_argument("--show", action="store_true", help="print each sentence that is counted")
    options = parser.parse_args(argv)

    groups = read_sentences()
    for number, sentence in enumerate(draw(groups, options.count, options.seed), 1):
        print(f"{number:3}. {sentence.text}  [{sentence.source}]")
    print("\npronouns as subjects:")
    for name, sentences in {**groups, "code comments": read_comments()}.items():
        subjects = find_subjects(sentences)
        counts = "  ".join(f"{word} {sum(one == word for one, _ in subjects)}" for word in PRONOUNS)
        print(f"  {name:13}  {len(sentences):5} sentences  {counts}")
        if options.show:
            print(*(f"      {sentence.text}  [{sentence.source}]" for _, sentence in subjects), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The gate's three engines say the same, from several threads as well, and cost nothing until they are used."""

from __future__ import annotations

import base64
import random
import re
import subprocess
import sys
import threading

import pytest

from harness.corpora.benign_corpus import hard_negatives
from harness.corpora.secret_corpus import positives
from perdure.risk import gate, trie, walls
from perdure.risk.gate import Entry
from perdure.risk.scanner import Scanner, default_scanner

TEXTS = [sample.text.encode() for sample in positives(30, each=1)] + [
    each.text.encode() for each in hard_negatives(30, each=1)
]


@pytest.mark.parametrize("engine", ["re2", "re"])
def test_every_engine_finds_the_same(engine: str) -> None:
    other = Scanner(engine)
    for data in TEXTS:
        assert other.scan(data) == default_scanner().scan(data), data


@pytest.mark.parametrize("engine", gate.ENGINES)
def test_a_gate_reports_every_literal_where_it_stands(engine: str) -> None:
    entries = [
        Entry(b"sk-"),
        Entry(b"sk-proj-"),
        Entry(b"token", True),
        Entry(b".", False, "[0-9]{2}[.][a-z]{2}", 2, 5),
    ]
    hits = gate.build(entries, engine).hits(b"sk-proj-1 TOKEN 12.ab SK- token sk-")
    assert sorted(hits) == [(0, 0), (0, 32), (1, 0), (2, 10), (2, 26), (3, 18)]


@pytest.mark.parametrize("engine", gate.ENGINES)
def test_literals_that_overlap_are_all_reported(engine: str) -> None:
    hits = gate.build([Entry(b"aab"), Entry(b"abb"), Entry(b"abbc")], engine).hits(b"aabbc")
    assert sorted(hits) == [(0, 0), (1, 1), (2, 1)]


def test_an_engine_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no pattern engine"):
        gate.build([Entry(b"a")], "no_such_engine")


def test_threads_scan_beside_each_other() -> None:
    expected = [default_scanner().scan(data) for data in TEXTS]
    wrong: list[int] = []

    def scan_all() -> None:
        for number, data in enumerate(TEXTS):
            if default_scanner().scan(data) != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=scan_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_import_loads_neither_engine_nor_rules() -> None:
    code = (
        "import sys, perdure.risk\n"
        "print(*(m for m in sys.modules if m in ('hyperscan', 're2') or m.startswith('perdure.risk.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) == {"perdure.risk.report", "perdure.risk.settings"}


def test_a_prefix_tree_matches_the_longest_word() -> None:
    pattern = re.compile(trie.pattern([b"a.b", b"a.bc", b"x"]))
    assert [found[0] for found in pattern.finditer(b"a.bc a.b axb x")] == [b"a.bc", b"a.b", b"x", b"x"]


def test_lines_of_any_length_hide_no_wall() -> None:
    chance = random.Random(8)
    for _ in range(60):
        lengths = [chance.choice((0, 76, 198, 199, 200, 201)) for _ in range(chance.choice((1, 90, 180)))]
        some = [chance.choice((b"A", b"/", b"=", b"\xc3"))[:1] * length for length in lengths]
        data = b"\n".join([*some, b"word " * 30, b"\n" * walls.SMALL])
        assert walls.first(data) == walls.translated(data)


def test_a_wall_of_base64_is_found_where_it_begins_whatever_looks_for_it() -> None:
    chance = random.Random(3)
    for length in (walls.LENGTH - 1, walls.LENGTH, 5 * walls.LENGTH):
        for before in (0, 1, 300, walls.SMALL):
            data = b"word " * (before // 5) + b"=" + base64.b64encode(chance.randbytes(900))[:length] + b"\n"
            at = data.index(b"=") + 1 if length >= walls.LENGTH else -1
            assert walls.first(data) == walls.translated(data) == at

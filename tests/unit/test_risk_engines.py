"""The pattern engine: every place is reported, from several threads as well, and it costs nothing until it is used."""

from __future__ import annotations

import base64
import random
import re
import subprocess
import sys
import threading

from harness.corpora.benign_corpus import hard_negatives
from harness.corpora.secret_corpus import positives
from perdure.risk import text_shape
from perdure.risk.candidates import Entry
from perdure.risk.engine import Prefilter
from perdure.risk.scanner import default_scanner
from perdure.risk.word_trie import word_pattern

TEXTS = [sample.text.encode() for sample in positives(30, each=1)] + [
    each.text.encode() for each in hard_negatives(30, each=1)
]


def test_a_prefilter_reports_every_literal_where_it_stands() -> None:
    entries = [
        Entry(b"sk-"),
        Entry(b"sk-proj-"),
        Entry(b"token", True),
        Entry(b".", False, "[0-9]{2}[.][a-z]{2}", 2, 5),
    ]
    hits = Prefilter(entries).hits(b"sk-proj-1 TOKEN 12.ab SK- token sk-")
    assert sorted(hits) == [(0, 0), (0, 32), (1, 0), (2, 10), (2, 26), (3, 18)]


def test_literals_that_overlap_are_all_reported() -> None:
    hits = Prefilter([Entry(b"aab"), Entry(b"abb"), Entry(b"abbc")]).hits(b"aabbc")
    assert sorted(hits) == [(0, 0), (1, 1), (2, 1)]


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
        "print(*(m for m in sys.modules if m == 'hyperscan' or m.startswith('perdure.risk.')))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) == {"perdure.risk.report", "perdure.risk.settings"}


def test_a_prefix_tree_matches_the_longest_word() -> None:
    pattern = re.compile(word_pattern([b"a.b", b"a.bc", b"x"]))
    assert [found[0] for found in pattern.finditer(b"a.bc a.b axb x")] == [b"a.bc", b"a.b", b"x", b"x"]


def first_blob(data: bytes) -> int:
    """The same by its definition."""
    found = re.search(b"[A-Za-z0-9+/]{%d}" % text_shape.BLOB, data)
    return found.start() if found else -1


def test_lines_of_any_length_hide_no_base64_blob() -> None:
    chance = random.Random(8)
    for _ in range(60):
        lengths = [chance.choice((0, 76, 198, 199, 200, 201)) for _ in range(chance.choice((1, 90, 180)))]
        some = [chance.choice((b"A", b"/", b"=", b"\xc3"))[:1] * length for length in lengths]
        data = b"\n".join([*some, b"word " * 30, b"\n" * text_shape.SMALL])
        assert text_shape.first_base64_blob(data) == first_blob(data)


def test_a_base64_blob_is_found_where_it_begins_in_a_small_text_and_in_a_large_one() -> None:
    chance = random.Random(3)
    for length in (text_shape.BLOB - 1, text_shape.BLOB, 5 * text_shape.BLOB):
        for before in (0, 1, 300, text_shape.SMALL):
            data = b"word " * (before // 5) + b"=" + base64.b64encode(chance.randbytes(900))[:length] + b"\n"
            assert text_shape.first_base64_blob(data) == first_blob(data)

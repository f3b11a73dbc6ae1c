"""Many changes of a large file are made on a small one, and nobody can tell: the same text comes out of both."""

from __future__ import annotations

import random
from typing import Any

import pytest
from test_client_texts import CODEX, CONTINUE, CURSOR, FILES, GOOSE

from client_cases import ALL, golden
from perdure.registry.clients import folding, planning
from perdure.registry.clients.folding import Fold, folded
from perdure.registry.clients.ownership import Claim, hash_of
from perdure.registry.clients.planning import Plan, Wanted, wanted
from perdure.registry.clients.table import CLIENTS, Client
from perdure.registry.entry import Entry
from perdure.registry.templates import Template

OF = {id(CURSOR): "cursor", id(CODEX): "codex", id(CONTINUE): "continue", id(GOOSE): "goose"}
SOURCE = "registry"
NAMES = ("a", "b", "c", "d", "e", "f", "old", "other", "developer")
CASES = [
    *(pytest.param(client, golden(client), id=client.name) for client in ALL),
    *(pytest.param(CLIENTS[OF[id(form)]], text, id=name) for form, name, text in FILES),
]


@pytest.fixture(autouse=True)
def everything_is_worth_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "WORTH_IT", 1)


def entries(names: list[str], chance: random.Random) -> list[Entry]:
    return [
        Entry(
            name=name,
            command=Template(chance.choice(["npx", "uvx"])),
            args=tuple(Template(str(chance.randrange(9))) for _ in range(chance.randrange(3))),
            env={"A": Template("$A")} if chance.random() < 0.5 else {},
        )
        for name in names
    ]


def made(client: Client, text: str, want: Wanted, claims: dict[str, Claim], *, may_fold: bool) -> Plan:
    start = planning._Planning(client, text, want, claims, True, True, may_fold=may_fold)
    return planning._made(want, start)


def claimed(client: Client, text: str) -> dict[str, Claim]:
    """Everything that is there as written by us."""
    keys = client.shape.keys
    return {
        name: Claim((hash_of(value, keys),), True, SOURCE)
        for name, value in client.text.servers(text).items()
        if isinstance(value, dict)
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(("client", "text"), CASES)
def test_a_plan_made_on_folded_text_is_the_one_made_on_all_of_it(
    client: Client, text: str, newline: str
) -> None:
    text = text.replace("\r\n", "\n").replace("\n", newline)
    chance = random.Random(len(text))
    for _ in range(5):
        names = [name for name in NAMES if chance.random() < 0.6]
        want = wanted(client, SOURCE, entries(names, chance), {})
        known = {n: one for n, one in claimed(client, text).items() if n in NAMES and chance.random() < 0.7}
        expected = made(client, text, want, known, may_fold=False)
        assert made(client, text, want, known, may_fold=True) == expected
        text = expected.text


@pytest.mark.parametrize(("client", "text"), CASES[: len(ALL)])
def test_what_no_change_touches_is_folded_away(client: Client, text: str) -> None:
    """Given a file with many servers, when two of them change, then little is left to be read again and again."""
    chance = random.Random(1)
    many = wanted(client, SOURCE, entries([f"s{n}" for n in range(40)], chance), {})
    large = planning.planned(client, text, many, {}, sync=False).text
    small = folded(large, client.text.folds(large, {"s7", "s8"}))
    assert len(small.text) < len(text) + (len(large) - len(text)) / 4
    assert small.unfolded(small.text) == large


def test_marks_are_put_back_wherever_they_went() -> None:
    text = "perdure-folded:0. one two three four"
    small = folded(text, [Fold(19, 22, "<", ">"), Fold(27, 32)])
    assert "three" not in small.text
    assert small.unfolded(f"x {small.text} y") == f"x {text} y"


class Deaf:
    """A format whose folds lose something."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def __getattr__(self, name: str) -> Any:
        return getattr(self.form, name)

    def folds(self, text: str, names: object) -> list[Fold]:
        return [Fold(text.index("[tui]"), len(text))]


def test_a_text_that_folds_badly_is_changed_as_a_whole() -> None:
    import msgspec

    client = CLIENTS["codex"]
    bad = msgspec.structs.replace(client, text=Deaf(client.text))
    text = '[mcp_servers.old]\ncommand = "x"\n\n[tui]\na = 2\n'
    want = wanted(client, SOURCE, entries(["new"], random.Random(1)), {})
    expected = planning.planned(client, text, want, {}, sync=False)
    assert planning.planned(bad, text, want, {}, sync=False) == expected
    with pytest.raises(planning._Misfolded):
        made(bad, text, want, {}, may_fold=True)

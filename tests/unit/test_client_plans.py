"""Random plans over every client's file: the new text holds exactly the wanted servers, and nothing else changed."""

from __future__ import annotations

import random

import pytest
from test_client_texts import CODEX, CONTINUE, CURSOR, FILES, GOOSE

from client_cases import ALL, golden
from perdure.registry.clients.codec import encode_entry
from perdure.registry.clients.ownership import Claim, hash_of
from perdure.registry.clients.plan import Wanted, make_plan
from perdure.registry.clients.table import CLIENTS, Client
from perdure.registry.entry import Entry
from perdure.registry.templates import Template

pytestmark = pytest.mark.thorough

OF = {id(CURSOR): "cursor", id(CODEX): "codex", id(CONTINUE): "continue", id(GOOSE): "goose"}
SOURCE = "registry"
NAMES = ("a", "b", "c", "d", "e", "f", "old", "other", "developer")
CASES = [
    *(pytest.param(client, golden(client), id=client.name) for client in ALL),
    *(pytest.param(CLIENTS[OF[id(form)]], text, id=name) for form, name, text in FILES),
]


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


def claimed(client: Client, text: str) -> dict[str, Claim]:
    """Every server of the file as written by Perdure."""
    keys = client.shape.keys
    return {
        name: Claim((hash_of(value, keys),), True, SOURCE)
        for name, value in client.text.servers(text).items()
        if isinstance(value, dict)
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(("client", "text"), CASES)
def test_a_plan_changes_the_servers_it_names_and_no_other(client: Client, text: str, newline: str) -> None:
    text = text.replace("\r\n", "\n").replace("\n", newline)
    chance = random.Random(len(text))
    for _ in range(5):
        names = [name for name in NAMES if chance.random() < 0.6]
        chosen = entries(names, chance)
        want = Wanted(SOURCE, tuple(chosen))
        fields = {entry.name: encode_entry(client, entry).fields for entry in chosen}
        claims = {
            name: claim
            for name, claim in claimed(client, text).items()
            if name in NAMES and chance.random() < 0.7
        }
        before = client.text.servers(text)
        plan = make_plan(client, text, want, claims, sync=True, overwrite=True)
        after = client.text.servers(plan.text)
        actions = {step.name: step.action for step in plan.steps}
        keys = client.shape.keys
        for name in {*before, *after, *actions}:
            match actions.get(name):
                case "added" | "updated" | "unchanged":
                    assert hash_of(after[name], keys) == hash_of(fields[name], keys)
                case "removed":
                    assert name not in after
                case _:
                    assert after.get(name) == before.get(name)
        assert make_plan(client, plan.text, want, plan.claims, sync=True, overwrite=True).text == plan.text
        text = plan.text

"""Every refusal in the tree, found where it is made, as a caller reads it: one sentence, a step to make, no library's words.

What stands for a value in a text is `…`. That a next step leads on is tried on real refusals, in
`tests/integration/test_next_steps.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import perdure
from perdure.present.result import ERROR_BOUNDS, failure
from perdure.protocol.envelope import Envelope
from perdure.protocol.next_step import ask_user, parse

ROOT = Path(perdure.__file__).parent
LIBRARIES = ("msgspec", "Expected `", "Object missing", "apsw", "psycopg", "Errno", "Traceback")
VAGUE = (" meanwhile", "cannot be meant", "small hex", "somebody", "nobody", "whoever")


class Site(NamedTuple):
    place: str
    message: str
    next_step: str | None


def _text(node: ast.expr) -> str | None:
    """A text as it stands there, with … for what is put in; None where it is made elsewhere."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or "…" for value in values)
        case ast.IfExp(body=body):
            return _text(body)
        case _:
            return None


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def _helpers(tree: ast.Module) -> dict[str, int]:
    """Functions of a module that make a refusal of a message they are given: name, and which argument it is."""
    helpers = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [argument.arg for argument in function.args.args]
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "refuse":
                message = call.args[2] if len(call.args) > 2 else None
                if isinstance(message, ast.Name) and message.id in names:
                    helpers[function.name] = names.index(message.id)
    return helpers


def _sites() -> list[Site]:
    sites = []
    for name, tree in _trees():
        helpers = {"refuse": 2, **_helpers(tree)}
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            at = helpers.get(call.func.id)
            if at is None or len(call.args) <= at or (message := _text(call.args[at])) is None:
                continue
            step = next((keyword.value for keyword in call.keywords if keyword.arg == "next_step"), None)
            is_question = (
                isinstance(step, ast.Call) and isinstance(step.func, ast.Name) and step.func.id == "ask_user"
            )
            question = _text(step.args[0]) if is_question and isinstance(step, ast.Call) else None
            sites.append(Site(f"{name}:{call.lineno}", message, question))
    return sites


SITES = _sites()


def test_the_refusals_of_the_tree_are_found() -> None:
    assert len(SITES) > 120


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.place)
def test_a_refusal_is_one_sentence_in_plain_words(site: Site) -> None:
    step = ask_user(site.next_step) if site.next_step is not None else "read path=a.py"
    context = {
        "reason": "some_reason",
        "message": site.message,
        "next": step,
        "empty": "",
        "none": None,
        "list": [],
    }
    text = failure(Envelope(error="blocked", context=context))["content"][0]["text"]

    sentence, following, code = text.split("\n")

    assert sentence.endswith(".")
    assert len(sentence) <= ERROR_BOUNDS.scalar
    assert ". " not in sentence.removesuffix("."), "one sentence"
    assert not sentence[0].isupper() or sentence.startswith(("Perdure", "NaN", "Invalid JSON")), (
        "it follows what did not happen"
    )
    assert not [word for word in (*LIBRARIES, *VAGUE) if word in text]
    assert parse(following.removeprefix("next: "))
    assert code == "[blocked/some_reason]"

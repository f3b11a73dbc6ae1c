"""A tool's declaration: the public definition, the private contract, and the contradictions it refuses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest

from perdure.protocol import eras
from perdure.protocol.instructions import instructions
from perdure.protocol.replay import CONVERGENT, JOURNAL, NEVER
from perdure.protocol.tools import Contract, ToolSpec, arg, contract, definition, input_schema


class Edit(msgspec.Struct):
    """One replacement."""

    old: Annotated[str, arg("Text to find.")]
    new: Annotated[str, arg("Text to put there.")]
    title: str = ""


class Params(msgspec.Struct):
    path: Annotated[str, arg("Which file.", aliases=("file",), path="relative", min_length=1)]
    edits: Annotated[list[Edit], arg("What to change.")] = []
    mode: Annotated[Literal["create", "append"], arg("How.")] = "create"
    limit: Annotated[int, arg("At most.", ge=1)] | None = None


class Renamed(msgspec.Struct, rename={"start": "from"}):
    start: str = ""


class Itself(msgspec.Struct):
    inner: list[Itself] = []


class Taken(msgspec.Struct):
    render: str = ""


def spec(**changes: Any) -> ToolSpec:
    declared: dict[str, Any] = {
        "name": "edit_file",
        "title": "Edit a file",
        "description": "Replace text.",
        "params": Params,
        "replay": JOURNAL,
        "aliases": ("rw.edit_file",),
        "conflict": ("/path",),
        "deadline_s": 45,
        "destructive": True,
    }
    return ToolSpec(**{**declared, **changes})


def test_the_definition_is_self_contained_and_closed() -> None:
    schema = definition(spec())["inputSchema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "$ref" not in str(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["path"]
    assert list(schema["properties"]) == ["path", "edits", "mode", "limit", "render", "detail"]
    assert schema["properties"]["path"] == {
        "type": "string",
        "minLength": 1,
        "description": "Which file.",
    }
    assert schema["properties"]["limit"] == {
        "type": "integer",
        "description": "At most.",
    }
    edit = schema["properties"]["edits"]["items"]
    assert edit["additionalProperties"] is False
    assert edit["required"] == ["old", "new"]
    assert "title" in edit["properties"]
    own = {name: one for name, one in schema["properties"].items() if name not in ("render", "detail")}
    assert all("description" in one for one in own.values())


def test_every_tool_takes_render_and_detail() -> None:
    class Nothing(msgspec.Struct):
        pass

    schema = input_schema(Nothing)
    assert schema["properties"] == {"render": {"type": "string"}, "detail": {"type": "string"}}
    # Their choices are said once, for all tools.
    assert "render (porcelain, json) and detail (concise, full)" in instructions(())
    assert "required" not in schema


def test_annotations_say_whether_a_tool_reads_or_destroys() -> None:
    assert definition(spec())["annotations"] == {"destructiveHint": True, "openWorldHint": False}
    assert definition(spec(destructive=False, idempotent=True))["annotations"] == {
        "idempotentHint": True,
        "destructiveHint": False,
        "openWorldHint": False,
    }
    assert definition(spec(read_only=True, destructive=False, replay=CONVERGENT))["annotations"] == {
        "readOnlyHint": True,
        "openWorldHint": False,
    }


def test_the_contract_is_in_the_meta_of_the_definition() -> None:
    assert definition(spec())["_meta"] == {
        eras.META_CONTRACT: {
            "replay": "probe",
            "conflict": ("/path",),
            "deadline_s": 45,
            "aliases": ("rw.edit_file",),
            "waits": False,
        }
    }
    encoded = msgspec.json.encode(definition(spec())["_meta"][eras.META_CONTRACT])
    assert msgspec.json.decode(encoded, type=Contract) == contract(spec())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"replay": NEVER}, "never"),
        ({"replay": JOURNAL}, "probe"),
        ({"replay": CONVERGENT, "idempotent": True}, "convergent"),
    ],
)
def test_the_replay_class_becomes_one_word(changes: dict[str, Any], word: str) -> None:
    assert contract(spec(**changes)).replay == word


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "rw.edit"},
        {"name": "Edit"},
        {"name": ""},
        {"name": "a" * 65},
        {"aliases": ("edit_file",)},
        {"aliases": ("x", "x")},
        {"aliases": ("a b",)},
        {"conflict": ("path",)},
        {"conflict": ("/nowhere",)},
        {"conflict": ("",)},
        {"deadline_s": 0},
        {"read_only": True},
        {"replay": CONVERGENT},
        {"params": Taken},
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        spec(**changes)


def test_arguments_go_by_the_name_on_the_wire() -> None:
    renamed = spec(params=Renamed, conflict=("/from",))
    assert "from" in definition(renamed)["inputSchema"]["properties"]


def test_arguments_without_end_are_refused() -> None:
    with pytest.raises(ValueError):
        input_schema(Itself)

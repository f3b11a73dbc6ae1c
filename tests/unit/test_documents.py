"""What the documents say of the envelope and the handoff is what the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from perdure.model.envelope import ErrorKind, ReasonHint, SuggestedAction
from perdure.model.handoff import Handoff
from perdure.surfaces.write import front_matter
from perdure.surfaces.write.policy import KEYS
from perdure.testing.intact_files import found, tallied
from perdure.validate.isolated import Checker

ROOT = Path(__file__).resolve().parents[2]


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def schema(name: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((ROOT / "spec" / name).read_text())
    return loaded


def test_the_example_of_an_error_fits_its_schema_and_every_word_is_explained() -> None:
    text = document("reference/errors.md")
    example = json.loads(text.split("```json\n")[1].split("```")[0])
    jsonschema.validate(example, schema("error.schema.json"))
    for words in (ErrorKind, ReasonHint, SuggestedAction):
        assert [word for word in get_args(words) if f"`{word}`" not in text] == []


def test_the_example_of_a_handoff_fits_its_schema_and_every_key_is_explained() -> None:
    text = document("reference/handoff.md")
    front, _ = front_matter.split(text.split("```yaml\n")[1].split("```")[0])
    envelope = front_matter.read(front.replace("4b0c12…", "ab" * 32))
    jsonschema.validate(envelope, schema("handoff.schema.json"))
    assert [key for key in Handoff.__struct_fields__ if f"`{key}`" not in text] == []


def test_every_key_of_a_policy_is_explained_and_its_example_fits() -> None:
    text = document("reference/policy.md")
    assert [key for key in KEYS if not re.search(rf"`{key}[`.]", text)] == []
    example = front_matter.read(text.split("```yaml\n")[1].split("```")[0])
    jsonschema.validate(example, schema("policy.schema.json"))


@pytest.mark.parametrize("form", ["python", "markdown", "toml", "json", "yaml"])
def test_our_own_files_are_found_to_be_right(form: str) -> None:
    own = [ROOT / "src/perdure/model", ROOT / "docs", ROOT / "spec"]
    with Checker(timeout_s=60) as checker:
        tally = tallied(checker, found(own)[form], 20)
    assert tally.false == []


def test_links_between_documents_lead_somewhere() -> None:
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+\.md)", file.read_text()):
            assert (file.parent / link).exists(), f"{file.name}: {link}"

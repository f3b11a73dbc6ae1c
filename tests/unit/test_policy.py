"""What a policy file may say, and that nothing else in it is taken for granted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.protocol.envelope import ToolError
from perdure.storage.trust import TrustStore
from perdure.text.toml_lines import find_key_line
from perdure.workspace import policy_file
from perdure.workspace.policy import DEFAULT
from perdure.workspace.policy_file import Loaded
from testbed import trusted

PEER = """\
version: 1
extend_patterns:
  api_key:
    - name: internal_vendor_key
      regex: 'VN-[0-9A-F]{24}'
      weight: 0.40
disable_families: []   # e.g. ['pii']
thresholds:
  high: 0.65           # tighten a bit
  medium: 0.35
retry_budget:
  default: 5
"""
OURS = """\
weights: {pii: 0.5}
limits: {bytes: 2000}
classify: always
max_bytes: 1000000
protect:
  never: [secrets/]
  guarded: [/deploy.sh]
  allow: [.github/workflows/]
scratch: {get: false, encrypt: true}
"""
BROKEN = [
    ("thresholds:\n  hihg: 0.5\n", 2, "unknown key 'hihg'"),
    ("version: 1\nsize_rules: 3\n", 2, "unknown key 'size_rules'"),
    ("\nthresholds:\n  low: 0.1\n  high: 7\n", 4, "<= 1.0"),
    ("thresholds: {high: 0.2, medium: 0.5}\n", 1, "must rise"),
    ("disable_families: pii\n", 1, "Expected"),
    ("disable_families:\n  - pii\n  - pji\n", 3, "no family 'pji'"),
    ("weights:\n  pii: 0.1\n  jwt: heavy\n", 3, "Expected `float`"),
    ("weights:\n  jwtt: 0.1\n", 2, "no family 'jwtt'"),
    ("retry_budget:\n  default: -1\n", 2, ">= 0"),
    (
        "extend_patterns:\n  own:\n    - {name: a, regex: b}\n    - {name: c, regx: d}\n",
        4,
        "unknown key 'regx'",
    ),
    ("extend_patterns:\n  own:\n    - {name: a, regex: b}\n    - {name: c, regex: '(d'}\n", 4, "pattern c"),
    ("protect:\n  never:\n    - secrets/*\n", 3, "wildcards"),
    ("protect:\n  allow: [../up]\n", 2, "not a path rule"),
    ("scratch: {get: maybe}\n", 1, "Expected `bool`"),
    ("thresholds: {high: 0.9\n", 2, "expected"),
    ("- a\n- b\n", 1, "not a mapping"),
    ("classify: true\nclassify: false\n", 2, "duplicate key"),
]


def loaded(folder: Path, text: str, name: str = "policy.yaml") -> Loaded:
    (folder / name).write_text(text)
    return policy_file.load(str(folder / name), [str(folder)])


def refused(folder: Path, text: str, name: str = "policy.yaml") -> dict[str, Any]:
    with pytest.raises(ToolError) as caught:
        loaded(folder, text, name)
    envelope = caught.value.envelope
    reason = "bad_regex" if "(d" in text else "bad_policy"
    assert (envelope.error, envelope.context["reason"]) == ("policy_violation", reason)
    assert str(folder) not in envelope.context["message"]
    return envelope.context


def test_the_peers_example_is_read_in_full(tmp_path: Path) -> None:
    policy = loaded(tmp_path, PEER).policy
    assert policy.retry_budget.default == 5
    assert (policy.thresholds.high, policy.thresholds.medium, policy.thresholds.low) == (0.65, 0.35, 0.10)
    assert policy.extend_patterns["api_key"][0].weight == 0.40


def test_every_key_of_ours_is_read(tmp_path: Path) -> None:
    policy = loaded(tmp_path, OURS).policy
    assert (policy.weights, policy.limits.bytes, policy.classify) == ({"pii": 0.5}, 2000, "always")
    assert (policy.max_bytes, policy.scratch.get, policy.scratch.encrypt) == (1_000_000, False, True)
    assert policy.protect.never == ("secrets/",)


@pytest.mark.parametrize(("text", "line", "said"), BROKEN, ids=range(len(BROKEN)))
def test_what_cannot_be_meant_is_an_error_with_its_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    context = refused(tmp_path, text)
    assert (context["file"], context["line"]) == ("policy.yaml", line), context["message"]
    assert said in context["message"]


def test_a_table_of_the_settings_file_is_a_policy_too(tmp_path: Path) -> None:
    text = 'render = "json"\n[policy]\nmax_bytes = 9\n[policy.thresholds]\nhigh = 0.8\n'
    policy = loaded(tmp_path, text, "perdure.toml").policy
    assert (policy.max_bytes, policy.thresholds.high) == (9, 0.8)
    context = refused(tmp_path, text.replace("high = 0.8", "hi = 0.8"), "perdure.toml")
    assert (context["file"], context["line"]) == ("perdure.toml", 5)
    assert refused(tmp_path, "[policy\n", "perdure.toml")["file"] == "perdure.toml"


def test_an_empty_policy_is_the_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# nothing yet\n").policy == DEFAULT
    assert policy_file.load(None, [str(tmp_path / "elsewhere")]) == Loaded()


LOOSE = "classify: false\nmax_bytes: 5\nprotect: {allow: [.git/]}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("place", [".perdure/policy.yaml", ".resilient_write/policy.yaml", "policy.yaml"])
def test_a_place_of_the_workspace_loosens_only_once_it_is_trusted(
    tmp_path: Path, home: Path, place: str
) -> None:
    root = tmp_path / "w"
    (root / place).parent.mkdir(parents=True)
    (root / place).write_text(LOOSE)
    policy = policy_file.load(None, [str(root)]).policy
    assert (policy.classify, policy.max_bytes, policy.protect.allow) == (True, 5, ())
    TrustStore(str(home / "trust")).trust(str(root / place), LOOSE.encode())
    policy = policy_file.load(None, [str(root)]).policy
    assert (policy.classify, policy.max_bytes, policy.protect.allow) == (False, 5, (".git/",))


def test_a_file_that_is_not_trusted_cannot_take_the_place_of_one_that_is(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "w"
    (root / ".perdure").mkdir(parents=True)
    trusted(root / "policy.yaml", "protect: {never: [vault/]}\n", home)
    (root / ".perdure" / "policy.yaml").write_text("max_bytes: 7\nclassify: false\n")
    policy = policy_file.load(None, [str(root)]).policy
    assert (policy.protect.never, policy.max_bytes, policy.classify) == (("vault/",), 7, True)


def test_a_link_to_a_policy_elsewhere_is_not_the_users_own(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    trusted(tmp_path / "policy.yaml", LOOSE, home)
    (root / "policy.yaml").symlink_to(tmp_path / "policy.yaml")
    assert policy_file.load(None, [str(root)]).policy.classify is True


def test_the_users_policy_is_what_the_workspace_tightens(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (tmp_path / "mine.yaml").write_text("max_bytes: 50\nclassify: always\n")
    (root / "perdure.toml").write_text(
        "[policy]\nmax_bytes = 500\nclassify = true\nretry_budget.default = 1\n"
    )
    own = str(root / "perdure.toml")
    policy = policy_file.load(None, [str(root)], in_settings=own, user=str(tmp_path / "mine.yaml")).policy
    assert (policy.max_bytes, policy.classify, policy.retry_budget.default) == (50, "always", 1)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        policy_file.load(str(tmp_path / "gone.yaml"), [str(tmp_path)])
    assert caught.value.envelope.context["file"] == "gone.yaml"


@pytest.mark.parametrize("place", [".perdure/policy.yaml", ".resilient_write/policy.yaml", "policy.yaml"])
def test_a_policy_is_found_in_its_places(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("max_bytes: 5\n")
    found = policy_file.load(None, [str(tmp_path)])
    assert (found.policy.max_bytes, found.own) == (5, (f"/{place}",))


def test_another_programs_policy_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("apiVersion: policy/v1\nkind: PodDisruptionBudget\n")
    assert policy_file.load(None, [str(tmp_path)]) == Loaded()


def test_no_policy_frees_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    found = loaded(tmp_path, "protect: {allow: [/conf/rules.yaml, /perdure.toml]}\n", "conf/rules.yaml")
    protection = found.policy.protection(found.own)
    for parts in (["conf", "rules.yaml"], ["CONF", "Rules.yaml"], ["perdure.toml"], ["policy.yaml"]):
        with pytest.raises(ToolError):
            protection.check(parts, force=True)
        protection.check(parts, reading=True)
    protection.check(["conf", "other.yaml"])


def test_paths_are_protected_and_freed(tmp_path: Path) -> None:
    protection = loaded(tmp_path, OURS).policy.protection()
    protection.check([".github", "workflows", "ci.yml"])
    protection.check(["deploy.sh"], force=True)
    for parts, force in ((["a", "secrets", "b"], True), (["deploy.sh"], False), ([".git", "config"], True)):
        with pytest.raises(ToolError):
            protection.check(parts, force=force)


def test_lines_of_toml_keys() -> None:
    text = 'a = 1\n# [b]\n[b]\n"c d".e = 2\n[[f]]\ng = 3\n'
    assert [find_key_line(text, path) for path in (["a"], ["b", "c d", "e"], ["f", "g"], ["f", "x"], ["z"])] == [
        1, 4, 6, 5, 1,
    ]  # fmt: skip

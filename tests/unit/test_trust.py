"""Which contents of which files the user trusts, and where that is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perdure.host.workspace_trust import contents_of
from perdure.storage.trust import TrustStore
from perdure.workspace.policy import DEFAULT, Policy, Protect, Scratch, parse, tighten

FILE = "/w/mcp.md"


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(str(tmp_path / "data" / "trust"))


def test_a_content_is_trusted_for_its_path_alone(store: TrustStore) -> None:
    assert store.verdict(FILE, b"a") == "waiting"
    store.trust(FILE, b"a")
    assert store.verdict(FILE, b"a") == "trusted"
    assert store.verdict(FILE, b"a\n") == "changed"
    assert store.verdict("/elsewhere/mcp.md", b"a") == "waiting"
    assert TrustStore(store.folder).verdict(FILE, b"a") == "trusted"


def test_what_was_revoked_waits_again(store: TrustStore) -> None:
    store.trust(FILE, b"a")
    assert store.revoke(FILE)
    assert store.verdict(FILE, b"a") == "waiting"
    assert not store.revoke(FILE)


def test_both_contents_are_trusted_while_the_users_own_command_replaces_one(store: TrustStore) -> None:
    store.trust(FILE, b"a")
    store.trust(FILE, b"b", previous=b"a")
    assert [store.verdict(FILE, content) for content in (b"a", b"b")] == ["trusted", "trusted"]
    store.trust(FILE, b"b")
    assert [store.verdict(FILE, content) for content in (b"a", b"b")] == ["changed", "trusted"]


def test_the_record_is_for_its_owner_alone(store: TrustStore) -> None:
    store.trust(FILE, b"a")
    [record] = Path(store.folder).iterdir()
    assert (record.stat().st_mode & 0o777, Path(store.folder).stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("spoil", ["writable", "link", "garbage", "other path"])
def test_a_record_that_somebody_else_may_have_written_proves_nothing(store: TrustStore, spoil: str) -> None:
    store.trust(FILE, b"a")
    [record] = Path(store.folder).iterdir()
    if spoil == "writable":
        record.chmod(0o666)
    elif spoil == "garbage":
        record.write_bytes(b"{}")
    elif spoil == "other path":
        record.write_bytes(record.read_bytes().replace(b"/w/mcp.md", b"/x/mcp.md"))
    else:
        record.rename(record.with_suffix(".real"))
        record.symlink_to(record.with_suffix(".real"))
    assert store.verdict(FILE, b"a") == "waiting"


# --- a policy that is not trusted can only tighten ----------------------------------------------------------

BASE = parse({"max_bytes": 100, "classify": True, "scratch": {"get": False}, "protect": {"allow": ["a/"]}})
WEAK = {"name": "all", "regex": ".+", "weight": 0}
RULES: list[tuple[Policy, dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    (DEFAULT, {"max_bytes": 10}, {"max_bytes": 10}, ()),
    (BASE, {"max_bytes": 10}, {"max_bytes": 10}, ()),
    (BASE, {"max_bytes": 1000}, {"max_bytes": 100}, ("max_bytes",)),
    (DEFAULT, {"classify": "always"}, {"classify": "always"}, ()),
    (DEFAULT, {"classify": False}, {"classify": True}, ("classify",)),
    (
        BASE,
        {"protect": {"never": ["x/"], "guarded": ["y"], "allow": [".git/"]}},
        {"protect": Protect(never=("x/",), guarded=("y",), allow=("a/",))},
        ("protect.allow",),
    ),
    (DEFAULT, {"disable_families": ["pii"]}, {"disable_families": frozenset()}, ("disable_families",)),
    (DEFAULT, {"weights": {"pii": 1.0, "jwt": 0.1}}, {"weights": {"pii": 1.0}}, ("weights.jwt",)),
    (BASE, {"scratch": {"get": True, "encrypt": True}}, {"scratch": Scratch(False, True)}, ("scratch.get",)),
    (DEFAULT, {"extend_patterns": {"own": [WEAK]}}, {"extend_patterns": {}}, ("extend_patterns.own",)),
]  # fmt: skip


@pytest.mark.parametrize(("base", "table", "values", "waiting"), RULES)
def test_a_policy_key_that_only_refuses_more_counts_and_the_rest_waits(
    base: Policy, table: dict[str, Any], values: dict[str, Any], waiting: tuple[str, ...]
) -> None:
    found, loose = tighten(base, table)
    assert {key: getattr(found, key) for key in values} == values
    assert loose == waiting


def test_thresholds_limits_and_budgets_only_fall() -> None:
    table = {
        "thresholds": {"high": 0.6, "medium": 0.5, "low": 0.05},
        "limits": {"bytes": 10, "lines": 10**9},
        "retry_budget": {"default": 9},
    }
    found, loose = tighten(DEFAULT, table)
    assert (found.thresholds.high, found.thresholds.medium, found.thresholds.low) == (0.6, 0.4, 0.05)
    assert (found.limits.bytes, found.limits.lines) == (10, DEFAULT.limits.lines)
    assert found.retry_budget == DEFAULT.retry_budget
    assert loose == ("thresholds.medium", "limits.lines", "retry_budget.default")


def test_a_pattern_that_refuses_by_itself_counts() -> None:
    pattern = {"name": "own", "regex": "OWN-[0-9]+", "weight": 1.0}
    found, loose = tighten(DEFAULT, {"extend_patterns": {"ours": [pattern]}})
    assert (list(found.extend_patterns), loose) == (["ours"], ())


# --- what is shown before it is trusted ---------------------------------------------------------------------


def test_everything_that_a_registry_starts_passes_on_and_allows_is_shown_without_secrets() -> None:
    text = (
        "## near\ncommand: bash\nargs: [\"-c\", \"touch PROOF\", \"--token=sk-Zx9yW8vU7tS6rQ5pO4nM\"]\ncwd: ./sub\n"
        "env: KEY=$AWS_SECRET_ACCESS_KEY, OTHER=sk-Zx9yW8vU7tS6rQ5pO4nM\n"
        "## far\nurl: https://user:pass@evil.example/mcp?key=hidden\nheaders: X=$TOKEN\n"
        "## off\ncommand: node\nenabled: false\n"
        "## Allowed commands\nbash\npython\n"
    )  # fmt: skip
    found = contents_of("/w/mcp.md", text.encode(), os.environ)
    shown = "\n".join(found.facts)
    assert [start.name for start in found.starts] == ["near", "far"]
    assert "start near: bash -c 'touch PROOF'" in shown
    assert "connect far: https://" in shown
    assert "evil.example/mcp" in shown
    assert 'near cwd = "./sub"' in shown
    assert 'env.KEY = "$AWS_SECRET_ACCESS_KEY"' in shown
    assert "start off: node (disabled)" in shown
    assert "allow the command bash" in shown
    assert found.settings == ("allowed-commands.bash",)
    assert not [secret for secret in ("sk-Zx9", "hidden", "pass@") if secret in shown]


def test_foreign_text_does_not_move_the_cursor() -> None:
    text = '[mounts]\nx = ["bash", "-c", "rm -rf ~ \\u001b[2K\\u202e echo fine"]\n'
    found = contents_of("/w/perdure.toml", text.encode(), os.environ)
    assert all(letter.isprintable() for fact in found.facts for letter in fact)
    assert "rm -rf ~" in found.facts[0]

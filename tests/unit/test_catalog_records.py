"""Records of the official registry: whatever is published is read, and gives an entry or a reason why not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.corpora.catalog_records import load_records, make_records
from perdure.registry.catalog.records import BadRecord, Record, read_record
from perdure.registry.catalog.semver import is_exact, moment, order
from perdure.registry.entry import Entry
from perdure.registry.errors import InputRequired, InvalidEntry
from perdure.registry.packages.aliases import alias, short_name
from perdure.registry.packages.choice import choose, plans
from perdure.registry.packages.launch_plan import NotRunnable, Plan, check_answer, make_entry
from perdure.registry.templates import Template

SAMPLE = json.loads((Path(__file__).resolve().parents[1] / "catalog_sample.json").read_text())
RECORDS = {one["server"]["name"].rpartition("/")[2]: read_record(one) for one in reversed(SAMPLE)}


def everywhere(_: str) -> bool:
    return True


def plan(name: str, kind: str = "") -> Plan:
    return choose(RECORDS[name], everywhere, kind)


def entry(name: str, **answers: str) -> Entry:
    given = {key: Template(value) for key, value in answers.items()}
    return make_entry(plan(name), short_name(RECORDS[name].name), given, "https://catalog.test")


def words(one: Entry) -> list[str]:
    assert one.command is not None
    return [one.command.text, *(arg.text for arg in one.args)]


# --- each kind of package ---------------------------------------------------------------------------------------


def test_an_npm_package_is_run_by_npx_in_its_exact_version() -> None:
    assert words(entry("weather")) == ["npx", "-y", "@acme/weather@1.2.3", "$CITY", "--units", "metric"]


def test_required_inputs_become_references_and_defaults_can_be_overridden_from_outside() -> None:
    env = {name: value.text for name, value in entry("weather").env.items()}
    assert env == {"WEATHER_KEY": "$WEATHER_KEY", "LEVEL": "${LEVEL:-info}"}


def test_answers_take_the_place_of_references_and_defaults() -> None:
    given = entry("weather", CITY="Oslo, Norway", UNITS="imperial", VERBOSE="true", PROXY="p:1")
    assert words(given)[3:] == ["Oslo, Norway", "--units", "imperial", "--verbose", "--proxy", "p:1"]


def test_a_python_module_is_run_from_its_pinned_package() -> None:
    assert words(entry("tables")) == [
        *("uvx", "--from", "acme-tables==0.4.0"),
        *("python", "-m", "acme_tables.server", "serve"),
    ]


def test_a_container_gets_its_variables_by_name_and_what_docker_is_told_twice_is_told_once() -> None:
    found = entry("container")
    assert words(found) == [
        *("docker", "run", "-i", "--rm", "-e", "API_TOKEN"),
        *("--mount", "type=bind,src=$FOLDER,dst=/data", "-e", "REGION", "ghcr.test/acme/container:2.0.0"),
    ]
    assert {name: value.text for name, value in found.env.items()} == {
        "API_TOKEN": "$API_TOKEN",
        "REGION": "${REGION:-eu}",
    }
    assert plan("container").notes == ("its container asks for more than its own: --mount",)


def test_a_nuget_package_is_run_by_dnx_without_asking() -> None:
    assert words(entry("tool")) == ["dnx", "Acme.Tool@3.1.0", "--yes", "--", "mcp", "start"]


def test_a_variable_that_a_header_forgot_to_declare_is_asked_for() -> None:
    record = read_record(next(one for one in SAMPLE if one["server"]["name"] == "com.acme/mcp"))
    found = make_entry(choose(record, everywhere), "acme", {}, "https://catalog.test")
    assert found.url is not None
    assert found.url.text == "https://eu.acme.test/mcp"
    assert {name: value.text for name, value in found.headers.items()} == {
        "Authorization": "Bearer $ACME_API_KEY",
        "X-Team": "$X_TEAM",
        "Accept-Language": "en",
    }
    key = next(ask for ask in choose(record, everywhere).prompts.values() if ask.variable == "ACME_API_KEY")
    assert key.required
    assert key.secret


def test_a_reference_before_more_of_a_word_gets_braces() -> None:
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "{a}_b"}],
    }
    record = read_record({"name": "a.test/x", "version": "1.0.0", "packages": [package]})
    assert words(make_entry(choose(record, everywhere), "x", {}, ""))[-1] == "${A}_b"


def test_where_it_came_from_is_kept_with_the_full_name() -> None:
    found = entry("weather").provenance
    assert found is not None
    assert (found.catalog, found.name, found.version, found.package) == (
        "https://catalog.test",
        "io.test.acme/weather",
        "1.2.3",
        "npm:@acme/weather@1.2.3",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unpinned", "no exact version but latest"),
        ("listener", "listens on a port of its own"),
        ("empty", "neither a package nor a remote"),
        ("crate", "no runner for a package of the kind cargo"),
        ("shelly", "have npx run something else"),
    ],
)
def test_what_cannot_be_run_says_why(name: str, reason: str) -> None:
    with pytest.raises(NotRunnable, match=reason):
        plan(name)


@pytest.mark.parametrize("identifier", ["-c", "--call", "a b", "a;b", "$(x)", "../a", "", "@/x", "a@b"])
def test_an_identifier_is_never_an_option_or_more_than_a_name(identifier: str) -> None:
    for kind in ("npm", "pypi", "oci", "nuget"):
        package = {
            "registryType": kind,
            "identifier": identifier,
            "version": "1.0.0",
            "transport": {"type": "stdio"},
        }
        record = read_record({"name": "a.test/x", "version": "1.0.0", "packages": [package]})
        with pytest.raises(NotRunnable):
            choose(record, everywhere)


def test_a_package_from_a_place_of_its_own_is_told() -> None:
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        "runtimeArguments": [{"type": "named", "name": "--registry", "value": "https://packages.test"}],
    }
    record = read_record({"name": "a.test/x", "version": "1.0.0", "packages": [package]})
    assert choose(record, everywhere).notes == ("its packages come from a place of its own: --registry",)


INDEXED = [
    ("npm", "@acme/x", "https://npm.acme.test", ["-y", "--registry=https://npm.acme.test/", "@acme/x@1.0.0"]),
    ("npm", "x", "http://127.0.0.1:4873/", ["-y", "--registry=http://127.0.0.1:4873/", "x@1.0.0"]),
    ("npm", "x", "https://registry.npm.example/", ["-y", "x@1.0.0"]),
    ("pypi", "x", "https://acme.test", ["--index", "https://acme.test/simple", "x==1.0.0"]),
    ("pypi", "x", "https://acme.test/root/simple/", ["--index", "https://acme.test/root/simple", "x==1.0.0"]),
    ("pypi", "x", "https://pypi.example", ["x==1.0.0"]),
    ("nuget", "X", "https://acme.test/v3/index.json", ["X@1.0.0", "--yes", "--source", "https://acme.test/v3/index.json"]),
    ("oci", "acme/x", "https://images.acme.test", ["run", "-i", "--rm", "images.acme.test/acme/x:1.0.0"]),
    ("oci", "host.test/x:1.0.0", "https://images.acme.test", ["run", "-i", "--rm", "host.test/x:1.0.0"]),
]  # fmt: skip


def indexed(kind: str, identifier: str, base: str) -> Record:
    package = {
        "registryType": kind,
        "identifier": identifier,
        "version": "1.0.0",
        "registryBaseUrl": base,
        "transport": {"type": "stdio"},
    }
    return read_record({"name": "io.test/x", "version": "1.0.0", "packages": [package]})


@pytest.mark.parametrize(("kind", "identifier", "base", "args"), INDEXED)
def test_a_package_is_asked_for_at_its_own_index(
    kind: str, identifier: str, base: str, args: list[str]
) -> None:
    found = choose(indexed(kind, identifier, base), everywhere)
    assert words(make_entry(found, "x", {}, "https://catalog.test"))[1:] == args
    is_elsewhere = kind != "oci" and ".example" not in base
    assert [note for note in found.notes if "a place of its own" in note] == list(found.notes)
    assert bool(found.notes) is is_elsewhere


@pytest.mark.parametrize("kind", ["npm", "pypi", "nuget", "oci"])
@pytest.mark.parametrize(
    "base",
    ["http://acme.test", "file:///etc", "--registry", "https://user:pw@acme.test", "https://a.test\n-x"],
)
def test_an_index_that_may_not_be_used_is_a_reason(kind: str, base: str) -> None:
    found = list(plans(indexed(kind, "x", base)))
    if kind == "oci" and "@" in base:
        assert isinstance(found[0], Plan)  # an image's name holds the host alone
        assert "pw" not in str(found[0])
    else:
        assert isinstance(found[0], NotRunnable)
        assert "pw" not in str(found[0])


def test_a_deleted_version_is_not_run() -> None:
    deleted = {**SAMPLE[0], "_meta": {"io.modelcontextprotocol.registry/official": {"status": "deleted"}}}
    with pytest.raises(NotRunnable, match="deleted"):
        choose(read_record(deleted), everywhere)


def test_of_several_ways_the_first_whose_runner_is_here_is_taken() -> None:
    both = {
        "name": "a.test/both",
        "version": "1.0.0",
        "packages": [
            {"registryType": "npm", "identifier": "b", "version": "1.0.0", "transport": {"type": "stdio"}},
            {"registryType": "pypi", "identifier": "b", "version": "1.0.0", "transport": {"type": "stdio"}},
        ],
    }
    record = read_record(both)
    assert choose(record, everywhere).kind == "npm"
    assert choose(record, lambda command: command == "uvx").kind == "pypi"
    assert choose(record, lambda command: False).kind == "npm"
    assert choose(record, everywhere, "pypi").kind == "pypi"


# --- inputs -------------------------------------------------------------------------------------------------------


def test_a_secret_is_not_written_down() -> None:
    ask = next(one for one in plan("weather").prompts.values() if one.secret)
    with pytest.raises(InputRequired) as caught:
        check_answer(ask, Template("hunter2-and-more"))
    assert "hunter2" not in str(caught.value) + caught.value.hint
    assert check_answer(ask, Template("$ELSEWHERE")) == Template("$ELSEWHERE")


def test_an_answer_is_one_of_the_choices() -> None:
    ask = next(one for one in plan("weather").prompts.values() if one.variable == "UNITS")
    with pytest.raises(InputRequired, match="metric, imperial"):
        check_answer(ask, Template("kelvin"))


def test_an_input_called_path_is_not_filled_with_the_path_of_the_shell() -> None:
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "valueHint": "path", "isRequired": True}],
    }
    record = read_record({"name": "a.test/files", "version": "1.0.0", "packages": [package]})
    assert words(make_entry(choose(record, everywhere), "files", {}, ""))[-1] == "$FILES_PATH"


def test_two_inputs_of_one_name_and_different_defaults_are_two_variables() -> None:
    mount = {"type": "named", "name": "--mount", "value": "src={source},dst=/x"}
    package = {
        "registryType": "oci",
        "identifier": "acme/x:1.0.0",
        "transport": {"type": "stdio"},
        "runtimeArguments": [{**mount, "variables": {"source": {"default": path}}} for path in ("/a", "/b")],
    }
    record = read_record({"name": "a.test/x", "version": "1.0.0", "packages": [package]})
    found = choose(record, everywhere)
    assert list(found.prompts) == ["SOURCE", "SOURCE_2"]
    made = words(make_entry(found, "x", {"SOURCE": Template("/mine")}, ""))
    assert made[4:8] == ["--mount", "src=/mine,dst=/x", "--mount", "src=/b,dst=/x"]


# --- tolerance ------------------------------------------------------------------------------------------------------


def test_flags_that_are_texts_are_read_as_they_are_meant() -> None:
    one = {
        "name": "K",
        "isRequired": "false",
        "isSecret": "true",
        "default": 8080,
        "choices": [1, True, None],
    }
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1",
        "environmentVariables": [one, None, 7],
    }
    found = read_record({"name": "a.test/x", "version": "1", "packages": [package, "no"]}).packages[0]
    assert found.environment[0].is_required is False
    assert found.environment[0].is_secret is True
    assert found.environment[0].default == "8080"
    assert found.environment[0].choices == ("1", "true")


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    found = read_record({"name": "a.test/x", "version": "1", "description": "a\x1b[2J\x07b\nc\u202ed"})
    assert found.description == "a [2J b c d"


def test_a_line_break_in_a_value_ends_up_in_no_entry() -> None:
    package = {
        "registryType": "npm",
        "identifier": "x",
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "a\n## evil\ncommand: sh"}],
    }
    record = read_record({"name": "a.test/x", "version": "1.0.0", "packages": [package]})
    with pytest.raises(InvalidEntry):
        make_entry(choose(record, everywhere), "x", {}, "")


@pytest.mark.parametrize(
    "found",
    [None, 7, [], {}, {"name": "noslash", "version": "1"}, {"name": "a/b"}, {"name": "a/b", "version": ""}],
)
def test_a_record_that_names_nothing_is_refused(found: object) -> None:
    with pytest.raises(BadRecord):
        read_record(found)


KEYS = [
    *(
        "packages",
        "remotes",
        "transport",
        "registryType",
        "identifier",
        "headers",
        "url",
        "variables",
        "value",
    ),
    *(
        "runtimeArguments",
        "packageArguments",
        "environmentVariables",
        "type",
        "name",
        "version",
        "isRequired",
    ),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab{}$-\n/:@ .1", max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


def _planned(found: object) -> None:
    try:
        for one in plans(read_record(found)):
            if isinstance(one, Plan) and one.bundle is None:
                make_entry(one, "x", {}, "")
    except (BadRecord, InvalidEntry):
        pass


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))
def test_nothing_that_can_be_published_breaks_the_reader(found: dict[str, Any]) -> None:
    _planned({**found, "name": "a.test/x", "version": "1.0.0"})


def test_records_with_parts_exchanged_break_nothing() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        whole = json.loads(json.dumps(chance.choice(SAMPLE)))
        places: list[tuple[Any, Any]] = []

        def walk(value: Any, places: list[tuple[Any, Any]] = places) -> None:
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                places.append((value, key))
                if isinstance(inner, dict | list):
                    walk(inner)

        walk(whole)
        for _ in range(3):
            holder, key = chance.choice(places)
            holder[key] = chance.choice(
                [None, "", 0, [], {}, True, "{x}", "$x", "-y", "a\nb", {"type": "named"}]
            )
        _planned(whole)


# --- a whole catalog: made, or the crawl that PERDURE_CRAWL names ---------------------------------------------------


@pytest.fixture(scope="module")
def catalog() -> list[Record]:
    return [read_record(one) for one in load_records()]


def test_made_records_are_the_same_for_the_same_seed() -> None:
    assert make_records(50) == make_records(50)
    assert make_records(50) != make_records(50, seed=8)
    assert len({one["server"]["name"] for one in make_records(50)}) == 50


def test_every_record_of_a_catalog_gives_a_pinned_entry_or_a_reason(catalog: list[Record]) -> None:
    runnable = 0
    reasons: list[tuple[str, str]] = []
    for record in catalog:
        try:
            found = choose(record, everywhere)
        except NotRunnable as error:
            reasons.append((record.name, str(error)))
            continue
        runnable += 1
        if found.bundle is not None:
            assert len(found.bundle.sha256) == 64
            continue
        made = make_entry(found, short_name(record.name), {}, "https://catalog.test")
        if found.kind != "remote":
            assert found.spec in [arg.text for arg in made.args]
            assert any(letter.isdigit() for letter in found.spec)
            assert not {"latest", "sh", "bash", "-c"} & {arg.text for arg in made.args}
    assert runnable > 0.9 * len(catalog)
    assert all(name in reason for name, reason in reasons)


def test_every_server_of_a_catalog_can_be_installed_beside_all_others(catalog: list[Record]) -> None:
    taken: set[str] = set()
    lowered: set[str] = set()
    names = sorted({one.name for one in catalog})[:1000]
    for name in names:
        found = alias(name, taken)
        assert found.lower() not in lowered
        lowered.add(found.lower())
        assert len(found) <= 40
        taken.add(found)
    assert len(taken) == len(names)


# --- names and versions ------------------------------------------------------------------------------------------------


def test_a_name_that_says_nothing_gives_way_to_whose_it_is() -> None:
    assert short_name("com.stripe/mcp") == "stripe"
    assert short_name("io.github.acme/weather") == "weather"


def test_a_short_name_that_is_taken_is_made_longer() -> None:
    assert alias("io.github.acme/weather", {"weather"}) == "acme-weather"
    assert alias("io.github.acme/weather", {"weather", "ACME-weather"}) == "io-github-acme-weather"
    assert alias("a.b/c", {"c", "b-c", "a-b-c"}) == "a-b-c-2"


def test_versions_are_in_the_order_of_the_registry() -> None:
    rising = [
        "zzz",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0",
        "1.2.0",
        "1.10.0",
    ]
    assert sorted(rising, key=order) == rising
    assert order("snapshot", "2026-02-01T00:00:00Z") > order("edge", "2026-01-01T00:00:00Z")


def test_timestamps_compare_as_points_in_time() -> None:
    rising = [
        "not a timestamp",
        "2026-01-31T14:00:00+04:00",
        "2026-01-31T12:00:00Z",
        "2026-01-31t12:00:00.25z",
        "2026-01-31T12:00:00.5Z",
        "2026-01-31T11:00:01-01:00",
    ]
    falling = list(reversed(rising))
    assert sorted(falling, key=moment) == rising
    assert order("edge", rising[-2]) < order("edge", rising[-1])


@pytest.mark.parametrize("version", ["1.2.3", "v1.0", "0.1.0a3", "2025.11.25", "1.0.0-rc.1+b", "7"])
def test_an_exact_version_is_one(version: str) -> None:
    assert is_exact(version)


@pytest.mark.parametrize(
    "version", ["latest", "auto", "^1.2", "~1", "1.x", "1.2.*", ">=1", "1 - 2", "", "1.0 || 2", "*"]
)
def test_a_range_or_a_tag_is_none(version: str) -> None:
    assert not is_exact(version)

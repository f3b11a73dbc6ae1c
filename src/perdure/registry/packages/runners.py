"""How each kind of package is started: its runner, the exact version, arguments before and after it.

    npm     npx -y ID@VERSION ARGS            pypi    uvx ID==VERSION ARGS
    oci     docker run -i --rm -e … ID ARGS   nuget   dnx ID@VERSION --yes -- ARGS
    mcpb    a file, fetched and checked by its hash before it is used

A package of another index than the usual one of its kind is fetched from there: the usual one may have another package of
the same name. For the usual one no option is given, so that the user's own mirror is used.

The runner is not taken from the record: its `runtimeHint` is often not a runner at all. Neither are the words that start it:
what a record repeats of them is dropped, what the runner does not know goes after the package, where it can only reach the
package, and what would start something else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from perdure.registry.catalog.records import Package
from perdure.registry.catalog.semver import is_exact
from perdure.registry.http.address import Address, InvalidAddress, check_address, read_address
from perdure.registry.packages.launch_plan import ArgGroup, Bundle, Inputs, NotRunnable
from perdure.registry.templates import Template

# The runner, the word that pins the version, and all arguments.
Launch = tuple[str, str, list[ArgGroup]]

_NPM: Final = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-zA-Z0-9~][a-zA-Z0-9._~-]*", re.ASCII)
_PYPI: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._,-]+\])?", re.ASCII)
_NUGET: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)
_IMAGE: Final = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[a-f0-9]{64}))?",
    re.ASCII,
)
_SHA256: Final = re.compile(r"[a-f0-9]{64}")
_EXTRAS: Final = re.compile(r"\[[A-Za-z0-9._,-]+\]")
# Options of a runner that take a value; alone they would take the next word.
_DOCKER_VALUES: Final = frozenset(
    ["-e", "--env", "-v", "--volume", "-p", "--publish", "--name", "--network", "--mount", "-w", "-u"]
)
_DOCKER_OURS: Final = frozenset({"", "run", "docker", "-i", "--interactive", "--rm", "-it", "-t", "--tty"})
_DOCKER_POWERS: Final = (
    "--privileged", "-v", "--volume", "--mount", "--network", "--pid", "--cap-add", "--device", "--ipc",
)  # fmt: skip
_NPX_RUNS_ELSE: Final = frozenset(
    ["-c", "--call", "-p", "--package", "-w", "--workspace", "--workspaces", "--node-options", "--shell"]
)
_NPX_OPTIONS: Final = frozenset(
    [
        "-q", "--quiet", "--silent", "-s", "--loglevel", "--prefer-offline", "--prefer-online",
        "--offline", "--registry", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund",
        "--cache",
    ]
)  # fmt: skip
_UV_OPTIONS: Final = frozenset(
    [
        "--with", "--python", "-p", "--refresh", "--no-cache", "-n", "--isolated", "--prerelease",
        "--index", "--default-index", "--extra-index-url", "--index-url", "-i", "--native-tls",
        "--offline", "-q", "--quiet", "--no-progress", "--verbose", "-v", "--with-editable", "--upgrade",
        "-U", "--no-build", "--only-binary", "--resolution", "--constraints", "-c", "--env-file",
    ]
)  # fmt: skip
_INDEX_OPTIONS: Final = frozenset(
    [
        "--registry", "--index", "--default-index", "--extra-index-url", "--index-url", "--source",
        "--add-source",
    ]
)  # fmt: skip
# The host of the usual index of each kind. A host that only looks like it is not used either.
_USUAL_INDEX: Final = {
    "npm": re.compile(r"registry\.npm[a-z]*\.[a-z]+"),
    "pypi": re.compile(r"pypi\.[a-z]+"),
    "nuget": re.compile(r"(?:api|www)\.nuget\.[a-z]+"),
}


def literal_words(*words: str) -> ArgGroup:
    return ArgGroup(tuple(map(Template.literal, words)))


def npm(package: Package, inputs: Inputs) -> Launch:
    spec, name = _pin(package, _NPM, "@"), package.identifier
    before: list[ArgGroup] = []
    after: list[ArgGroup] = []
    for group in _runtime_arguments(package, inputs):
        if group.head in _NPX_RUNS_ELSE:
            raise NotRunnable(f"its arguments have npx run something else ({group.head})")
        if group.head in ("-y", "--yes", "--no-install"):
            group = ArgGroup(group.texts[1:])
        if group.head and group.head != name and not group.head.startswith(f"{name}@"):
            (before if _option(group) in _NPX_OPTIONS else after).append(group)
    after += inputs.arguments(package.package_arguments)
    before += _index_arguments(package, before)
    return "npx", spec, [literal_words("-y"), *before, literal_words(spec), *after]


def pypi(package: Package, inputs: Inputs) -> Launch:
    name = package.identifier.partition("[")[0]
    before: list[ArgGroup] = []
    after: list[ArgGroup] = []
    script: list[ArgGroup] = []
    requirement = ""
    for group in _runtime_arguments(package, inputs):
        if group.head == "--from":
            if not _is_same_project(group.value, name):
                raise NotRunnable("its arguments have uvx take another package")
            requirement = group.value
        elif _is_same_project(group.head, name):
            requirement = group.head
        elif group.head == "-m":
            script = [literal_words("python"), group]
        elif _option(group) in _UV_OPTIONS:
            before.append(group)
        elif group.head.startswith("-") or not (requirement or script):
            after.append(group)
        else:
            script.append(group)
    after += inputs.arguments(package.package_arguments)
    spec = _pin(package, _PYPI, "==")
    if (extras := _EXTRAS.search(requirement)) and "[" not in package.identifier:
        spec = spec.replace("==", f"{extras[0]}==")
    before += _index_arguments(package, before)
    run = [literal_words("--from", spec), *script] if script else [literal_words(spec)]
    return "uvx", spec, [*before, *run, *after]


def oci(package: Package, inputs: Inputs, env: dict[str, Template]) -> Launch:
    """The container gets the variables of `env` by name, one by one."""
    image = _image(package)
    before: list[ArgGroup] = []
    after: list[ArgGroup] = []
    for group in inputs.arguments(package.runtime_arguments):
        is_value = len(group.texts) == 1 and not group.head.startswith("-")
        if before and is_value and _lacks_value(before[-1], inputs):
            before[-1] = ArgGroup((before[-1].texts[0], *group.texts))  # `-e` and `NAME` as two arguments
        elif group.head not in _DOCKER_OURS and _image_name(group.head) != _image_name(image):
            (before if group.head.startswith("-") else after).append(group)
    before = [group for group in before if not _lacks_value(group, inputs)]
    for name, text in env.items():
        if not any(group.value.partition("=")[0] == name for group in before):
            before.append(ArgGroup((Template.literal("-e"), Template.literal(name)), needs=text))
    after += inputs.arguments(package.package_arguments)
    return "docker", image, [literal_words("run", "-i", "--rm"), *before, literal_words(image), *after]


def nuget(package: Package, inputs: Inputs) -> Launch:
    spec = _pin(package, _NUGET, "@")
    before = [
        group
        for group in inputs.arguments(package.runtime_arguments)
        if group.head.startswith("-") and group.head not in ("--yes", "-y", "--")
    ]
    before += _index_arguments(package, before)
    after = inputs.arguments(package.package_arguments)
    rest = [literal_words("--"), *after] if after else []
    return "dnx", spec, [literal_words(spec, "--yes"), *before, *rest]


def bundle(package: Package) -> Bundle:
    try:
        check_address(read_address(package.identifier), allow_http=False)
    except InvalidAddress:
        raise NotRunnable("its bundle cannot be fetched over https") from None
    if not _SHA256.fullmatch(package.file_sha256):
        raise NotRunnable("its bundle has no hash to check it by")
    return Bundle(package.identifier, package.file_sha256)


def docker_powers(words: Iterable[ArgGroup]) -> list[str]:
    """The options that give a container access to this machine."""
    options = ("-v" if group.head.startswith("-v") else _option(group) for group in words)
    return sorted({option for option in options if option in _DOCKER_POWERS})


def index_options(words: Iterable[ArgGroup]) -> list[str]:
    """The options by which a runner takes packages from another index than the user's own."""
    return sorted({_option(group) for group in words} & _INDEX_OPTIONS)


def _index_arguments(package: Package, given: Iterable[ArgGroup]) -> list[ArgGroup]:
    """The words that name the package's own index. Raises NotRunnable if it must not be used."""
    if not package.base_url or index_options(given):
        return []
    address = _usable_address(package.base_url, "its package index cannot be used")
    if address.userinfo or address.query:
        raise NotRunnable("its package index cannot be used: its URL holds more than an address")
    if _USUAL_INDEX[package.registry_type].fullmatch(address.host.lower()):
        return []
    url = address.shown.rstrip("/")
    match package.registry_type:
        case "npm":
            return [literal_words(f"--registry={url}/")]
        case "pypi":
            return [literal_words("--index", url if address.path.strip("/") else f"{url}/simple")]
    return [literal_words("--source", url)]


def _usable_address(url: str, problem: str) -> Address:
    try:
        return check_address(read_address(url), allow_http=False)
    except InvalidAddress as error:
        raise NotRunnable(f"{problem}: {error.message}") from None


def _pin(package: Package, name: re.Pattern[str], mark: str) -> str:
    if not name.fullmatch(package.identifier):
        raise NotRunnable(f"its package has no usable name for {package.registry_type}")
    if not package.version:
        raise NotRunnable("its package has no version")
    if not is_exact(package.version):
        raise NotRunnable(f"its package has no exact version but {package.version}")
    return f"{package.identifier}{mark}{package.version}"


def _image(package: Package) -> str:
    identifier = package.identifier
    host, slash, _ = identifier.partition("/")
    if package.base_url and not (slash and ("." in host or ":" in host)):
        address = _usable_address(package.base_url, "its image registry cannot be used")
        identifier = f"{address.origin.partition('://')[2]}/{identifier}"
    match = _IMAGE.fullmatch(identifier)
    if match is None:
        raise NotRunnable("its image has no usable name")
    if match["digest"]:
        return identifier
    tag = match["tag"] or package.version
    if not tag:
        raise NotRunnable("its image has no version")
    if not any(letter.isdigit() for letter in tag):  # `latest`, `main`: another image tomorrow
        raise NotRunnable(f"its image has no exact version but {tag}")
    return identifier if match["tag"] else f"{identifier}:{tag}"


def _image_name(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _lacks_value(group: ArgGroup, inputs: Inputs) -> bool:
    """Whether an option that takes a value has none, nor an input that will have one."""
    if group.head not in _DOCKER_VALUES:
        return False
    variables = [inputs.prompts[part.variable] for text in group.texts[1:] for part in text.references()]
    has_literal = any(text.parts and not text.references() for text in group.texts[1:])
    has_value = any(prompt.required or prompt.default is not None for prompt in variables)
    return not has_literal and not has_value


def _runtime_arguments(package: Package, inputs: Inputs) -> list[ArgGroup]:
    groups = inputs.arguments(package.runtime_arguments)
    if {"run", "--rm"} <= {group.head for group in groups}:
        raise NotRunnable(
            f"its runtime arguments are docker's, and it is a package of the kind {package.registry_type}"
        )
    return groups


def _is_same_project(word: str, name: str) -> bool:
    """Whether a word names this project, whatever its extras and version."""
    base = re.split(r"[=<>~!@\[ ]", word, maxsplit=1)[0]
    return bool(base) and re.sub(r"[-_.]+", "-", base).lower() == re.sub(r"[-_.]+", "-", name).lower()


def _option(group: ArgGroup) -> str:
    return group.head.partition("=")[0]

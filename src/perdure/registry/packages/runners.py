"""How each kind of package is started: its runner, the exact version, arguments in front and behind.

    npm     npx -y ID@VERSION ARGS            pypi    uvx ID==VERSION ARGS
    oci     docker run -i --rm -e … ID ARGS   nuget   dnx ID@VERSION --yes -- ARGS
    mcpb    a file, fetched and checked by its hash before it is used

A package of another index than its kind's usual one is asked for there: under the same name the usual one may have
something else. For the usual one nothing is said, so that the user's own mirror is used.

The runner is ours to choose: what records say about it (`runtimeHint`) is often not a runner at all. So are the
words that start it: what a record repeats of them is dropped, what the runner does not know goes behind the package,
where it can only reach the package, and what would start something else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from perdure.registry.catalog.records import Argument, Package
from perdure.registry.catalog.semver import is_exact
from perdure.registry.http.address import InvalidAddress, check_address, read_address
from perdure.registry.packages.launch_plan import (
    ArgGroup,
    Bundle,
    InputPrompt,
    Naming,
    NotRunnable,
    TextTemplate,
    argument_words,
)

_NPM: Final = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-zA-Z0-9~][a-zA-Z0-9._~-]*", re.ASCII)
_PYPI: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._,-]+\])?", re.ASCII)
_NUGET: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)
_IMAGE: Final = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[a-f0-9]{64}))?",
    re.ASCII,
)
_SHA256: Final = re.compile(r"[a-f0-9]{64}")
# Options of a runner that take a value; alone they would swallow what follows.
_DOCKER_VALUES: Final = frozenset(
    ["-e", "--env", "-v", "--volume", "-p", "--publish", "--name", "--network", "--mount", "-w", "-u"]
)
_DOCKER_OURS: Final = frozenset({"-i", "--interactive", "--rm", "-it", "-t", "--tty"})
_DOCKER_POWERS: Final = (
    "--privileged", "-v", "--volume", "--mount", "--network", "--pid", "--cap-add", "--device", "--ipc",
)  # fmt: skip
_NPX_ELSE: Final = frozenset(
    ["-c", "--call", "-p", "--package", "-w", "--workspace", "--workspaces", "--node-options", "--shell"]
)
_NPX_OPTIONS: Final = frozenset(
    [
        "-q", "--quiet", "--silent", "-s", "--loglevel", "--prefer-offline", "--prefer-online",
        "--offline", "--registry", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund",
        "--cache",
    ]
)  # fmt: skip
_ELSEWHERE: Final = frozenset(
    [
        "--registry", "--index", "--default-index", "--extra-index-url", "--index-url", "--source",
        "--add-source",
    ]
)  # fmt: skip
# The usual index of each kind, as a host is written. One that only looks like it is not asked either.
_USUAL: Final = {
    "npm": re.compile(r"registry\.npm[a-z]*\.[a-z]+"),
    "pypi": re.compile(r"pypi\.[a-z]+"),
    "nuget": re.compile(r"(?:api|www)\.nuget\.[a-z]+"),
}
_UV_OPTIONS: Final = frozenset(
    [
        "--with", "--python", "-p", "--refresh", "--no-cache", "-n", "--isolated", "--prerelease",
        "--index", "--default-index", "--extra-index-url", "--index-url", "-i", "--native-tls",
        "--offline", "-q", "--quiet", "--no-progress", "--verbose", "-v", "--with-editable", "--upgrade",
        "-U", "--no-build", "--only-binary", "--resolution", "--constraints", "-c", "--env-file",
    ]
)  # fmt: skip


def words_of(arguments: Iterable[Argument], naming: Naming) -> list[ArgGroup]:
    return [words for one in arguments if (words := argument_words(one, naming)) is not None]


def fixed(*words: str) -> ArgGroup:
    return ArgGroup(tuple(TextTemplate((word,)) for word in words))


def index_words(package: Package, given: Iterable[ArgGroup]) -> list[ArgGroup]:
    """The words that send the runner to the package's own index. Raises NotRunnable where that may not be used."""
    url = package.base_url
    if not url or elsewhere(given):
        return []
    try:
        address = check_address(read_address(url), allow_http=False)
    except InvalidAddress as error:
        raise NotRunnable(f"its package index cannot be used: {error.message}") from None
    if address.userinfo or address.query:
        raise NotRunnable("its package index cannot be used: its URL holds more than a place")
    if _USUAL[package.registry_type].fullmatch(address.host.lower()):
        return []
    place = address.shown.rstrip("/")
    match package.registry_type:
        case "npm":
            return [fixed(f"--registry={place}/")]
        case "pypi":
            return [fixed("--index", place if address.path.strip("/") else f"{place}/simple")]
        case _:
            return [fixed("--source", place)]


def npm(package: Package, naming: Naming) -> tuple[str, str, list[ArgGroup]]:
    """The runner, the word that pins the version, and all words."""
    spec = _pinned(package, _NPM, "@")
    own = package.identifier
    front: list[ArgGroup] = []
    behind: list[ArgGroup] = []
    for words in _runtime_words(package, naming):
        head = _head(words)
        if head in _NPX_ELSE:
            raise NotRunnable(f"its arguments have npx run something else ({head})")
        if head in ("-y", "--yes", "--no-install"):
            words = ArgGroup(words.texts[1:])
            head = _head(words)
        if head and head != own and not head.startswith(f"{own}@"):
            (front if head.partition("=")[0] in _NPX_OPTIONS else behind).append(words)
    behind += words_of(package.package_arguments, naming)
    front += index_words(package, front)
    return "npx", spec, [fixed("-y"), *front, fixed(spec), *behind]


def pypi(package: Package, naming: Naming) -> tuple[str, str, list[ArgGroup]]:
    own = package.identifier.partition("[")[0]
    front: list[ArgGroup] = []
    behind: list[ArgGroup] = []
    script: list[ArgGroup] = []
    named = ""
    for words in _runtime_words(package, naming):
        head, value = _head(words), _value(words)
        if head == "--from":
            if not _same_project(value, own):
                raise NotRunnable("its arguments have uvx take another package")
            named = value
        elif _same_project(head, own):
            named = head
        elif head == "-m":
            script = [fixed("python"), words]
        elif head.partition("=")[0] in _UV_OPTIONS:
            front.append(words)
        elif head.startswith("-") or not (named or script):
            behind.append(words)
        else:
            script.append(words)
    behind += words_of(package.package_arguments, naming)
    extras = re.search(r"\[[A-Za-z0-9._,-]+\]", named)
    spec = _pinned(package, _PYPI, "==")
    if extras and "[" not in package.identifier:
        spec = spec.replace("==", f"{extras[0]}==")
    front += index_words(package, front)
    if script:
        return "uvx", spec, [*front, fixed("--from", spec), *script, *behind]
    return "uvx", spec, [*front, fixed(spec), *behind]


def oci(
    package: Package, naming: Naming, env: Mapping[str, TextTemplate] = MappingProxyType({})
) -> tuple[str, str, list[ArgGroup]]:
    """`env` is what the container's environment is filled with; its names are passed on one by one."""
    image = _image(package)
    own = _image_name(image)
    front: list[ArgGroup] = []
    behind: list[ArgGroup] = []
    for words in words_of(package.runtime_arguments, naming):
        head = _head(words)
        if front and len(words.texts) == 1 and not head.startswith("-") and _is_open(front[-1]):
            front[-1] = ArgGroup((front[-1].texts[0], *words.texts))  # `-e` and `NAME` as two arguments
        elif head in ("run", "docker", "") or head in _DOCKER_OURS or _image_name(head) == own:
            continue
        else:
            (front if head.startswith("-") else behind).append(words)
    front = [words for words in front if not _is_open(words)]
    for name, text in env.items():
        if not any(_value(words).partition("=")[0] == name for words in front):
            front.append(ArgGroup((TextTemplate(("-e",)), TextTemplate((name,))), needs=text))
    behind += words_of(package.package_arguments, naming)
    return "docker", image, [fixed("run", "-i", "--rm"), *front, fixed(image), *behind]


def nuget(package: Package, naming: Naming) -> tuple[str, str, list[ArgGroup]]:
    spec = _pinned(package, _NUGET, "@")
    front = [
        words
        for words in words_of(package.runtime_arguments, naming)
        if _head(words) not in ("dnx", "--yes", "-y", "--") and _head(words).startswith("-")
    ]
    front += index_words(package, front)
    behind = words_of(package.package_arguments, naming)
    return "dnx", spec, [fixed(spec, "--yes"), *front, *([fixed("--"), *behind] if behind else [])]


def bundle(package: Package) -> Bundle:
    try:
        check_address(read_address(package.identifier), allow_http=False)
    except InvalidAddress:
        raise NotRunnable("its bundle cannot be fetched over https") from None
    if not _SHA256.fullmatch(package.file_sha256):
        raise NotRunnable("its bundle has no hash to check it by")
    return Bundle(package.identifier, package.file_sha256)


def docker_powers(words: Iterable[ArgGroup]) -> list[str]:
    """What of this machine a container is given, worth a look before it is started."""
    heads = (_head(one).partition("=")[0] for one in words)
    found = ("-v" if head.startswith("-v") else head for head in heads)
    return sorted({head for head in found if head in _DOCKER_POWERS})


def elsewhere(words: Iterable[ArgGroup]) -> list[str]:
    """The options by which a runner is sent to another place than the user's own for its packages."""
    heads = (_head(one).partition("=")[0] for one in words)
    return sorted({head for head in heads if head in _ELSEWHERE})


def _pinned(package: Package, form: re.Pattern[str], mark: str) -> str:
    if not form.fullmatch(package.identifier):
        raise NotRunnable(f"its package has no usable name for {package.registry_type}")
    if not package.version:
        raise NotRunnable("its package has no version")
    if not is_exact(package.version):
        raise NotRunnable(f"its package has no exact version but {package.version}")
    return f"{package.identifier}{mark}{package.version}"


def _image(package: Package) -> str:
    identifier = _placed(package)
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


def _placed(package: Package) -> str:
    """The image with the host that it is at, where the record keeps the two apart."""
    first = package.identifier.partition("/")[0]
    if not package.base_url or ("/" in package.identifier and ("." in first or ":" in first)):
        return package.identifier
    try:
        address = check_address(read_address(package.base_url), allow_http=False)
    except InvalidAddress as error:
        raise NotRunnable(f"its image registry cannot be used: {error.message}") from None
    return f"{address.origin.partition('://')[2]}/{package.identifier}"


def _image_name(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _is_open(words: ArgGroup) -> bool:
    """Whether an option that takes a value has none, and no place for one that must be filled."""
    if _head(words) not in _DOCKER_VALUES:
        return False
    return all(
        isinstance(part, InputPrompt) and not part.required and part.default is None
        for text in words.texts[1:]
        for part in text.parts
    )


def _runtime_words(package: Package, naming: Naming) -> list[ArgGroup]:
    found = words_of(package.runtime_arguments, naming)
    if {"run", "--rm"} <= {_head(words) for words in found}:
        raise NotRunnable(
            f"its runtime arguments are docker's, and it is a package of the kind {package.registry_type}"
        )
    return found


def _same_project(word: str, own: str) -> bool:
    """Whether a word names this project, whatever its extras and version."""
    base = re.split(r"[=<>~!@\[ ]", word, maxsplit=1)[0]
    return bool(base) and re.sub(r"[-_.]+", "-", base).lower() == re.sub(r"[-_.]+", "-", own).lower()


def _head(words: ArgGroup) -> str:
    return _literal(words.texts[0]) if words.texts else ""


def _value(words: ArgGroup) -> str:
    return _literal(words.texts[1]) if len(words.texts) > 1 else ""


def _literal(text: TextTemplate) -> str:
    """What begins a text, up to its first hole."""
    return text.parts[0] if text.parts and isinstance(text.parts[0], str) else ""

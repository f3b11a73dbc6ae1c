"""The settings files of a workspace: which there are, whether the user trusts them, what they start and set.

| file | what waits until it is trusted |
|---|---|
| `perdure.toml` | `[mounts]`, and the keys that `workspace_settings.py` lists |
| `mcp.md`, `mcp.json`, or the file that `registry` names | its servers and allowed commands; the user's registry is used |
| `policy.yaml`, `.perdure/policy.yaml`, `.resilient_write/policy.yaml`, or the file that `policy` names | what loosens |

What the user typed is trusted as it is: options, environment variables, and files of the user's config directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.host.settings import Settings
from perdure.host.settings_file import FILE_NAME, SettingsError, file_mounts, read_file, user_file
from perdure.protocol.pending_trust import Start, UntrustedFile
from perdure.registry.location import FILE_NAMES, locate, user_folder
from perdure.storage.trust import TrustStore, Verdict, sha256

if TYPE_CHECKING:
    from perdure.registry.entry import Entry
    from perdure.registry.file.document import Document

POLICY_PLACES: Final = (".perdure/policy.yaml", ".resilient_write/policy.yaml", "policy.yaml")
WORKSPACE_FILES: Final = (FILE_NAME, *FILE_NAMES, *POLICY_PLACES)
MOST_DESCRIBED: Final = 1024 * 1024
REGISTRY_ENDINGS: Final = (".md", ".json", ".jsonc")


class Contents(NamedTuple):
    """What a file starts and sets. `facts` has one line for each, for a person to read, without secrets."""

    starts: tuple[Start, ...] = ()
    settings: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    problem: str = ""


class WorkspaceFile(NamedTuple):
    path: str
    content: bytes
    verdict: Verdict
    contents: Contents

    @property
    def sha256(self) -> str:
        return sha256(self.content)

    @property
    def waits(self) -> bool:
        """Whether something in it does not count yet."""
        contents = self.contents
        return self.verdict != "trusted" and bool(contents.starts or contents.settings or contents.problem)

    @property
    def untrusted(self) -> UntrustedFile:
        return UntrustedFile(
            self.path,
            self.verdict == "changed",
            self.contents.starts,
            self.contents.settings,
            self.contents.problem,
        )


# --- which files there are --------------------------------------------------------------------------------


def workspace_files(settings: Settings, environ: Mapping[str, str]) -> list[WorkspaceFile]:
    """The files that count here, or would. One that cannot be read has a problem instead of contents."""
    return [
        WorkspaceFile(path, content, verdict, _described(path, content, environ))
        for path, content, verdict in _judged(settings, environ)
    ]


def untrusted_files(settings: Settings, environ: Mapping[str, str]) -> tuple[UntrustedFile, ...]:
    """Those in which something waits. A host asks for them: a huge one is named, and not looked into."""
    found = []
    for path, content, verdict in _judged(settings, environ):
        if verdict != "trusted":
            is_huge = len(content) > MOST_DESCRIBED
            contents = Contents(problem="it is large") if is_huge else _described(path, content, environ)
            file = WorkspaceFile(path, content, verdict, contents)
            found += [file.untrusted] if file.waits else []
    return tuple(found)


def _judged(settings: Settings, environ: Mapping[str, str]) -> Iterator[tuple[str, bytes, Verdict]]:
    store = TrustStore()
    for path in _paths(settings, environ):
        if (content := _read(path)) is not None:
            yield path, content, store.verdict(path, content)


def _paths(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    root = settings.workspaces[0]
    if root == os.path.realpath(user_folder(environ)):
        return []
    found = [settings_path(settings)]
    if (registry := workspace_registry(settings, environ)) is not None and "://" not in registry:
        found.append(registry)
    if settings.policy is None:
        named = settings.workspace_policy
        found += [named] if named is not None else []
        found += [path for place in POLICY_PLACES if _is_policy_place(path := os.path.join(root, place))]
    roots = (root, os.path.dirname(settings_path(settings)))
    return [
        path
        for path in dict.fromkeys(found)
        if any(is_inside(one, path) for one in roots) and os.path.lexists(path)
    ]


def settings_path(settings: Settings) -> str:
    return os.path.join(settings.settings_root or settings.workspaces[0], FILE_NAME)


def _is_policy_place(path: str) -> bool:
    """`policy.yaml` is also a name of other programs' files: by its keys."""
    if not os.path.lexists(path) or os.path.dirname(path).endswith((".perdure", ".resilient_write")):
        return os.path.lexists(path)
    from perdure.workspace.policy_file import is_policy

    return os.path.isfile(path) and is_policy(path)


def is_inside(root: str, path: str) -> bool:
    """By its name alone: a link in a workspace is a file of the workspace, wherever it leads."""
    return not os.path.relpath(path, root).startswith(os.pardir)


def workspace_registry(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The registry that the workspace brings along; None where it has none or the user named one."""
    root = settings.workspaces[0]
    if settings.registry or environ.get("PERDURE_REGISTRY") or root == os.path.realpath(user_folder(environ)):
        return None
    if settings.workspace_registry is not None:
        return settings.workspace_registry
    paths = (os.path.join(root, name) for name in FILE_NAMES)
    return next((path for path in paths if os.path.lexists(path)), None)


def registry_place(settings: Settings, environ: Mapping[str, str]) -> str:
    """The registry in force: the one that the user named, else the workspace's once it is trusted, else the user's."""
    found = workspace_registry(settings, environ)
    if found is not None and "://" in found:
        return found
    content = _read(found) if found is not None else None
    if found is not None and content is not None and registry_verdict(settings, found, content) == "trusted":
        return found
    return locate(settings.registry, None, environ)


def registry_verdict(settings: Settings, path: str, content: bytes) -> Verdict:
    """Of the file that `workspace_registry` gave. One elsewhere was named by settings that are trusted."""
    return TrustStore().verdict(path, content) if is_inside(settings.workspaces[0], path) else "trusted"


def _read(path: str) -> bytes | None:
    from perdure.registry.errors import RegistryError
    from perdure.registry.file.document import read_bytes

    try:
        return read_bytes(path)
    except RegistryError:
        return None  # whoever uses it says so


def trust_mark(settings: Settings) -> str:
    """Stands for what is trusted of the files that the worker reads: another mark, another worker."""
    store = TrustStore()
    if not os.path.isdir(store.folder):
        return ""
    root = settings.workspaces[0]
    paths = [settings_path(settings), *(os.path.join(root, name) for name in POLICY_PLACES)]
    paths += [settings.workspace_policy] if settings.workspace_policy is not None else []
    records = [record.sha256 for path in paths if (record := store.record_of(path)) is not None]
    return sha256("".join(records).encode())[:16] if records else ""


# --- what is in a file ---------------------------------------------------------------------------------------


def contents_of(path: str, content: bytes, environ: Mapping[str, str]) -> Contents:
    """What trusting this content would start and set."""
    if os.path.basename(path) == FILE_NAME:
        return _settings_contents(path, content, environ)
    if path.endswith(REGISTRY_ENDINGS):
        return _registry_contents(path, content)
    return _policy_contents(path, content)


def _described(path: str, content: bytes, environ: Mapping[str, str]) -> Contents:
    """Describing a file is for people: whatever is in it, a host that describes it goes on."""
    try:
        return contents_of(path, content, environ)
    except Exception as error:
        return Contents(problem=f"it cannot be read: {type(error).__name__}")


def _registry_contents(path: str, content: bytes) -> Contents:
    from perdure.registry.errors import RegistryError
    from perdure.registry.file.backend import parse_document

    try:
        document = parse_document(path, content)
        entries = [slot.entry for slot in document.slots if slot.entry is not None]
    except RegistryError as error:
        return Contents(problem=error.message)
    added = _added_commands(document)
    facts = [line for entry in entries for line in _entry_facts(entry)]
    facts += [f"allow the command {name}" for name in added]
    return Contents(
        tuple(start_of(entry) for entry in entries if entry.enabled),
        tuple(f"allowed-commands.{name}" for name in added),
        tuple(facts),
    )


def _added_commands(document: Document) -> list[str]:
    """Commands that may be started besides the usual ones."""
    from perdure.registry.allowed_commands import DEFAULT

    return [printable(name) for name in sorted((document.allowed or frozenset()) - DEFAULT)]


def start_of(entry: Entry) -> Start:
    from perdure.registry.redaction import mask_args, mask_url

    if entry.command is not None:
        return Start(entry.name, command=command_line(mask_args([entry.command, *entry.args])))
    return Start(entry.name, url=printable(mask_url(entry.url) if entry.url is not None else ""))


def command_line(words: list[str]) -> str:
    from shlex import join

    return printable(join(words))


def _entry_facts(entry: Entry) -> Iterator[str]:
    from perdure.registry.entry import Entry
    from perdure.registry.redaction import mask_entry

    start = start_of(entry)
    verb = "start" if start.command else "connect"
    note = "" if entry.enabled else " (disabled)"
    yield f"{verb} {entry.name}: {start.shown}{note}"
    known = mask_entry(entry)
    usual = mask_entry(
        Entry(name=entry.name, transport=entry.transport, command=entry.command, url=entry.url)
    )
    for key in ("cwd", "env", "headers", "oauth", "tools", "replay", "start", "restart", "timeouts"):
        if known.get(key) != usual.get(key):
            yield from (f"  {entry.name} {line}" for line in _leaves(key, known.get(key)))


def _settings_contents(path: str, content: bytes, environ: Mapping[str, str]) -> Contents:
    from perdure.host.settings_file import parse_file
    from perdure.host.workspace_settings import waiting_keys
    from perdure.registry.redaction import mask_args

    user = read_file(user_file(environ))
    try:
        written = parse_file(path, content)
        mounts = file_mounts(written)
    except SettingsError as error:
        return Contents(problem=str(error))
    starts = tuple(Start(name, command=command_line(mask_args(list(argv)))) for name, argv in mounts.items())
    table = _parsed(content)
    keys = []
    for key in waiting_keys(written, user, os.path.dirname(path)):
        if key != "mounts":  # listed as what they start
            keys += [f"{key}.{name}" for name in table[key]] if isinstance(table[key], dict) else [key]
    if isinstance(written.policy, dict):
        keys += [f"policy.{key}" for key in _loosening(written.policy)]
    facts = [f"start {start.name}: {start.command}" for start in starts]
    facts += [line for key in keys for line in _facts_of(key, table)]
    return Contents(starts, tuple(keys), tuple(facts))


def _parsed(content: bytes) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(content.decode())


def _facts_of(key: str, table: Mapping[str, Any]) -> Iterator[str]:
    """The value of a dotted key, shown."""
    value: Any = table
    for step in key.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    yield from _leaves(key, value)


def _policy_contents(path: str, content: bytes) -> Contents:
    from perdure.protocol.envelope import ToolError
    from perdure.workspace.policy_file import values_of

    try:
        values = values_of(path, content)
        loose = _loosening(values)
    except ToolError as error:
        return Contents(problem=str(error.envelope.context.get("message", "it cannot be read")))
    return Contents((), tuple(loose), tuple(line for key in loose for line in _facts_of(key, values)))


def _loosening(table: Mapping[str, Any]) -> tuple[str, ...]:
    from perdure.workspace.policy import DEFAULT, BadPolicy, tighten

    try:
        return tighten(DEFAULT, table)[1]
    except BadPolicy:
        return ()  # it is refused as a whole, wherever it is used


def _leaves(key: str, value: Any) -> Iterator[str]:
    """One line per value, so that a difference shows exactly what differs."""
    from perdure.registry.redaction import mask_url, scrub

    if value in (None, "", [], {}, False):
        return
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(f"{key}.{name}", one)
        return
    if isinstance(value, str):
        value = mask_url(value) if "://" in value else scrub(value)
    from json import dumps

    yield printable(f"{key} = {dumps(value, ensure_ascii=False, default=str)}")


def printable(text: str) -> str:
    """Foreign text on a terminal: nothing in it moves the cursor or turns the direction of reading."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)

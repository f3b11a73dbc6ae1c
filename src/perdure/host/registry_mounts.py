"""The registry as the host sees it: which servers to mount, what each is started with, and what changed since.

Only looked at where there is one. References are resolved when a server is started and kept nowhere; what a server
says on standard error is scrub of them. A registry that cannot be read now leaves the mounts as they are.

A registry in the workspace, and `[mounts]` of the workspace's `perdure.toml`, are mounted once the user trusts them.
Until then their servers are listed and not started, and the user's own registry is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.bridge.target import SIGN_IN_CODE, TARGET_ENV
from perdure.host.launch import BUILTIN, builtin_spec, environment, minimal, mount_spec, own_command
from perdure.host.settings import Settings, load
from perdure.host.settings_file import user_file
from perdure.host.workspace_trust import (
    WORKSPACE_FILES,
    registry_place,
    registry_verdict,
    settings_path,
    trust_mark,
    untrusted_files,
    workspace_registry,
)
from perdure.kernel.events import Approved, Event, FileFaults, Remount
from perdure.kernel.state import KnownTools
from perdure.protocol.faults import Fault, printable
from perdure.protocol.mount_names import RESERVED, SEPARATOR
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile, untrusted_mount
from perdure.registry.location import FILE_NAMES, user_folder
from perdure.storage.trust import TrustStore
from perdure.storage.user_dirs import private_dir, sign_ins_folder, state_dir, write_private
from perdure.supervise.child import Launch

if TYPE_CHECKING:
    from perdure.registry.entry import Entry
    from perdure.registry.file.document import Document
    from perdure.registry.http.mirror import Mirror

TAIL_CHARACTERS: Final = 1000
MOST_PREFIX: Final = 128  # what an entry's name may have at most


class RegistryMounts:
    """`taken` are the names that options and settings have given already: they come first."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], taken: frozenset[str]) -> None:
        self._settings = settings
        self._environ = environ
        self._taken = taken | RESERVED
        self._entries: dict[str, Entry] = {}
        self._problems: dict[str, str] = {}
        self._allowed: frozenset[str] | None = None
        self._base = ""
        self._seen = ""
        self._faults: tuple[Fault, ...] = ()
        self._listed: dict[str, MountSpec] = {}
        """Of the registry alone."""
        self._specs: dict[str, MountSpec] = {}
        self._mirror: Mirror | None = None
        self._mounts: dict[str, tuple[str, ...]] = {}
        self.untrusted: tuple[UntrustedFile, ...] = ()
        self._trust_mark = trust_mark(settings)
        self.own: dict[str, MountSpec] = {}
        """The worker, as it is to be started since a file was trusted."""

    # --- what to mount ------------------------------------------------------------------------------------

    def specs(self) -> dict[str, MountSpec]:
        """The servers that the registry says are used, as far as it can be read. Never raises."""
        place = "the registry"
        self._mounts = {
            name: argv for name, argv in self._settings.file_mounts.items() if name not in self._taken
        }
        try:
            self._seen = self._signature()
            place = self.place()
            if "://" not in place and not os.path.lexists(place):
                self._forget_listed()
            else:
                self._read(place)
            self._faults = ()
        except Exception as error:
            self._faults = (_read_fault(place, error),)
        self._specs = {**self._settings_specs(), **self._listed}
        try:
            self._add_untrusted()
        except Exception as error:
            self._faults += (_read_fault(settings_path(self._settings), error),)
        return self._specs

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Why the file could not be read the last time; then the mounts are those of the time before."""
        return self._faults

    @property
    def current(self) -> dict[str, MountSpec]:
        """As it was last read."""
        return self._specs

    def entry(self, name: str) -> Entry | None:
        """As the registry lists it; references unresolved."""
        return self._entries.get(name)

    def news(self) -> list[Event]:
        """What changed since it was last read. Never raises: a fault of the file becomes a fault in `health`."""
        try:
            if self._mirror is not None:
                self._mirror.tend()
            if self._signature() == self._seen:
                return []
            self._renew_settings()
            self._renew_worker()
        except Exception as error:
            self._seen = ""  # read it again as soon as it can be looked at
            self._faults = (_read_fault("the registry", error),)
            return [FileFaults("registry", self._faults)]
        found: list[Event] = [
            Remount({**self.specs(), **self.own}, self.untrusted),
            FileFaults("registry", self._faults),
            FileFaults("settings", self._settings.faults),
        ]
        for name, spec in self._specs.items():
            if spec.pin and (tools := self.known_tools(name)) is not None and tools.known:
                found.append(Approved(name, tools.known))
        return found

    def _read(self, location: str) -> None:
        """Read the file and take it over whole, or raise and change nothing."""
        from perdure.registry.backend import open_backend
        from perdure.registry.errors import RegistryError
        from perdure.registry.file.backend import FileBackend

        here = self._copied(location) if "://" in location else location
        backend = open_backend(here, self._environ)
        if not isinstance(backend, FileBackend):
            raise RegistryError("only a registry in a file can be mounted")
        document = backend.read()
        if not self._is_trusted(location, document):
            self._forget_listed()
            return
        before = (self._base, self._allowed, self._entries, self._problems, self._listed)
        try:
            self._adopt(backend.path, document)
        except Exception:
            self._base, self._allowed, self._entries, self._problems, self._listed = before
            raise

    def _forget_listed(self) -> None:
        self._entries, self._problems, self._allowed, self._listed = {}, {}, None, {}

    def _adopt(self, path: str, document: Document) -> None:
        self._base = os.path.dirname(os.path.realpath(path))
        self._allowed = document.allowed
        taken = self._taken | set(self._mounts)
        first = {slot.name: slot for slot in reversed(document.slots)}
        used = [slot for slot in document.slots if first[slot.name] is slot and slot.name not in taken]
        self._entries = {
            slot.name: slot.entry for slot in used if slot.entry is not None and slot.entry.enabled
        }
        self._problems = {
            slot.name: printable(f"{path}, line {slot.line}: {slot.error}") for slot in used if slot.error
        }
        prefixes = _prefixes([*self._entries, *self._problems])
        self._listed = {name: self._spec(entry, prefixes[name]) for name, entry in self._entries.items()}
        for name in self._problems:
            self._listed[name] = MountSpec(
                name, prefix=prefixes[name], managed=True, mark=self._problems[name]
            )

    # --- what a workspace brings along ----------------------------------------------------------------------

    def _renew_settings(self) -> None:
        """A file that is trusted now may say where state goes, or how long a call may take."""
        settings = load(self._settings.typed, self._environ, leave_out_faults=True)
        kept = self._settings
        self._settings = msgspec.structs.replace(
            settings, workspaces=kept.workspaces, settings_root=kept.settings_root
        )

    def _renew_worker(self) -> None:
        """The worker reads the same files: where other contents of them are trusted now, it is started anew."""
        fresh = builtin_spec(self._settings)
        if fresh.mark != self._trust_mark:
            self._trust_mark, self.own = fresh.mark, {BUILTIN: fresh}

    def _is_trusted(self, location: str, document: Document) -> bool:
        """Asked of the very text that is mounted: the file may have changed since its place was chosen."""
        if location != workspace_registry(self._settings, self._environ) or "://" in location:
            return True
        content = document.text.encode("utf-8", "surrogateescape")
        return registry_verdict(self._settings, location, content) == "trusted"

    def _add_untrusted(self) -> None:
        """The servers that wait for trust, so that a call is told why they are not there."""
        self.untrusted = ()
        if any(os.path.lexists(path) for path in self._workspace_paths()):
            self.untrusted = untrusted_files(self._settings, self._environ)
            self._specs = {**self._specs, **self._waiting_specs()}

    def _workspace_paths(self) -> list[str]:
        root = self._settings.workspaces[0]
        return [settings_path(self._settings), *(os.path.join(root, name) for name in WORKSPACE_FILES)]

    def _settings_specs(self) -> dict[str, MountSpec]:
        """`[mounts]` of the settings files, as far as they are trusted."""
        return {
            name: mount_spec(self._settings, name, argv, managed=True) for name, argv in self._mounts.items()
        }

    def _waiting_specs(self) -> dict[str, MountSpec]:
        """`launch` refuses them."""
        found: dict[str, MountSpec] = {}
        for file in self.untrusted:
            for start in file.starts:
                if start.name not in self._taken and start.name not in self._specs:
                    sentence = untrusted_mount(start.name, file.path, start, changed=file.changed)
                    found[start.name] = MountSpec(
                        start.name, prefix=start.name + SEPARATOR, managed=True, untrusted=sentence
                    )
        prefixes = _prefixes([*self._specs, *found])
        return {name: msgspec.structs.replace(spec, prefix=prefixes[name]) for name, spec in found.items()}

    def _copied(self, location: str) -> str:
        from perdure.registry.http.mirror import Mirror

        if self._mirror is None:
            self._mirror = Mirror(location, self._environ)
            self._mirror.open()
        return self._mirror.path

    def _spec(self, entry: Entry, prefix: str) -> MountSpec:
        known = self._settings.timeouts
        given = entry.timeouts
        return MountSpec(
            entry.name,
            _shown_command(entry),
            prefix,
            cwd=self._settings.workspaces[0],
            start=entry.start,
            startup_s=given.startup or known.startup,
            call_s=given.call or known.call,
            idle_s=given.idle or known.idle,
            trust_annotations=entry.replay.mode == "annotations",
            replay=entry.replay.tools,
            allow=entry.tools.allow,
            deny=entry.tools.deny,
            modern_first=entry.transport == "streamable-http",
            restart=entry.restart,
            pin=entry.pin,
            required=entry.required,
            managed=True,
            mark=self._mark(entry),
        )

    def _mark(self, entry: Entry) -> str:
        """What is different where a running server has to be started again."""
        from zlib import crc32

        from perdure.registry.oauth_tokens import login_of

        started = (entry.transport, entry.command, entry.args, entry.cwd, entry.env, entry.url, entry.headers)
        listed = sorted(self._allowed) if self._allowed is not None else None
        signed_in = [entry.oauth, login_of(self._grant_of(entry))] if entry.transport != "stdio" else None
        return f"{crc32(msgspec.msgpack.encode([started, listed, signed_in])):08x}"

    def _grant_of(self, entry: Entry) -> str:
        """Where the sign-in to a remote server is kept, if there is one."""
        from perdure.registry.errors import UnsetVariable
        from perdure.registry.oauth_tokens import grant_path

        try:
            return grant_path(entry.name, entry.url.resolve(self._environ) if entry.url is not None else "")
        except UnsetVariable:
            return ""

    def _signature(self) -> str:
        """What would be different if the registry, or an approval, were."""
        settings = self._settings
        named = settings.registry or self._environ.get("PERDURE_REGISTRY") or settings.workspace_registry
        if named and "://" in named:
            from perdure.registry.http.mirror import mirror_path

            named = mirror_path(named)
        folders = [settings.workspaces[0], user_folder(self._environ)]
        paths = (
            [named] if named else [os.path.join(folder, name) for folder in folders for name in FILE_NAMES]
        )
        ours = [*self._workspace_paths(), user_file(self._environ), TrustStore().folder]
        return repr([_facts(path) for path in [*paths, *ours, _tools_folder(), sign_ins_folder()]])

    # --- over an upgrade of the host ------------------------------------------------------------------------

    def dump(self) -> bytes:
        """What was read, and from what, for the successor of this process (law 15)."""
        from perdure.host.registry_snapshot import RegistrySnapshot, dump

        return dump(
            RegistrySnapshot(
                entries=self._entries,
                problems=self._problems,
                allowed=self._allowed,
                base=self._base,
                signature=self._seen,
                specs=self._specs,
                faults=self._faults,
                listed=self._listed,
                mounts=self._mounts,
                untrusted=self.untrusted,
                trust_mark=self._trust_mark,
            )
        )

    def restore(self, data: bytes) -> None:
        """Go on from a dump. The file is not read: `news` finds what changed since. Raises ValueError."""
        from perdure.host.registry_snapshot import load

        known = load(data)
        self._entries, self._problems, self._allowed = known.entries, known.problems, known.allowed
        self._base, self._seen, self._specs = known.base, known.signature, known.specs
        self._faults, self._listed, self._mounts = known.faults, known.listed, known.mounts
        self.untrusted, self._trust_mark = known.untrusted, known.trust_mark
        if "://" in (location := self.place()):
            from perdure.registry.http.mirror import Mirror

            self._mirror = Mirror(location, self._environ)

    # --- starting one ---------------------------------------------------------------------------------------

    def launch(self, spec: MountSpec, environ: Mapping[str, str]) -> Launch | Fault:
        """With what a server is started now, or why it cannot be. Never raises."""
        try:
            return self._launch(spec, environ)
        except Exception as error:
            detail = f"it cannot be started as it is described ({type(error).__name__})"
            return Fault("process", "invalid_entry", 0, detail)

    def _launch(self, spec: MountSpec, environ: Mapping[str, str]) -> Launch | Fault:
        from perdure.registry.allowed_commands import check_allowed
        from perdure.registry.errors import RegistryError
        from perdure.registry.oauth_tokens import grant_path
        from perdure.registry.resolved_entry import resolve

        if spec.untrusted:
            return Fault("process", "untrusted", 0, spec.untrusted)
        if (argv := self._mounts.get(spec.name)) is not None:
            return Launch(argv, environment(spec, environ), spec.cwd)
        entry = self._entries.get(spec.name)
        if entry is None:
            return Fault(
                "process", "invalid_entry", 0, self._problems.get(spec.name, "it is not in the registry")
            )
        try:
            found = resolve(entry, environ)
            if entry.transport == "stdio":
                check_allowed(found.command, self._allowed, entry=entry.name)
        except RegistryError as error:
            return Fault("process", error.code, 0, printable(error.message), printable(error.hint))
        env = {**minimal(environ), **found.env}
        if entry.transport == "stdio":
            cwd = os.path.join(self._base, os.path.expanduser(found.cwd)) if found.cwd else spec.cwd
            return Launch((found.command, *found.args), env, cwd)
        env[TARGET_ENV] = msgspec.json.encode(
            {
                "name": entry.name,
                "transport": entry.transport,
                "url": found.url,
                "headers": found.headers,
                "oauth": found.oauth,
                "grant": grant_path(entry.name, found.url),
            }
        ).decode()
        return Launch(_bridge_command(), env, spec.cwd)

    def explained(self, spec: MountSpec, fault: Fault, code: int) -> Fault:
        """What the end of a server means; a bridge that cannot go on without a person says so by its exit code."""
        entry = self._entries.get(spec.name)
        if entry is None or entry.transport == "stdio" or code != SIGN_IN_CODE:
            return fault
        return Fault(
            "downstream",
            "sign_in_required",
            fault.generation,
            f"{spec.name} wants a sign-in",
            f"perdure registry login {spec.name}",
        )

    def scrub(self, spec: MountSpec, tail: bytes, environ: Mapping[str, str]) -> str:
        """What may be shown of the end of a server's standard error."""
        from perdure.registry.errors import RegistryError
        from perdure.registry.redaction import scrub
        from perdure.registry.resolved_entry import resolve

        entry = self._entries.get(spec.name)
        try:
            secrets = resolve(entry, environ).secrets if entry is not None else ()
        except RegistryError:
            secrets = ()
        text = tail.decode("utf-8", "replace")
        if len(tail) >= 4096:
            text = text.partition("\n")[2]  # its first line may be half a secret
        return scrub(text, secrets).strip()[-TAIL_CHARACTERS:]

    # --- what its tools were ----------------------------------------------------------------------------------

    def tools_of(self, specs: Mapping[str, MountSpec]) -> dict[str, KnownTools]:
        found = {name: self.known_tools(name) for name, spec in specs.items() if spec.managed}
        return {name: tools for name, tools in found.items() if tools is not None}

    def known_tools(self, name: str) -> KnownTools | None:
        return read_tools(self.place(), name)

    def save_tools(self, name: str, known: dict[str, str], held: dict[str, str]) -> None:
        try:
            write_tools(self.place(), name, KnownTools(known, held))
            self._seen = self._signature()
        except (OSError, ValueError):
            pass  # then a change is noticed against what was known before

    def place(self) -> str:
        return registry_place(self._settings, self._environ)


def read_tools(place: str, name: str) -> KnownTools | None:
    """What was known of a server's tools when it was last mounted from this registry."""
    try:
        with open(_tools_file(place, name), "rb") as file:
            return msgspec.json.decode(file.read(), type=KnownTools)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


def write_tools(place: str, name: str, tools: KnownTools) -> None:
    private_dir("tools")
    write_private(_tools_file(place, name), msgspec.json.encode(tools))


def _tools_folder() -> str:
    return os.path.join(state_dir(), "tools")


def _tools_file(place: str, name: str) -> str:
    from zlib import crc32

    mark = crc32(os.fsencode(place if "://" in place else os.path.realpath(place)))
    return os.path.join(_tools_folder(), f"{name}-{mark:08x}.json")


def _facts(path: str) -> tuple[object, ...]:
    try:
        info = os.stat(path)
    except (OSError, ValueError):  # ValueError: a zero byte in the path
        return (path,)
    return (path, info.st_ino, info.st_mtime_ns, info.st_size, info.st_ctime_ns)


def _read_fault(place: str, error: Exception) -> Fault:
    """Why a registry could not be read. Of an exception that is a bug of ours nothing but its name is said."""
    from perdure.registry.errors import RegistryError
    from perdure.registry.redaction import mask_url

    place = printable(mask_url(place) if "://" in place else place)
    kept = "its servers stay as they are until it can be read"
    if isinstance(error, RegistryError):
        message = printable(error.message)
        detail = message if message.startswith(place) else f"{place}: {message}"
        return Fault("resource", error.code, 0, detail, error.hint or kept)
    reason = error.strerror if isinstance(error, OSError) else None
    return Fault(
        "resource", "unreadable", 0, f"{place}: {reason or f'cannot be read ({type(error).__name__})'}", kept
    )


def _shown_command(entry: Entry) -> tuple[str, ...]:
    """References as they are: this is kept with the server's catalog."""
    if entry.command is not None:
        return (entry.command.text, *(arg.text for arg in entry.args))
    from perdure.registry.redaction import mask_url

    return (entry.transport, mask_url(entry.url) if entry.url is not None else "")


def _bridge_command() -> tuple[str, ...]:
    return own_command("bridge")


def _prefixes(names: list[str]) -> dict[str, str]:
    """`name__`, in characters that every client takes in a tool's name; a collision gets a number."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for name in names:
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name[:MOST_PREFIX])
        prefix, number = plain, numbers.get(plain, 1)
        while prefix in taken:
            number += 1
            prefix = f"{plain}_{number}"
        numbers[plain] = number
        taken.add(prefix)
        found[name] = prefix + SEPARATOR
    return found

"""A registry in a file: `mcp.md` or `mcp.json`, shared with editors and other programs.

Every operation reads the current file. A change is planned on its text and written only if the file has not changed
meanwhile (`perdure.registry.file.atomic_edit`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from perdure.protocol.mount_names import RESERVED
from perdure.registry.allowed_commands import is_allowed, narrow
from perdure.registry.backend import Capabilities, ServerRef, ValidationResult
from perdure.registry.entry import Entry, check_name
from perdure.registry.errors import (
    AlreadyInstalled,
    NotInRegistry,
    Quarantined,
    RegistryError,
    Unreadable,
)
from perdure.registry.file.document import MAX_BYTES, WAIT_S, Document, ParsedEntry, read_bytes
from perdure.registry.redaction import scrub

BACKEND_ID: Final = "filesystem"
_LOOPBACK: Final = ("localhost", "127.", "[::1]")


def open_markdown(location: str, environ: Mapping[str, str]) -> FileBackend:
    from perdure.registry.file.mcp_md import MarkdownDocument

    return FileBackend(location, MarkdownDocument, environ)


def open_json(location: str, environ: Mapping[str, str]) -> FileBackend:
    from perdure.registry.file.mcp_json import JsonDocument

    return FileBackend(location, JsonDocument, environ)


def parse_document(path: str, content: bytes) -> Document:
    """Parse a content by the ending of its file. Raises RegistryError."""
    from perdure.registry.file.mcp_json import JsonDocument
    from perdure.registry.file.mcp_md import MarkdownDocument

    kind = MarkdownDocument if path.lower().endswith(".md") else JsonDocument
    return kind(content.decode("utf-8", "surrogateescape"))


class FileBackend:
    """One file is one scope (MUST 5)."""

    def __init__(
        self,
        path: str,
        document: Callable[[str], Document],
        environ: Mapping[str, str],
        *,
        wait_s: float = WAIT_S,
    ) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self._document = document
        self._environ = environ
        self._wait_s = wait_s
        self.is_trusted = True
        """Whether its list of allowed commands may add commands."""
        self.on_change: Callable[[bytes | None, bytes, bool], None] | None = None
        """Called with the old and the new content of each change, before it is written and after."""
        self._documents: dict[bytes, Document] = {}  # the last two contents that were parsed

    @property
    def backend_id(self) -> str:
        return BACKEND_ID

    @property
    def capabilities(self) -> Capabilities:
        can_write = _can_write(self.path)
        return Capabilities(
            supports_install=can_write,
            supports_uninstall=can_write,
            durable=True,
            supports_canonical_export=True,
        )

    def refresh_capabilities(self) -> Capabilities:
        return self.capabilities

    def list_servers(self) -> list[ServerRef]:
        return sorted((self._ref(slot) for slot in self.read().slots), key=lambda ref: ref.name)

    def load(self, name: str) -> Entry:
        check_name(name)
        return self._entry(self.read(), name)

    def load_all(self) -> list[Entry]:
        entries = (slot.entry for slot in self.read().slots if slot.entry is not None)
        return sorted(entries, key=lambda entry: entry.name)

    def validate(self, name: str) -> ValidationResult:
        """An absent name and an unreadable file are results, too."""
        try:
            check_name(name)
            if read_bytes(self.path) is None:
                return ValidationResult(False, (f"{os.path.basename(self.path)} does not exist",))
            document = self.read()
            entry = self._entry(document, name)
        except RegistryError as error:
            return ValidationResult(False, (error.message,))
        allowed = document.allowed if self.is_trusted else narrow(document.allowed)
        errors = [slot.error for slot in document.slots if slot.name == name and slot.error]
        if entry.command is not None and entry.command.is_literal:
            command = entry.command.resolve({})
            if not is_allowed(command, allowed):
                errors.append(f"the command {os.path.basename(command)} is not in the allowed list")
        warnings = _warnings(entry, self._environ, os.path.dirname(self.path))
        return ValidationResult(not errors, tuple(errors), tuple(warnings))

    def install(self, entry: Entry) -> ServerRef:
        if self.install_all([entry]):
            raise AlreadyInstalled(
                f"{entry.name} is already installed",
                entry=entry.name,
                hint="uninstall it first, or use another name",
            )
        return self._ref(ParsedEntry(entry.name, entry))

    def install_all(self, entries: Sequence[Entry]) -> tuple[str, ...]:
        taken: list[str] = []

        def change(document: Document) -> str | None:
            taken[:] = [entry.name for entry in entries if document.slot(entry.name) is not None]
            new = [entry for entry in entries if entry.name not in taken]
            return document.with_entries(*new) if new else None

        self._change(change)
        return tuple(taken)

    def uninstall(self, name: str) -> bool:
        check_name(name)
        was_there = False

        def change(document: Document) -> str | None:
            nonlocal was_there
            was_there = document.slot(name) is not None
            return document.without_entries(name) if was_there else None

        self._change(change)
        return was_there

    def set_enabled(self, name: str, enabled: bool) -> ServerRef:
        check_name(name)

        def change(document: Document) -> str:
            self._entry(document, name)
            return document.with_enabled(name, enabled)

        self._change(change)
        return self._ref(self._slot(name))

    def replace(self, entry: Entry) -> ServerRef:
        def change(document: Document) -> str:
            self._entry(document, entry.name)
            return document.with_replaced(entry)

        self._change(change)
        return self._ref(self._slot(entry.name))

    def source(self, name: str) -> str:
        return f"{os.path.basename(self.path)}#{name}"

    def close(self) -> None:
        """Nothing is open between two operations."""

    def read(self) -> Document:
        """The current file; an absent one is empty."""
        return self._parse(read_bytes(self.path))

    def _change(self, change: Callable[[Document], str | None]) -> None:
        from perdure.registry.file.atomic_edit import edit_file

        last: tuple[bytes | None, bytes | None] = (None, None)

        def plan(data: bytes | None) -> bytes | None:
            nonlocal last
            text = change(self._parse(data))
            last = (data, None if text is None else text.encode("utf-8", "surrogateescape"))
            self._notify(*last, False)
            return last[1]

        edit_file(self.path, plan, wait_s=self._wait_s)
        self._notify(*last, True)

    def _notify(self, old: bytes | None, new: bytes | None, is_done: bool) -> None:
        if self.on_change is not None and new is not None:
            self.on_change(old, new, is_done)

    def _parse(self, data: bytes | None) -> Document:
        content = data or b""
        if len(content) > MAX_BYTES:
            raise Unreadable(f"{os.path.basename(self.path)} is larger than {MAX_BYTES:,} bytes")
        if content not in self._documents:
            document = self._document(content.decode("utf-8", "surrogateescape"))
            self._documents = {**dict(list(self._documents.items())[-1:]), content: document}
        return self._documents[content]

    def _slot(self, name: str) -> ParsedEntry:
        return self.read().slot(name) or ParsedEntry(name, None, "uninstalled meanwhile")

    def _entry(self, document: Document, name: str) -> Entry:
        slot = document.slot(name)
        if slot is None:
            raise NotInRegistry(
                f"{name} is not in the registry", entry=name, hint="`perdure registry list` shows what is"
            )
        if slot.entry is None:
            raise Quarantined(
                f"{name} cannot be used: {slot.error}", entry=name, hint="fix its section in the file"
            )
        return slot.entry

    def _ref(self, slot: ParsedEntry) -> ServerRef:
        source = self.source(slot.name)
        if slot.entry is None:
            return ServerRef(slot.name, source=source, transport="", error=slot.error)
        version = slot.entry.provenance.version if slot.entry.provenance is not None else None
        return ServerRef(
            slot.name,
            scrub(slot.entry.description),
            slot.entry.transport,
            version or None,
            source,
            slot.entry.enabled,
        )


def _can_write(path: str) -> bool:
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        return False
    folder = os.path.dirname(target)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _can_run(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _warnings(entry: Entry, environ: Mapping[str, str], base: str) -> list[str]:
    warnings = [f"the variable {variable} is not set" for variable in entry.unset(environ)]
    if entry.command is not None and not entry.command.unset(environ):
        command = entry.command.resolve(environ)
        folders = [base] if "/" in command else environ.get("PATH", os.defpath).split(os.pathsep)
        if not any(_can_run(os.path.join(folder, command)) for folder in folders):
            warnings.append(f"the command {os.path.basename(command)} is not on the PATH")
    if entry.url is not None and entry.url.text.startswith("http://"):
        host = entry.url.text.removeprefix("http://").rpartition("@")[2]
        if not host.startswith(_LOOPBACK):
            warnings.append("the url is not https: what is sent can be read on the way")
    warnings += [f"the key {key} is not known" for key in entry.extra]
    if entry.name in RESERVED:
        warnings.append("the name is the host's own: it is not mounted")
    return warnings

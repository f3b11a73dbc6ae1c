"""An official registry as a registry of its own, to read: `official+https://HOST[/PATH]`.

Every server in it is an entry in its newest version, pinned, with references where a value is asked for, and switched
off: what exists is not what somebody uses. A full name holds a slash, which no entry's name may, so `com.acme/weather`
is `com.acme+weather` here. Answers come from a copy on disk, renewed first (with what changed); while the registry
cannot be reached, the copy answers and `notice` says so. Nothing can be installed in it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import structs

from perdure.registry.addresses import check_address, read_address
from perdure.registry.entry import Entry, check_name
from perdure.registry.errors import (
    InvalidName,
    NotInRegistry,
    Quarantined,
    RegistryError,
    RegistryUnavailable,
    Unsupported,
)
from perdure.registry.fetching import Fetcher, TornReply, allows_http
from perdure.registry.official.api import OfficialApi
from perdure.registry.official.records import BadRecord, Record, read_record
from perdure.registry.official.store import CatalogStore
from perdure.registry.official.syncing import sync
from perdure.registry.redaction import scrubbed
from perdure.registry.refs import Capabilities, ServerRef, ValidationResult
from perdure.registry.runnable.choosing import chosen
from perdure.registry.runnable.plan import NotRunnable, settled

PREFIX: Final = "official+"
TOKEN: Final = "PERDURE_REGISTRY_TOKEN"
SYNC_S: Final = 120.0


def open_official(location: str, environ: Mapping[str, str]) -> OfficialBackend:
    return OfficialBackend(location, environ)


class OfficialBackend:
    """One registry is one scope. Nothing is opened before the first operation."""

    def __init__(self, location: str, environ: Mapping[str, str]) -> None:
        address = read_address(location.partition("+")[2])
        self._address = msgspec.structs.replace(address, query=())
        self._allow_http = allows_http(environ)
        self._environ = environ
        self._opened: tuple[CatalogStore, OfficialApi] | None = None
        self.notice = ""

    @property
    def backend_id(self) -> str:
        return "official"

    @property
    def capabilities(self) -> Capabilities:
        """It is read, whatever the registry itself allows its publishers."""
        return Capabilities()

    def refresh_capabilities(self) -> Capabilities:
        check_address(self._address, self._allow_http)
        if not self._open()[1].is_there():
            raise NotInRegistry(f"{self._address.shown} is no official registry")
        return self.capabilities

    def list_servers(self) -> list[ServerRef]:
        return sorted((self._ref(record) for record in self._records()), key=lambda ref: ref.name)

    def load(self, name: str) -> Entry:
        check_name(name)
        store = self._renewed()
        raw = store.version(name.replace("+", "/", 1)) if "+" in name else None
        try:
            record = read_record(msgspec.json.decode(raw)) if raw is not None else None
        except BadRecord as error:
            raise Quarantined(f"{name} cannot be used: {error}", entry=name) from None
        if record is None or record.status == "deleted":
            raise NotInRegistry(f"{self._address.shown} has no server {name}", entry=name)
        try:
            return self._entry(record)
        except RegistryError as error:
            raise Quarantined(f"{name} cannot be used: {error.message}", entry=name) from None

    def load_all(self) -> list[Entry]:
        found = []
        for record in self._records():
            try:
                found.append(self._entry(record))
            except RegistryError:
                continue  # `list_servers` tells of it; one that cannot run hides no other
        return sorted(found, key=lambda entry: entry.name)

    def validate(self, name: str) -> ValidationResult:
        try:
            entry = self.load(name)
        except (InvalidName, NotInRegistry, Quarantined) as error:
            return ValidationResult(False, (error.message,))
        unset = dict.fromkeys(one for _, each in entry.templates() for one in each.unset(self._environ))
        return ValidationResult(True, warnings=tuple(f"the variable {one} is not set" for one in unset))

    def install(self, entry: Entry) -> ServerRef:
        check_name(entry.name)
        raise self._read_only(entry.name)

    def uninstall(self, name: str) -> bool:
        check_name(name)
        raise self._read_only(name)

    def source(self, name: str) -> str:
        return f"{self._address.shown} {name.replace('+', '/', 1)}"

    def close(self) -> None:
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    # --- what it holds ----------------------------------------------------------------------------------------

    def _open(self) -> tuple[CatalogStore, OfficialApi]:
        if self._opened is None:
            token = self._environ.get(TOKEN, "")
            fetcher = Fetcher(token=token, allow_http=self._allow_http, token_name=TOKEN)
            identity = hashlib.sha256(token.encode()).hexdigest() if token else ""
            key = f"registry {self._address.shown} {identity} {self._address.userinfo}"
            self._opened = CatalogStore(key), OfficialApi(fetcher, self._address)
        return self._opened

    def _renewed(self) -> CatalogStore:
        """Its copy, up to date as far as it can be reached."""
        check_address(self._address, self._allow_http)
        store, api = self._open()
        try:
            if not sync(store, api, SYNC_S):
                raise RegistryUnavailable(f"{self._address.shown} is not copied yet", hint="try again")
            self.notice = ""
        except TornReply:
            raise
        except RegistryUnavailable as error:
            if store.synced_at is None:
                raise
            self.notice = f"{error.message}; this is from a copy"
        return store

    def _records(self) -> Iterator[Record]:
        for raw in self._renewed().newest_versions():
            try:
                record = read_record(msgspec.json.decode(raw))
            except BadRecord:
                continue  # it names nothing that could be listed
            if record.status != "deleted":
                yield record

    def _entry(self, record: Record) -> Entry:
        """Raises RegistryError with the reason why it is none."""
        name = _name(record)
        check_name(name)
        plan = chosen(record, lambda command: shutil.which(command) is not None)
        if plan.bundle is not None:
            raise NotRunnable("its bundle is fetched and checked when it is installed", entry=name)
        return structs.replace(settled(plan, name, {}, self._address.shown), enabled=False)

    def _ref(self, record: Record) -> ServerRef:
        source = self.source(_name(record))
        try:
            entry = self._entry(record)
        except RegistryError as error:
            return ServerRef(
                _name(record), scrubbed(record.description), "", record.version, source, False, error.message
            )
        return ServerRef(
            entry.name, scrubbed(entry.description), entry.transport, record.version, source, enabled=False
        )

    def _read_only(self, name: str) -> Unsupported:
        return Unsupported(
            f"{self._address.shown} is an official registry: it is published to, and read here",
            entry=name,
            hint=f"perdure registry install --catalog {self._address.shown} --from {name.replace('+', '/', 1)}",
        )


def _name(record: Record) -> str:
    return record.name.replace("/", "+", 1)

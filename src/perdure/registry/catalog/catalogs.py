"""Catalogs to search and to install from: official registries and tiered catalogs, behind one interface.

An official registry is mirrored on disk and searched there; if it cannot be reached, the mirror answers, with a notice of
its age. A tiered catalog is small and is queried directly. A server card (SEP-2127) is a catalog of one server.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from perdure.registry.catalog.mirror import CatalogStore, search, sync
from perdure.registry.catalog.official_api import OFFICIAL_URL, OfficialApi
from perdure.registry.catalog.records import BadRecord, Record, read_record
from perdure.registry.catalog.semver import order
from perdure.registry.entry import Entry
from perdure.registry.errors import (
    InvalidName,
    NotInCatalog,
    NotInRegistry,
    RegistryError,
    RegistryUnavailable,
)
from perdure.registry.http.address import Address, check_address, read_address
from perdure.registry.http.backend import HttpCatalog, ago
from perdure.registry.http.client import HttpClient, TornReply, allows_http

CATALOG: Final = "PERDURE_CATALOG"
TOKEN: Final = "PERDURE_CATALOG_TOKEN"
# How long a search may spend on updating the mirror; the next one continues from there.
SYNC_S: Final = 15.0
AMBIGUOUS_SHOWN: Final = 5
CARD: Final = "/server-card"
CARD_TYPE: Final = "application/mcp-server-card+json"


class Listing(msgspec.Struct, frozen=True, omit_defaults=True):
    """One hit: the newest version of a server, and the ways it can be run."""

    name: str
    version: str = ""
    title: str = ""
    description: str = ""
    status: str = "active"
    kinds: tuple[str, ...] = ()
    repository: str = ""
    website: str = ""


class Results(msgspec.Struct, frozen=True):
    """`age_s` is the age of the data; `notice` is a warning for the user."""

    servers: tuple[Listing, ...]
    age_s: float = 0.0
    is_stale: bool = False
    notice: str = ""


class Catalog(Protocol):
    @property
    def location(self) -> str:
        """Its URL without credentials; stored in the provenance of entries from it."""

    def search(self, words: str, limit: int) -> Results: ...

    def lookup(self, name: str, version: str = "") -> Record | Entry:
        """Raises NotInCatalog."""

    @property
    def notice(self) -> str: ...

    def close(self) -> None: ...


def open_catalog(url: str, environ: Mapping[str, str]) -> Catalog:
    """The catalog at a URL; its kind is detected. Raises RegistryUnavailable, AuthRequired."""
    location = url or environ.get(CATALOG, "") or OFFICIAL_URL
    address = check_address(read_address(location), allows_http(environ))
    if address.path.endswith(CARD):  # the token is that of a catalog
        return ServerCard(address, HttpClient(allow_http=allows_http(environ)))
    token = environ.get(TOKEN, "")
    client = HttpClient(token=token, allow_http=allows_http(environ), token_name=TOKEN)
    official = OfficialCatalog(address, client, hashlib.sha256(token.encode()).hexdigest() if token else "")
    if location == OFFICIAL_URL or official.has_mirror:
        return official
    tiered = TieredCatalog(location, token, allows_http(environ), client)
    try:
        if address.parameter("agent_scope") is not None or tiered.is_served():
            return tiered
    except RegistryUnavailable as error:
        tiered.failure = error  # its last replies may be in the cache
        return tiered
    return official if official.is_served() else tiered


class OfficialCatalog:
    """A registry with the official API, and its mirror on disk."""

    def __init__(self, address: Address, client: HttpClient, identity: str) -> None:
        self._address = msgspec.structs.replace(address, query=())
        self._api = OfficialApi(client, self._address)
        self._store = CatalogStore(f"{self.location} {identity} {address.userinfo}")
        self._notice = ""

    @property
    def location(self) -> str:
        return self._address.shown

    @property
    def notice(self) -> str:
        return self._notice

    @property
    def has_mirror(self) -> bool:
        """Whether it was mirrored before, so that its kind needs no detection."""
        return self._store.synced_at is not None

    def is_served(self) -> bool:
        return self._api.is_served()

    def search(self, words: str, limit: int) -> Results:
        is_stale = False
        try:
            if not sync(self._store, self._api, SYNC_S):
                self._notice = (
                    f"{self._store.count()} servers are mirrored so far; the next search continues from there"
                )
                for raw in self._api.page(search=max(words.split(), key=len, default="")).records:
                    self._store.add(raw)
        except TornReply:
            raise
        except RegistryUnavailable as error:
            if self._store.synced_at is None:
                raise
            is_stale = True
            self._notice = self._age_notice(error)
        records = [self._store.version(row.name) for row in search(self._store, words, limit)]
        listings = tuple(
            _listing(read_record(msgspec.json.decode(data))) for data in records if data is not None
        )
        return Results(listings, self._age(), is_stale, self._notice)

    def lookup(self, name: str, version: str = "") -> Record:
        full = name if "/" in name else self._full_name(name)
        try:
            raw = self._fetch(full, version)
        except TornReply:
            raise
        except RegistryUnavailable as error:
            mirrored = self._store.version(full, version)
            if mirrored is None:
                raise
            self._notice = self._age_notice(error)
            raw = msgspec.json.decode(mirrored)
        try:
            record = read_record(raw)
        except BadRecord as error:
            raise NotInCatalog(f"{self.location} has {full}, but {error}", entry=full) from None
        if record.name != full or (version and record.version != version):
            raise TornReply(f"{self.location} answered with another server than {full} {version}".rstrip())
        return record

    def close(self) -> None:
        self._store.close()

    def _fetch(self, full: str, version: str) -> dict[str, Any]:
        """One version; if it is missing, the list of all versions says which there are."""
        try:
            return self._api.version(full, version or "latest")
        except NotInCatalog:
            records = self._api.versions(full).records
        versions = {str(record.get("server", record).get("version")): record for record in records}
        newest = max(versions, key=order, default="")
        if version not in versions and (version or not newest):
            listed = ", ".join(sorted(versions, key=order, reverse=True)[:AMBIGUOUS_SHOWN])
            raise NotInCatalog(
                f"{self.location} has no server {full} {version}".rstrip(),
                entry=full,
                hint=f"it has {listed}",
            )
        return versions[version or newest]

    def _full_name(self, short: str) -> str:
        """The one server with this short name."""
        if self._store.synced_at is None:
            self.search(short, 1)
        names = self._store.full_names(short)
        if len(names) == 1:
            return names[0]
        if not names:
            raise NotInCatalog(
                f"{self.location} has no server {short}", entry=short, hint=f"perdure registry search {short}"
            )
        more = "…" if len(names) > AMBIGUOUS_SHOWN else ""
        raise NotInCatalog(
            f"{short} could be any of {len(names)} servers",
            entry=short,
            hint=f"give its full name: {', '.join(names[:AMBIGUOUS_SHOWN])}{more}",
        )

    def _age_notice(self, error: RegistryUnavailable) -> str:
        return f"{error.message}; this is from a mirror {ago(self._age())} old"

    def _age(self) -> float:
        at = self._store.synced_at
        return max(0.0, time.time() - at) if at is not None else 0.0


class TieredCatalog:
    """A tiered catalog, searched by the words in names and descriptions."""

    def __init__(self, location: str, token: str, allow_http: bool, client: HttpClient) -> None:
        self._backend = HttpCatalog(location, token=token, allow_http=allow_http, client=client)
        self.failure: RegistryUnavailable | None = None

    @property
    def location(self) -> str:
        return self._backend.location

    @property
    def notice(self) -> str:
        return self._backend.notice

    def is_served(self) -> bool:
        """Whether the address has the endpoint for capabilities, which an official registry lacks."""
        try:
            return self._backend.refresh_capabilities().supports_capability_handshake
        except TornReply:
            return False
        except RegistryUnavailable:
            raise
        except RegistryError as error:
            if error.exit_code == RegistryUnavailable.exit_code:
                raise
            return False

    def search(self, words: str, limit: int) -> Results:
        terms = words.lower().split()
        scored: list[tuple[int, str, Listing]] = []
        for ref in self._backend.list_servers():
            name, text = ref.name.lower(), f"{ref.name} {ref.description}".lower()
            if ref.error or not all(term in text for term in terms):
                continue
            score = 0 if " ".join(terms) == name else 1 if all(term in name for term in terms) else 2
            listing = Listing(
                ref.name, ref.version or "", description=ref.description, kinds=(ref.transport,)
            )
            scored.append((score, name, listing))
        scored.sort(key=lambda hit: hit[:2])
        return Results(
            tuple(listing for _, _, listing in scored[:limit]),
            is_stale=bool(self.notice),
            notice=self.notice,
        )

    def lookup(self, name: str, version: str = "") -> Entry:
        try:
            entry = self._backend.load(name)
        except InvalidName:  # a full name: the address may be an official registry that is down
            raise self.failure or NotInCatalog(f"{self.location} has no such server", entry=name) from None
        except NotInRegistry as error:
            raise NotInCatalog(error.message, entry=name) from None
        if version and (entry.provenance is None or entry.provenance.version != version):
            raise NotInCatalog(f"{self.location} has {name}, but not in version {version}", entry=name)
        return entry

    def close(self) -> None:
        self._backend.close()


class ServerCard:
    """The card of one remote server: a part of an official record, so it is read as one."""

    notice = ""

    def __init__(self, address: Address, client: HttpClient) -> None:
        self._address = address
        self._client = client

    @property
    def location(self) -> str:
        return self._address.shown

    def search(self, words: str, limit: int) -> Results:
        record = self.lookup("")
        text = f"{record.name} {record.title} {record.description}".lower()
        is_match = all(word in text for word in words.lower().split())
        return Results((_listing(record),)[:limit] if is_match else ())

    def lookup(self, name: str, version: str = "") -> Record:
        """The server of the card; an empty name matches any."""
        reply = self._client.get(self._address, {"accept": f"{CARD_TYPE}, application/json"})
        try:
            record = read_record(reply.json()) if reply.status == 200 else None
        except (BadRecord, TornReply):
            record = None
        if record is None:
            hint = f"perdure registry install NAME --url {self.location.removesuffix(CARD)}"
            raise NotInCatalog(f"there is no server card at {self.location}", hint=hint)
        if (name and name != record.name) or (version and version != record.version):
            raise NotInCatalog(
                f"{self.location} is the card of {record.name} {record.version}, not of {name} {version}".rstrip(),
                entry=name,
            )
        return record

    def close(self) -> None:
        pass


def _listing(record: Record) -> Listing:
    kinds = [package.registry_type for package in record.packages] + ["remote"] * bool(record.remotes)
    return Listing(
        name=record.name,
        version=record.version,
        title=record.title,
        description=record.description,
        status=record.status,
        kinds=tuple(dict.fromkeys(kinds)),
        repository=record.repository,
        website=record.website,
    )

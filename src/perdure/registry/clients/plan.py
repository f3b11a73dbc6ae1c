"""What export and sync would make of a client's file: pure, from its text, the registry's entries and our claims.

| in the registry | in the file | ours | export | sync |
|---|---|---|---|---|
| yes | no | no | add | add |
| yes | no | yes | add | conflict: removed there |
| yes | the same | | unchanged | unchanged |
| yes | another | unedited | update | update |
| yes | another | edited, or not ours | conflict | conflict |
| no | yes | unedited | | remove |
| no | yes | edited | | conflict |
| broken | | yes | left alone | left alone |

`overwrite` treats what would be a conflict as ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import structs

from perdure.registry.clients.codec import EncodedEntry, Loss, encode_entry
from perdure.registry.clients.config_text import Uneditable
from perdure.registry.clients.ownership import Claim, hash_of
from perdure.registry.clients.references import Unrepresentable
from perdure.registry.clients.table import Client
from perdure.registry.entry import Entry
from perdure.registry.portable import move_secrets
from perdure.registry.templates import Template

COPIED: Final = "a literal that looks like a secret is written as it is; a $NAME would not be"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens to one server. `entry` is its name in the registry, if that differs."""

    name: str
    action: str
    reason: str = ""
    entry: str = ""


class Wanted(msgspec.Struct, frozen=True):
    """The content of a registry: `broken` maps the names of entries that cannot be read to the reason."""

    source: str
    entries: tuple[Entry, ...]
    broken: Mapping[str, str] = {}


class Plan(msgspec.Struct, frozen=True):
    """The new text, and the claims that go with it."""

    text: str
    steps: tuple[Step, ...]
    losses: tuple[Loss, ...]
    secrets: tuple[Loss, ...]
    claims: dict[str, Claim]

    @property
    def settled_claims(self) -> dict[str, Claim]:
        """The claims once the text is in place."""
        return {name: Claim(claim.hashes[:1], True, claim.source) for name, claim in self.claims.items()}


def make_plan(
    client: Client,
    text: str,
    wanted: Wanted,
    claims: Mapping[str, Claim],
    *,
    sync: bool,
    overwrite: bool = False,
) -> Plan:
    """Raises Uneditable for a file that cannot be read."""
    encoded: dict[str, EncodedEntry] = {}
    secrets: list[Loss] = []
    planner = _Planner(client, text, wanted.source, claims, sync, overwrite)
    for entry in _with_absolute_cwd(wanted.entries, wanted.source):
        try:
            encoded[entry.name] = encode_entry(client, entry)
        except Unrepresentable as error:
            planner.steps.append(Step(entry.name, "skipped", str(error)))
            continue
        if planner.put(entry.name, encoded[entry.name]):
            secrets += [Loss(entry.name, secret.field, COPIED) for secret in move_secrets(entry, {})[1]]
    planner.steps += [Step(name, "skipped", reason) for name, reason in wanted.broken.items()]
    if sync:
        for name in [name for name, claim in claims.items() if claim.source == wanted.source]:
            if name not in encoded and name not in wanted.broken:
                planner.drop(name)
    planner.finish()
    losses = tuple(loss for entry in encoded.values() for loss in entry.losses)
    return Plan(planner.text, tuple(planner.steps), losses, tuple(secrets), planner.claims)


def _with_absolute_cwd(entries: Iterable[Entry], source: str) -> Iterable[Entry]:
    """A folder that is relative to the registry's file must be the same one for a client."""
    for entry in entries:
        if entry.cwd is not None and entry.cwd.is_literal and os.path.isabs(source):
            folder = os.path.expanduser(entry.cwd.resolve({}))
            path = os.path.normpath(os.path.join(os.path.dirname(source), folder))
            entry = structs.replace(entry, cwd=Template.literal(path))
        yield entry


class _Planner:
    def __init__(
        self,
        client: Client,
        text: str,
        source: str,
        claims: Mapping[str, Claim],
        sync: bool,
        overwrite: bool,
    ) -> None:
        self.client = client
        self.text = text
        self.present = client.text.servers(text)
        self.before = claims
        self.claims = dict(claims)
        self.source = source
        self.sync = sync
        self.overwrite = overwrite
        self.steps: list[Step] = []
        self.added: dict[str, Mapping[str, Any]] = {}
        self.removed: list[str] = []

    def put(self, name: str, encoded: EncodedEntry) -> bool:
        """Whether the entry will be written."""
        claim = self.claims.get(name)
        if name not in self.present:
            if not (self.sync and claim is not None and claim.landed) or self.overwrite:
                return self._write(name, encoded)
            self._conflict(name, "it was removed there")
        elif self._hash(self.present[name]) == self._hash(encoded.fields):
            if claim is not None:
                self.claims[name] = Claim((self._hash(encoded.fields),), True, claim.source)
            self.steps.append(Step(name, "unchanged"))
        elif self._is_ours(name) or self.overwrite:
            return self._write(name, encoded)
        elif claim is None:
            self._conflict(name, "another server has this name there, or it was not written by Perdure")
        elif claim.source != self.source:
            self._conflict(name, "it was written from another registry")
        else:
            self._conflict(name, "it was edited there")
        return False

    def drop(self, name: str) -> None:
        if name not in self.present:
            del self.claims[name]
        elif self._is_ours(name) or self.overwrite:
            self.removed.append(name)
            del self.claims[name]
            self.steps.append(Step(name, "removed"))
        else:
            self._conflict(name, "it was edited there, and is gone from the registry")

    def finish(self) -> None:
        """Add and remove entries, all in one change of the text. If that cannot be done, each of them is a conflict."""
        text, names = self.text, {*self.added, *self.removed}
        try:
            if self.removed:
                text = self.client.text.without_entries(text, self.removed)
            if self.added:
                text = self.client.text.with_entries(text, self.added)
            self.text = text
        except Uneditable as error:
            self.steps = [
                Step(step.name, "conflict", str(error)) if step.name in names else step for step in self.steps
            ]
            others = {name: claim for name, claim in self.claims.items() if name not in names}
            self.claims = others | {name: self.before[name] for name in names if name in self.before}

    def _write(self, name: str, encoded: EncodedEntry) -> bool:
        is_new = name not in self.present
        if is_new:
            self.added[name] = encoded.fields
        else:
            try:
                self.text = put_entry(self.client, self.text, name, self.present[name], encoded.fields)
            except Uneditable as error:
                self._conflict(name, str(error))
                return False
        hashes = [self._hash(encoded.fields)]
        if self._is_ours(name):
            hashes.append(self._hash(self.present[name]))
        claim = self.claims.get(name)
        self.claims[name] = Claim(tuple(hashes), claim is not None and claim.landed, self.source)
        self.steps.append(Step(name, "added" if is_new else "updated"))
        return True

    def _conflict(self, name: str, reason: str) -> None:
        self.steps.append(Step(name, "conflict", reason))

    def _is_ours(self, name: str) -> bool:
        claim = self.claims.get(name)
        if claim is None or claim.source != self.source:
            return False
        return self._hash(self.present.get(name)) in claim.hashes

    def _hash(self, value: Any) -> str:
        return hash_of(value, self.client.shape.keys)


def put_entry(client: Client, text: str, name: str, value: Any, fields: Mapping[str, Any]) -> str:
    """The text with these fields in an entry that has `value` now. Only what differs is changed; what the client
    keeps in the entry for itself stays."""
    if value is None:
        return client.text.with_entries(text, {name: fields})
    if not isinstance(value, dict):
        raise Uneditable(f"{name} is not a table of settings")
    for key in [key for key in value if key in client.shape.keys and key not in fields]:
        text = client.text.without_field(text, name, key)
    for key, member in fields.items():
        if key not in value or value[key] != member:
            text = client.text.with_field(text, name, key, member)
    return text

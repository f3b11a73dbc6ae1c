"""What export and sync would make of a client's file: pure, from its text, the registry's entries and what is ours.

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

`overwrite` takes what would be a conflict as ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import structs

from perdure.registry.clients.encoder import EncodedEntry, Loss, encode_entry
from perdure.registry.clients.ownership import Claim, hash_of
from perdure.registry.clients.references import Unrepresentable
from perdure.registry.clients.table import Client
from perdure.registry.clients.text_edit import Uneditable
from perdure.registry.entry import Entry
from perdure.registry.portable import move_secrets
from perdure.registry.templates import Template

COPIED: Final = "a literal that looks like a secret is written as it is; a $NAME would not be"

Action = Literal["added", "updated", "removed", "unchanged", "conflict", "skipped"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of one server."""

    name: str
    action: Action
    reason: str = ""


class Plan(msgspec.Struct, frozen=True):
    """The new text, and the claims that go with it."""

    text: str
    steps: tuple[Step, ...]
    losses: tuple[Loss, ...]
    secrets: tuple[Loss, ...]
    claims: dict[str, Claim]


class Wanted(msgspec.Struct, frozen=True):
    """The registry as one client can be told it; `broken` are names whose entry cannot be read.

    `secrets` are the fields that hold a literal secret: they are written as they are, and that is encoded.
    """

    source: str
    encoded: dict[str, EncodedEntry]
    unrepresentable: dict[str, str]
    broken: dict[str, str]
    secrets: dict[str, tuple[str, ...]]


def wanted(client: Client, source: str, entries: Iterable[Entry], broken: Mapping[str, str]) -> Wanted:
    encoded, unrepresentable, secrets = {}, {}, {}
    for entry in (_placed(one, source) for one in entries):
        secrets[entry.name] = tuple(one.field for one in move_secrets(entry, {})[1])
        try:
            encoded[entry.name] = encode_entry(client, entry)
        except Unrepresentable as error:
            unrepresentable[entry.name] = str(error)
    return Wanted(source, encoded, unrepresentable, dict(broken), secrets)


def _placed(entry: Entry, source: str) -> Entry:
    """A folder that the registry names from where it stands, named so that it is the same one for a client."""
    if entry.cwd is None or not entry.cwd.is_literal or not os.path.isabs(source):
        return entry
    folder = os.path.expanduser(entry.cwd.resolve({}))
    whole = os.path.normpath(os.path.join(os.path.dirname(source), folder))
    return structs.replace(entry, cwd=Template.literal(whole))


def make_plan(
    client: Client,
    text: str,
    want: Wanted,
    claims: Mapping[str, Claim],
    *,
    sync: bool,
    overwrite: bool = False,
) -> Plan:
    """Raises Uneditable for a file that cannot be read."""
    planning = _Planning(client, text, want, claims, sync, overwrite)
    for name, encoded in want.encoded.items():
        planning.put(name, encoded)
    for name, reason in {**want.unrepresentable, **want.broken}.items():
        planning.steps.append(Step(name, "skipped", reason))
    if sync:
        gone = [name for name, claim in planning.claims.items() if claim.source == want.source]
        for name in gone:
            if name not in want.encoded and name not in want.broken:
                planning.drop(name)
    planning.finish()
    losses = [loss for encoded in want.encoded.values() for loss in encoded.losses]
    written = [step.name for step in planning.steps if step.action in ("added", "updated")]
    secrets = [Loss(name, field, COPIED) for name in written for field in want.secrets[name]]
    return Plan(planning.text, tuple(planning.steps), tuple(losses), tuple(secrets), planning.claims)


class _Planning:
    def __init__(
        self,
        client: Client,
        text: str,
        want: Wanted,
        claims: Mapping[str, Claim],
        sync: bool,
        overwrite: bool,
    ) -> None:
        self.client = client
        self.text = text
        self.there = client.text.servers(text)
        self.before = dict(claims)
        self.claims = dict(claims)
        self.source = want.source
        self.sync = sync
        self.overwrite = overwrite
        self.steps: list[Step] = []
        self.added: dict[str, Mapping[str, Any]] = {}
        self.removed: list[str] = []

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

    def put(self, name: str, encoded: EncodedEntry) -> None:
        claim = self.claims.get(name)
        if name not in self.there:
            if self.sync and claim is not None and claim.landed and not self.overwrite:
                self._conflict(name, "it was removed there")
                return
            self._write(name, encoded, "added")
        elif self._is_same(name, encoded):
            if claim is not None:
                keys = self.client.shape.keys
                self.claims[name] = Claim((hash_of(encoded.fields, keys),), True, claim.source)
            self.steps.append(Step(name, "unchanged"))
        elif self._is_ours(name) or self.overwrite:
            self._write(name, encoded, "updated")
        elif claim is not None and claim.source != self.source:
            self._conflict(name, "it was written from another registry")
        elif claim is not None:
            self._conflict(name, "it was edited there")
        else:
            self._conflict(name, "another server has this name there, or it was not written by Perdure")

    def drop(self, name: str) -> None:
        if name not in self.there:
            del self.claims[name]
        elif self._is_ours(name) or self.overwrite:
            self.removed.append(name)
            del self.claims[name]
            self.steps.append(Step(name, "removed"))
        else:
            self._conflict(name, "it was edited there, and is gone from the registry")

    def _conflict(self, name: str, reason: str) -> None:
        self.steps.append(Step(name, "conflict", reason))

    def _write(self, name: str, encoded: EncodedEntry, action: Action) -> None:
        keys = self.client.shape.keys
        if name not in self.there:
            self.added[name] = encoded.fields
        else:
            try:
                self.text = put_entry(self.client, self.text, name, self.there[name], encoded.fields)
            except Uneditable as error:
                self._conflict(name, str(error))
                return
        hashes = [hash_of(encoded.fields, keys)]
        if self._is_ours(name):
            hashes.append(hash_of(self.there[name], keys))
        claim = self.claims.get(name)
        self.claims[name] = Claim(tuple(hashes), claim is not None and claim.landed, self.source)
        self.steps.append(Step(name, action))

    def _is_ours(self, name: str) -> bool:
        claim, value = self.claims.get(name), self.there.get(name)
        return (
            claim is not None
            and claim.source == self.source
            and isinstance(value, dict)
            and hash_of(value, self.client.shape.keys) in claim.hashes
        )

    def _is_same(self, name: str, encoded: EncodedEntry) -> bool:
        value, keys = self.there[name], self.client.shape.keys
        return isinstance(value, dict) and hash_of(value, keys) == hash_of(encoded.fields, keys)


def put_entry(client: Client, text: str, name: str, value: Any, fields: Mapping[str, Any]) -> str:
    """The text with an entry that says this, where `value` is there now. Only what differs is changed; what the
    client keeps in the entry for itself stays."""
    if value is None:
        return client.text.with_entries(text, {name: fields})
    if not isinstance(value, dict):
        raise Uneditable(f"{name} is not a table of settings")
    for key in [one for one in value if one in client.shape.keys and one not in fields]:
        text = client.text.without_field(text, name, key)
    for key, one in fields.items():
        if key not in value or value[key] != one:
            text = client.text.with_field(text, name, key, one)
    return text


def settled(plan: Plan) -> dict[str, Claim]:
    """The claims once the plan's text is in place."""
    return {name: Claim(claim.hashes[:1], True, claim.source) for name, claim in plan.claims.items()}
